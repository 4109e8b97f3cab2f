//! Whether the store answers, and what is logged about it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Decision, Operation, StoreError, StoreErrorKind, Timestamp};

/// How often a failure that concerns single keys is logged at most.
const KEY_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// What the last answers of the store tell of it.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// How the store as a whole fails, if it does.
    failure: Mutex<Option<StoreErrorKind>>,
    /// When a failure of a single key was last logged, in microseconds, 0 for never.
    key_warned_us: AtomicU64,
    /// How many such failures have not been logged since.
    key_failures: AtomicU64,
}

impl Health {
    pub(crate) fn failure(&self) -> Option<StoreErrorKind> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the store answered. Logs it if it had failed.
    ///
    /// A store that refuses to write still answers what writes nothing, so only a write shows that
    /// it accepts them again.
    pub(crate) fn note_answer(&self, store: &str, operation: Operation, decisions: &[Decision]) {
        let Some(failure) = self.failure() else { return };
        let wrote = operation != Operation::Look && decisions.iter().any(Decision::is_allow);
        if failure == StoreErrorKind::Refused && !wrote {
            return;
        }
        if self.failure.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!(store, "store answers again, decisions are exact");
        }
    }

    /// Notes that the store failed. Logs the change, and failures of single keys now and then;
    /// never each of them.
    pub(crate) fn note_failure(&self, store: &str, error: &StoreError, now: Timestamp) {
        match error.kind() {
            StoreErrorKind::Invalid => {}
            StoreErrorKind::Corrupt | StoreErrorKind::Full => {
                self.note_key_failure(store, error, now);
            }
            kind => {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                if failure.replace(kind).is_none() {
                    tracing::warn!(store, kind = kind.as_str(), %error,
                        "store does not answer, rules decide by their policy");
                }
            }
        }
    }

    fn note_key_failure(&self, store: &str, error: &StoreError, now: Timestamp) {
        self.key_failures.fetch_add(1, Ordering::Relaxed);
        let last_us = self.key_warned_us.load(Ordering::Relaxed);
        let last = Timestamp::from_micros(last_us);
        // A clock that went back must not silence the warnings until it has caught up.
        let is_due =
            last_us == 0 || now < last || now.saturating_since(last) >= KEY_WARNING_INTERVAL;
        let us = &self.key_warned_us;
        let is_mine = is_due
            && us
                .compare_exchange(
                    last_us,
                    now.as_micros().max(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if is_mine {
            let failures = self.key_failures.swap(0, Ordering::Relaxed);
            tracing::warn!(store, kind = error.kind().as_str(), failures, %error,
                "store failed for single keys, rules decide by their policy");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "told by a test")
    }

    fn allow() -> Decision {
        Decision::Allow(tollgate_core::Allow {
            limit: 1,
            remaining: 0,
            reset_after: Duration::ZERO,
            delay: Duration::ZERO,
        })
    }

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    #[test]
    fn a_store_that_refuses_fails_until_it_accepts_a_write() {
        let health = Health::default();
        health.note_failure("redis", &error(StoreErrorKind::Refused), NOW);
        assert_eq!(health.failure(), Some(StoreErrorKind::Refused));
        health.note_answer("redis", Operation::Look, &[allow()]);
        assert_eq!(health.failure(), Some(StoreErrorKind::Refused));
        health.note_answer("redis", Operation::Spend, &[allow()]);
        assert_eq!(health.failure(), None);
    }

    #[test]
    fn any_answer_ends_a_silence() {
        let health = Health::default();
        health.note_failure("redis", &error(StoreErrorKind::Timeout), NOW);
        health.note_answer("redis", Operation::Look, &[allow()]);
        assert_eq!(health.failure(), None);
    }

    #[test]
    fn failures_of_single_keys_say_nothing_about_the_store_and_are_logged_now_and_then() {
        let health = Health::default();
        for kind in [StoreErrorKind::Corrupt, StoreErrorKind::Full, StoreErrorKind::Invalid] {
            health.note_failure("redis", &error(kind), NOW);
            assert_eq!(health.failure(), None);
        }
        assert_eq!(health.key_failures.load(Ordering::Relaxed), 1);
        let later = NOW.saturating_add(KEY_WARNING_INTERVAL);
        health.note_failure("redis", &error(StoreErrorKind::Full), later);
        assert_eq!(health.key_failures.load(Ordering::Relaxed), 0);
        health.note_failure("redis", &error(StoreErrorKind::Full), NOW);
        assert_eq!(health.key_failures.load(Ordering::Relaxed), 0);
    }
}
