//! Which calls of the store a piece of work waits for.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_core::{Operation, StoreError, StoreErrorKind};

/// The most calls that are noted: one who waits for units may ask again many times.
const CALLS_MAX: usize = 32;

tokio::task_local! {
    static OBSERVED: StoreCalls;
}

/// Notes the calls of the store that a piece of work waits for, for whoever traces it.
///
/// Calls of stores over the network and of an application's own store are noted; those of a store in
/// memory take no time. Work that nobody observes pays one look at a thread-local for each call.
/// Clones share what was noted.
///
/// # Examples
///
/// ```
/// use tollgate::{Attributes, Limiter, Quota, Rule, StoreCalls};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("all", Quota::from_rate("20/min".parse()?)?);
/// let limiter = Limiter::builder().rule(rule).build()?;
/// let calls = StoreCalls::new();
/// assert!(calls.observe(limiter.check(&Attributes::new())).await?.is_allowed());
/// assert_eq!(calls.take().len(), 0, "the buckets are in memory");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct StoreCalls {
    noted: Arc<Mutex<Vec<StoreCall>>>,
}

/// One call of a store, as the one who waited for it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCall {
    /// What the store was asked to do: `spend`, `look`, `refund`, `renew`, `release`, `reserve`,
    /// `settle`, `take` or `reset`.
    pub operation: &'static str,
    /// When it was asked.
    pub started: Instant,
    /// How long was waited. Calls of one moment go to Redis together, so this is not the time of a
    /// command of its own.
    pub took: Duration,
    /// How it ended.
    pub end: StoreCallEnd,
}

/// How a call of a store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreCallEnd {
    /// By an answer.
    Answered,
    /// By a failure.
    Failed(StoreErrorKind),
    /// Whoever waited for it went away.
    GivenUp,
}

impl StoreCalls {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does `work`, and notes the calls that it waits for, the first 32 of them. Work that it leaves
    /// to other tasks is not observed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, so is `work`; a call that was under way is noted as given up.
    pub async fn observe<W: Future>(&self, work: W) -> W::Output {
        OBSERVED.scope(self.clone(), work).await
    }

    /// Takes what was noted, in the order in which the calls ended.
    pub fn take(&self) -> Vec<StoreCall> {
        std::mem::take(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, call: StoreCall) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < CALLS_MAX {
            noted.push(call);
        }
    }
}

/// A call that is under way, noted when this is dropped.
pub(crate) struct UnderWay {
    calls: StoreCalls,
    operation: &'static str,
    started: Instant,
    end: StoreCallEnd,
}

impl UnderWay {
    /// Begins to note a call, if somebody observes.
    pub(crate) fn begin(operation: &'static str) -> Option<Self> {
        let calls = OBSERVED.try_with(Clone::clone).ok()?;
        let (started, end) = (Instant::now(), StoreCallEnd::GivenUp);
        Some(Self { calls, operation, started, end })
    }

    /// Notes how it ended.
    pub(crate) fn end<T>(mut self, answer: &Result<T, StoreError>) {
        self.end = match answer {
            Ok(_) => StoreCallEnd::Answered,
            Err(error) => StoreCallEnd::Failed(error.kind()),
        };
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (operation, started, end) = (self.operation, self.started, self.end);
        self.calls.note(StoreCall { operation, started, took: started.elapsed(), end });
    }
}

/// Has work observed in another task as it would be in this one.
pub(crate) fn inherited<W: Future>(work: W) -> impl Future<Output = W::Output> {
    let calls = OBSERVED.try_with(Clone::clone).ok();
    async move {
        match calls {
            Some(calls) => calls.observe(work).await,
            None => work.await,
        }
    }
}

/// Names an operation.
pub(crate) const fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Spend => "spend",
        Operation::Look => "look",
        Operation::Refund => "refund",
        Operation::Renew => "renew",
        Operation::Release => "release",
        Operation::Reserve { .. } => "reserve",
        Operation::Settle => "settle",
        Operation::Take => "take",
        _ => "other",
    }
}
