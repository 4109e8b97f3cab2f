//! Replays worked timelines on a store and reports the first answer that is not exact.
//!
//! [`replay`] asks the store what a caller of the limiter asks: one charge of one bucket per request,
//! with the timeline's own time as `now`. A cost above the burst that is to be spent is sorted out
//! by [`Quota::admits`](tollgate_core::Quota::admits) and does not reach the store.
//!
//! Every run uses a key of its own and resets it at the end, so that a store that is shared with
//! others, or with other runs, can be tested.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Charge, Operation, Quota, Store, StoreError, Timestamp};

use crate::answer::Answer;
use crate::timeline::{Step, Timeline};

/// Replays `timeline` on `store` and compares every answer to the microsecond.
///
/// The store must decide by the `now` that it is given, not by a clock of its own, and find no
/// other clock's time under the key.
///
/// # Errors
///
/// [`Failure::Difference`] at the first answer that is not exact, [`Failure::Unsupported`] if the
/// timeline's algorithm is not known, [`Failure::Store`] if the store failed to answer. The bucket
/// is reset in any case.
///
/// # Cancel safety
///
/// If the future is dropped, the run's bucket may be left in the store.
pub async fn replay<S: Store>(store: &S, timeline: &Timeline) -> Result<(), Failure> {
    let Some(quota) = timeline.quota() else {
        return Err(Failure::Unsupported { algorithm: timeline.algorithm().to_owned() });
    };
    let key = unique_key();
    let result = replay_at(store, timeline, *quota, &key).await;
    let reset = store.reset(&[&key]).await;
    // What was found out about the store's answers says more than that the key was left behind.
    result?;
    reset.map_err(|source| Failure::Store { step: None, source })
}

async fn replay_at<S: Store>(
    store: &S,
    timeline: &Timeline,
    mut quota: Quota,
    key: &str,
) -> Result<(), Failure> {
    for (index, step) in timeline.steps().iter().enumerate() {
        let (at, operation, ticket, cost, expect) = match *step {
            Step::SetQuota(changed) => {
                quota = changed;
                continue;
            }
            Step::Request { at, operation, ticket, cost, expect } => {
                (at, operation, ticket, cost, expect)
            }
        };
        let charge = Charge { ticket, ..Charge::new(key, &quota, cost) };
        let got = ask(store, operation, &charge, timeline.start().saturating_add(at))
            .await
            .map_err(|source| Failure::Store { step: Some(index), source })?;
        if let Some((field, expected, got)) = expect.first_difference(&got) {
            let difference = Difference { step: index, at, field, expected, got };
            return Err(Failure::Difference(difference));
        }
    }
    Ok(())
}

async fn ask<S: Store>(
    store: &S,
    operation: Operation,
    charge: &Charge<'_>,
    now: Timestamp,
) -> Result<Answer, StoreError> {
    let judges_cost =
        matches!(operation, Operation::Spend | Operation::Look | Operation::Reserve { .. });
    if judges_cost && !charge.quota.admits(charge.cost) {
        return Ok(Answer::Impossible);
    }
    let decisions = store.apply(operation, &[*charge], now).await?;
    match decisions.as_slice() {
        [decision] => Ok(Answer::from(*decision)),
        other => Err(StoreError::invalid(format!(
            "the store gave {} decisions on 1 charge: give one for each",
            other.len()
        ))),
    }
}

/// Makes a key that no other run uses, in this process or another one.
fn unique_key() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    // The standard library seeds every hasher from the system's randomness.
    format!("conformance:{:016x}-{run}", RandomState::new().hash_one(run))
}

/// Why a store did not reproduce a timeline.
///
/// The text is one line, as `tollgate-conformance` prints it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The store answered, but not exactly.
    Difference(Difference),
    /// The timeline is about an algorithm that this version does not know.
    Unsupported {
        /// The algorithm as the file names it.
        algorithm: String,
    },
    /// The store failed to answer.
    Store {
        /// The index of the step, or `None` if the reset at the end failed.
        step: Option<usize>,
        /// The store's own error.
        source: StoreError,
    },
}

/// The first answer that was not exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The index of the step in the timeline, from 0.
    pub step: usize,
    /// The time of the step since the timeline's start.
    pub at: Duration,
    /// The field of the answer, as files name it.
    pub field: &'static str,
    /// What the timeline expects in it.
    pub expected: String,
    /// What the store answered.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, at, field, expected, got } = self;
        write!(f, "step {step} at {}us: {field} expected {expected}, got {got}", at.as_micros())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Difference(difference) => difference.fmt(f),
            Self::Unsupported { algorithm } => write!(f, "unsupported ({algorithm})"),
            Self::Store { step: Some(step), source } => {
                write!(f, "step {step}: the store failed: {source}")
            }
            Self::Store { step: None, source } => write!(f, "the reset failed: {source}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store { source, .. } => Some(source),
            Self::Difference(_) | Self::Unsupported { .. } => None,
        }
    }
}
