//! Whether a connection still leads anywhere.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many calls in a row may have no answer before the connection is replaced.
const UNANSWERED_MAX: u32 = 5;

/// How long nothing must have come by then, so that many calls at once do not replace a connection
/// to a server that only paused.
const SILENCE_MIN: Duration = Duration::from_millis(250);

/// What is known of a connection.
#[derive(Debug)]
pub(crate) struct Health {
    established: Instant,
    ended: AtomicBool,
    end: Notify,
    /// Microseconds after `established` at which something last came.
    heard_us: AtomicU64,
    row: Mutex<Row>,
}

/// Calls without an answer, while nothing came at all.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    calls: u32,
    began_us: u64,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            established: Instant::now(),
            ended: AtomicBool::new(false),
            end: Notify::new(),
            heard_us: AtomicU64::new(0),
            row: Mutex::default(),
        }
    }

    pub(crate) fn age(&self) -> Duration {
        self.established.elapsed()
    }

    /// Notes that something came. A hint that guards no other memory, as the others here.
    pub(crate) fn heard(&self) {
        self.heard_us.store(self.micros(Instant::now()), Ordering::Relaxed);
    }

    /// Notes that a call sent at `sent` has no answer by `now`, and tells whether the connection is
    /// to be given up.
    pub(crate) fn is_given_up(&self, sent: Instant, now: Instant) -> bool {
        let (sent_us, now_us) = (self.micros(sent), self.micros(now));
        let heard_us = self.heard_us.load(Ordering::Relaxed);
        let mut row = self.row.lock();
        if row.calls == 0 || heard_us > row.began_us {
            *row = Row { calls: 0, began_us: sent_us };
        }
        if heard_us > sent_us {
            // The server is slow, but it is there.
            return false;
        }
        row.calls += 1;
        let silence = Duration::from_micros(now_us.saturating_sub(row.began_us));
        row.calls >= UNANSWERED_MAX && silence >= SILENCE_MIN
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Marks the connection as unusable, for whoever looks after it.
    pub(crate) fn finish(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Waits until the connection is unusable. One may wait.
    pub(crate) async fn finished(&self) {
        self.end.notified().await;
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.established);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(50);

    /// Has a call that was sent `at_ms` after the start time out.
    fn times_out(health: &Health, at_ms: u64) -> bool {
        let sent = health.established + Duration::from_millis(at_ms);
        health.is_given_up(sent, sent + TIMEOUT)
    }

    fn hear(health: &Health, at_ms: u64) {
        health.heard_us.store(at_ms * 1_000, Ordering::Relaxed);
    }

    #[test]
    fn five_calls_in_a_row_without_any_sign_give_a_connection_up() {
        let health = Health::new();
        let given_up = [100, 150, 200, 250, 300].map(|at_ms| times_out(&health, at_ms));
        assert_eq!(given_up, [false, false, false, false, true]);
    }

    #[test]
    fn many_calls_at_once_do_not() {
        let health = Health::new();
        assert!((0..1_000).all(|_| !times_out(&health, 100)));
        assert!((0..1_000).all(|_| !times_out(&health, 299)));
        assert!(times_out(&health, 300));
    }

    #[test]
    fn a_late_answer_begins_a_new_row() {
        let health = Health::new();
        assert!([100, 150, 200, 250].iter().all(|at_ms| !times_out(&health, *at_ms)));
        // It came while the next call waited: slow, but there.
        hear(&health, 320);
        assert!(!times_out(&health, 300));
        let given_up = [350, 400, 450, 500, 550].map(|at_ms| times_out(&health, at_ms));
        assert_eq!(given_up, [false, false, false, false, true]);
    }
}
