//! What a store counts about itself.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a [`RedisStore`](crate::RedisStore) tells of its connections and of its calls.
///
/// The counts begin at 0 when the store is made and only grow. They are read one after the other, so
/// that they may be of slightly different instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisStatus {
    /// How many servers are known that calls go to: one, or the nodes of a cluster that serve keys.
    pub servers: usize,
    /// How many connections to them are established now.
    pub connections: usize,
    /// How many calls are under way now.
    pub in_flight: usize,
    /// How often a connection was established in the place of one that had ended.
    pub reconnects: u64,
    /// How many connections were given up because several calls in a row had no answer.
    pub connections_replaced: u64,
    /// How often a server had forgotten the script, or the library, and was sent its text.
    pub script_reloads: u64,
    /// How many calls had no answer within their deadline.
    pub timeouts: u64,
    /// How many calls were sent once more, because the first try was certainly not executed.
    pub retries: u64,
    /// How often a node of a cluster sent a call on to another one.
    pub redirects: u64,
    /// How often another server took the place of the primary that Sentinel names.
    pub failovers: u64,
    /// How long ago a server last answered a call as it should; `None` if none has.
    pub last_answer: Option<Duration>,
}

/// The counts, which all parts of a store add to.
#[derive(Debug)]
pub(crate) struct Counters {
    made: Instant,
    in_flight: AtomicUsize,
    pub(crate) reconnects: AtomicU64,
    pub(crate) connections_replaced: AtomicU64,
    pub(crate) script_reloads: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) redirects: AtomicU64,
    pub(crate) failovers: AtomicU64,
    /// Microseconds after `made`; 0 before the first answer.
    last_answer_us: AtomicU64,
}

/// One more, for a count that guards no other memory.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            made: Instant::now(),
            in_flight: AtomicUsize::new(0),
            reconnects: AtomicU64::new(0),
            connections_replaced: AtomicU64::new(0),
            script_reloads: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            redirects: AtomicU64::new(0),
            failovers: AtomicU64::new(0),
            last_answer_us: AtomicU64::new(0),
        }
    }

    pub(crate) fn answered(&self) {
        self.last_answer_us.store(self.now_us(), Ordering::Relaxed);
    }

    /// Counts a call as under way until the guard is dropped, unless `most` are.
    pub(crate) fn enter(&self, most: usize) -> Option<InFlight<'_>> {
        // Made before the test, so that the count goes down again where it fails.
        let entered = InFlight(&self.in_flight);
        (self.in_flight.fetch_add(1, Ordering::Relaxed) < most).then_some(entered)
    }

    pub(crate) fn status(&self, servers: usize, connections: usize) -> RedisStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let last_answer = match read(&self.last_answer_us) {
            0 => None,
            at => Some(Duration::from_micros(self.now_us().saturating_sub(at))),
        };
        RedisStatus {
            servers,
            connections,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            reconnects: read(&self.reconnects),
            connections_replaced: read(&self.connections_replaced),
            script_reloads: read(&self.script_reloads),
            timeouts: read(&self.timeouts),
            retries: read(&self.retries),
            redirects: read(&self.redirects),
            failovers: read(&self.failovers),
            last_answer,
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }
}

/// A call that is under way.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_calls_are_under_way_than_may_be() {
        let counters = Counters::new();
        let first = counters.enter(2).unwrap();
        let _second = counters.enter(2).unwrap();
        assert!(counters.enter(2).is_none());
        assert_eq!(counters.status(1, 1).in_flight, 2);
        drop(first);
        assert_eq!(counters.status(1, 1).in_flight, 1);
        assert!(counters.enter(2).is_some());
    }

    #[test]
    fn the_last_answer_is_unknown_until_there_is_one() {
        let counters = Counters::new();
        assert_eq!(counters.status(1, 0).last_answer, None);
        counters.answered();
        assert!(counters.status(1, 0).last_answer.unwrap() < Duration::from_secs(5));
    }
}
