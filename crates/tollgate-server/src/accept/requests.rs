//! The requests of all connections of one listener.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests that have arrived and whose answers have not been sent in full, so that neither
/// those that wait nor answers that nobody takes can be without number.
#[derive(Debug)]
pub(super) struct Requests {
    in_flight: AtomicUsize,
    in_flight_max: usize,
}

impl Requests {
    pub(super) const fn new(in_flight_max: usize) -> Self {
        Self { in_flight: AtomicUsize::new(0), in_flight_max }
    }

    /// Counts one more, until [`end`](Self::end), and tells whether that is one too many.
    pub(super) fn begin(&self) -> bool {
        self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.in_flight_max
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
