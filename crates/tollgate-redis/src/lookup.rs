//! A question that many have and one asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{ErrorKind, RedisError};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::transport::Failure;

/// The least time between two looks, however many calls want one.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) type Outcome = Option<Result<(), RedisError>>;

/// What becomes of a look that is under way.
pub(crate) type Awaited = watch::Receiver<Outcome>;

/// Has one task look who serves what, for all who want to know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    under_way: Option<(Instant, Awaited)>,
    finished: Option<(Instant, Result<(), RedisError>)>,
}

impl Lookup {
    /// Joins the look that is under way, or starts one in the background.
    pub(crate) fn begin<F>(&self, look: impl FnOnce() -> F) -> Awaited
    where
        F: Future<Output = Result<(), RedisError>> + Send + 'static,
    {
        let mut state = self.0.lock();
        if let Some((_, awaited)) = &state.under_way
            // A look whose runtime has ended closes its channel and would never be done.
            && awaited.has_changed().is_ok()
        {
            return awaited.clone();
        }
        let (sender, awaited) = watch::channel(None);
        state.under_way = Some((Instant::now(), awaited.clone()));
        let since = state.finished.as_ref().map_or(PAUSE, |(finished, _)| finished.elapsed());
        drop(state);
        let look = look();
        let lookup = self.clone();
        tokio::spawn(async move {
            sleep(PAUSE.saturating_sub(since)).await;
            let outcome = look.await;
            let finished = Some((Instant::now(), outcome.clone()));
            *lookup.0.lock() = State { under_way: None, finished };
            // Those who waited may have given up.
            let _ = sender.send(Some(outcome));
        });
        awaited
    }

    /// Fails unless the look that is under way can say something new before `patience` is over: as
    /// the last one failed, if it did, when that was just now or when the next takes long.
    pub(crate) fn fails_at_once(&self, patience: Duration) -> Result<(), Failure> {
        let state = self.0.lock();
        let is_slow = state.under_way.as_ref().is_some_and(|(began, _)| began.elapsed() > patience);
        match &state.finished {
            Some((finished, outcome)) if is_slow || finished.elapsed() < PAUSE => {
                Err(match outcome {
                    Ok(()) => Failure::NoConnection,
                    Err(error) => Failure::NotConnected(error.clone()),
                })
            }
            None if is_slow => Err(Failure::NoConnection),
            _ => Ok(()),
        }
    }
}

/// Waits for the end of a look.
pub(crate) async fn ended(mut awaited: Awaited) -> Result<(), RedisError> {
    let outcome = awaited.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
    outcome.unwrap_or_else(|| Err(RedisError::from((ErrorKind::Io, "the look was cancelled"))))
}
