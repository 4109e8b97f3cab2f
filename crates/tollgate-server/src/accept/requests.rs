//! The requests of all connections of one listener.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

/// How often it is logged at most that requests are refused.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the requests that have arrived and whose answers have not been sent in full, so that neither
/// those that wait nor answers that nobody takes can be without number.
#[derive(Debug)]
pub(super) struct Requests {
    in_flight: AtomicUsize,
    /// Those of them that may wait for what others give back.
    waiting: AtomicUsize,
    in_flight_max: usize,
    refused: Counter,
    warned: Mutex<Option<Instant>>,
}

impl Requests {
    pub(super) fn new(in_flight_max: usize, refused: Counter) -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            in_flight_max,
            refused,
            warned: Mutex::new(None),
        }
    }

    /// Counts one more, until [`end`](Self::end), and tells whether that is one too many. Those that
    /// wait for others may be half of all, so that they keep nobody out.
    pub(super) fn begin(&self, awaits_others: bool) -> bool {
        let mut is_one_too_many = Self::add(&self.in_flight) > self.in_flight_max;
        if awaits_others {
            is_one_too_many |= Self::add(&self.waiting) > self.in_flight_max.div_ceil(2);
        }
        if is_one_too_many {
            self.note_refused();
        }
        is_one_too_many
    }

    pub(super) fn end(&self, awaits_others: bool) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if awaits_others {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn add(count: &AtomicUsize) -> usize {
        count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how many were one too many by now.
    pub(super) fn refused(&self) -> u64 {
        self.refused.get()
    }

    #[cold]
    fn note_refused(&self) {
        self.refused.inc();
        let Ok(mut warned) = self.warned.try_lock() else { return };
        let now = Instant::now();
        if warned.is_none_or(|last| now - last >= WARNING_INTERVAL) {
            *warned = Some(now);
            tracing::warn!(
                in_flight_max = self.in_flight_max,
                "too many requests are not answered in full, further ones are refused: their clients \
                 wait, or do not take their answers"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_requests_may_wait_for_others_and_the_rest_stays_for_those_that_do_not() {
        let requests = Requests::new(4, Counter::default());
        assert!(!requests.begin(true));
        assert!(!requests.begin(true));
        assert!(requests.begin(true));
        requests.end(true);
        assert!(!requests.begin(false));
        assert!(!requests.begin(false));
        assert!(requests.begin(false));
        requests.end(false);
        requests.end(true);
        assert!(!requests.begin(false));
        assert_eq!(requests.refused(), 2);
    }
}
