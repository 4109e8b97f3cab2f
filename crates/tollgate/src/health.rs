//! Whether the store answers, whether it is asked, and what is logged about it.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{
    Breaker, BreakerSettings, Decision, Operation, StoreError, StoreErrorKind, Timestamp,
};

use crate::status::StatusChange;
use crate::store_parts::StoreParts;

/// How often a failure that concerns single keys, or a store that fails now and then, is logged at
/// most.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// How many changes are remembered for operators.
const CHANGES_MAX: usize = 32;

/// What the last answers of the store tell of it.
#[derive(Debug)]
pub(crate) struct Health {
    /// The word for the store in the log.
    store: &'static str,
    settings: BreakerSettings,
    started: Instant,
    /// The parts of the store that are not asked. The breakers' state, read by every request.
    open: AtomicU64,
    /// Whether the store as a whole fails. The failure's state, read by every answer.
    failing: AtomicBool,
    state: Mutex<State>,
    /// When the store last answered, in microseconds after `started`; 0 for never.
    last_answer_us: AtomicU64,
    openings: AtomicU64,
    key_warnings: Warnings,
    failure_warnings: Warnings,
}

#[derive(Debug)]
struct State {
    /// One for each part of the store.
    breakers: Vec<Breaker>,
    /// How the store as a whole fails, if it does.
    failure: Option<Failure>,
    /// When the first breaker opened of those that are open.
    opened: Option<Instant>,
    /// The last changes, the oldest first.
    changes: VecDeque<(Instant, StatusChange)>,
}

impl State {
    fn note_answer(&mut self, asked: StoreParts, now: Timestamp) {
        for part in asked.iter() {
            if let Some(breaker) = self.breakers.get_mut(part) {
                breaker.answered(now);
            }
        }
    }

    fn note(&mut self, change: StatusChange) {
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((Instant::now(), change));
    }
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    kind: StoreErrorKind,
    /// Whether the log tells of it, so that it tells of its end too.
    logged: bool,
}

/// What is logged now and then only.
#[derive(Debug, Default)]
struct Warnings {
    /// When one was last logged, in microseconds after the start, plus 1; 0 for never.
    last_us: AtomicU64,
    /// How many have not been logged since.
    held_back: AtomicU64,
}

impl Warnings {
    /// Counts one, and tells how many are to be logged as one now, if any.
    fn due(&self, now_us: u64) -> Option<u64> {
        // Ordering: these guard no other memory; a race logs one line more or fewer.
        self.held_back.fetch_add(1, Ordering::Relaxed);
        let last_us = self.last_us.load(Ordering::Relaxed);
        let interval_us = WARNING_INTERVAL.as_micros();
        if last_us != 0 && u128::from(now_us.saturating_sub(last_us - 1)) < interval_us {
            return None;
        }
        let next_us = now_us.saturating_add(1);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        self.last_us.compare_exchange(last_us, next_us, success, failure).ok()?;
        Some(self.held_back.swap(0, Ordering::Relaxed))
    }
}

impl Health {
    /// Makes the health of a store of so many parts.
    pub(crate) fn new(store: &'static str, parts: usize, settings: BreakerSettings) -> Self {
        let state = State {
            breakers: vec![Breaker::new(settings); parts],
            failure: None,
            opened: None,
            changes: VecDeque::new(),
        };
        Self {
            store,
            settings,
            started: Instant::now(),
            open: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            state: Mutex::new(state),
            last_answer_us: AtomicU64::new(0),
            openings: AtomicU64::new(0),
            key_warnings: Warnings::default(),
            failure_warnings: Warnings::default(),
        }
    }

    /// Returns how the store as a whole fails, if it does.
    pub(crate) fn failure(&self) -> Option<StoreErrorKind> {
        self.state().failure.map(|failure| failure.kind)
    }

    /// Returns the parts of the store that are not asked since they failed too often.
    pub(crate) fn open(&self) -> StoreParts {
        // Ordering: a request that misses the change asks once more.
        StoreParts(self.open.load(Ordering::Relaxed))
    }

    /// Returns the error of a request that does not ask the store.
    pub(crate) fn not_asked(&self) -> StoreError {
        let kind = self.failure().unwrap_or(StoreErrorKind::Unavailable);
        StoreError::new(
            kind,
            format!("the {} store failed too often and is not asked until it answers", self.store),
        )
    }

    /// Returns how long the store has not been asked, if it is not.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        self.state().opened.map(|opened| opened.elapsed())
    }

    /// Returns how often the breaker has opened.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// Returns the time since the store last answered, if it ever did.
    pub(crate) fn since_answer(&self) -> Option<Duration> {
        match self.last_answer_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(self.started.elapsed().saturating_sub(Duration::from_micros(us))),
        }
    }

    /// Returns when a breaker opens and how often is probed.
    pub(crate) const fn settings(&self) -> &BreakerSettings {
        &self.settings
    }

    /// Returns the last changes with the time since each, the oldest first.
    pub(crate) fn changes(&self) -> Vec<(Duration, StatusChange)> {
        let state = self.state();
        state.changes.iter().map(|(at, change)| (at.elapsed(), *change)).collect()
    }

    /// Remembers that another number of nodes is alive.
    pub(crate) fn note_nodes(&self, nodes: NonZeroU32) {
        self.state().note(StatusChange::Nodes(nodes));
        tracing::info!(nodes, "number of live nodes changed, local shares follow");
    }

    /// Notes that the store answered something that no check depends on.
    pub(crate) fn note_sign_of_life(&self) {
        self.last_answer_us.store(self.now_us().max(1), Ordering::Relaxed);
    }

    /// Notes that the store answered. Logs it if it had failed.
    ///
    /// A store that refuses to write still answers what writes nothing, so only a write shows that
    /// it accepts them again.
    pub(crate) fn note_answer(
        &self,
        asked: StoreParts,
        operation: Operation,
        decisions: &[Decision],
    ) {
        let now_us = self.now_us();
        self.last_answer_us.store(now_us.max(1), Ordering::Relaxed);
        let wrote = operation != Operation::Look && decisions.iter().any(Decision::is_allow);
        let mut state = self.state();
        state.note_answer(asked, Timestamp::from_micros(now_us));
        // While a part is not asked, only a probe tells that it is well.
        if !self.open().is_empty() || !self.failing.load(Ordering::Relaxed) {
            return;
        }
        let ended = state.failure.take_if(|one| one.kind != StoreErrorKind::Refused || wrote);
        let Some(failure) = ended else { return };
        self.failing.store(false, Ordering::Relaxed);
        if failure.logged {
            state.note(StatusChange::Answers);
            tracing::info!(store = self.store, "store answers again, decisions are exact");
        }
    }

    /// Notes that the store failed, and tells whether that opened the breaker. Logs the change, and
    /// failures of single keys now and then; never each of them.
    pub(crate) fn note_failure(&self, asked: StoreParts, error: &StoreError) -> bool {
        match error.kind() {
            StoreErrorKind::Invalid => false,
            kind @ (StoreErrorKind::Corrupt | StoreErrorKind::Full) => {
                // The store is well.
                self.note_sign_of_life();
                self.state().note_answer(asked, self.now());
                if let Some(failures) = self.key_warnings.due(self.now_us()) {
                    tracing::warn!(store = self.store, kind = kind.as_str(), failures, %error,
                        "store failed for single keys, rules decide by their policy");
                }
                false
            }
            kind => self.note_failure_of_all(asked, kind, error),
        }
    }

    fn note_failure_of_all(
        &self,
        asked: StoreParts,
        kind: StoreErrorKind,
        error: &StoreError,
    ) -> bool {
        let mut state = self.state();
        let mut logged = state.failure.is_some_and(|failure| failure.logged);
        // One that fails now and then must not fill the log.
        if state.failure.is_none()
            && let Some(failures) = self.failure_warnings.due(self.now_us())
        {
            logged = true;
            state.note(StatusChange::Fails(kind));
            tracing::warn!(store = self.store, kind = kind.as_str(), failures, %error,
                "store does not answer, rules decide by their policy");
        }
        state.failure = Some(Failure { kind, logged });
        self.failing.store(true, Ordering::Relaxed);
        let now = self.now();
        let opened: StoreParts = asked
            .iter()
            .filter(|part| state.breakers.get_mut(*part).is_some_and(|one| one.failed(now)))
            .map(StoreParts::one)
            .collect();
        if opened.is_empty() {
            return false;
        }
        let before = self.open.fetch_or(opened.0, Ordering::Relaxed);
        if before == 0 {
            state.opened = Some(Instant::now());
            self.openings.fetch_add(1, Ordering::Relaxed);
            state.note(StatusChange::BreakerOpened(kind));
            tracing::warn!(store = self.store, kind = kind.as_str(), %error,
                "breaker opened, the store is not asked until a probe succeeds");
        }
        true
    }

    /// Has parts of the store asked again, after probes succeeded.
    pub(crate) fn close(&self, parts: StoreParts) {
        let mut state = self.state();
        for part in parts.iter() {
            if let Some(breaker) = state.breakers.get_mut(part) {
                breaker.close();
            }
        }
        let before = StoreParts(self.open.fetch_and(!parts.0, Ordering::Relaxed));
        if before.is_empty() || !(before - parts).is_empty() {
            return;
        }
        state.failure = None;
        self.failing.store(false, Ordering::Relaxed);
        state.note(StatusChange::BreakerClosed);
        let open_ms = state.opened.take().map_or(0, |opened| millis(opened.elapsed()));
        tracing::info!(
            store = self.store,
            open_ms,
            "breaker closed, store answers again, decisions are exact"
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The time of the breaker, which does not go back.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now_us())
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "told by a test")
    }

    const ALL: StoreParts = StoreParts(1);

    fn health() -> Health {
        Health::new("redis", 64, BreakerSettings::default())
    }

    fn allow() -> Decision {
        Decision::Allow(tollgate_core::Allow {
            limit: 1,
            remaining: 0,
            reset_after: Duration::ZERO,
            delay: Duration::ZERO,
        })
    }

    #[test]
    fn a_store_that_refuses_fails_until_it_accepts_a_write() {
        let health = health();
        health.note_failure(ALL, &error(StoreErrorKind::Refused));
        assert_eq!(health.failure(), Some(StoreErrorKind::Refused));
        health.note_answer(ALL, Operation::Look, &[allow()]);
        assert_eq!(health.failure(), Some(StoreErrorKind::Refused));
        health.note_answer(ALL, Operation::Spend, &[allow()]);
        assert_eq!(health.failure(), None);
    }

    #[test]
    fn any_answer_ends_a_silence() {
        let health = health();
        assert_eq!(health.since_answer(), None);
        health.note_failure(ALL, &error(StoreErrorKind::Timeout));
        health.note_answer(ALL, Operation::Look, &[allow()]);
        assert_eq!(health.failure(), None);
        assert!(health.since_answer().is_some());
    }

    #[test]
    fn ten_failures_in_a_row_open_the_breaker_and_only_a_probe_closes_it() {
        let health = health();
        let opened = (0..10).map(|_| health.note_failure(ALL, &error(StoreErrorKind::Timeout)));
        assert_eq!(opened.filter(|opened| *opened).count(), 1);
        assert!(!health.open().is_empty() && health.open_for().is_some());
        assert_eq!((health.openings(), health.not_asked().kind()), (1, StoreErrorKind::Timeout));
        health.note_answer(ALL, Operation::Spend, &[allow()]);
        assert!(!health.open().is_empty(), "an answer to a call from before the opening");
        assert_eq!(health.failure(), Some(StoreErrorKind::Timeout));
        health.close(ALL);
        let changes: Vec<StatusChange> =
            health.changes().into_iter().map(|(_, change)| change).collect();
        let kind = StoreErrorKind::Timeout;
        assert_eq!(
            changes,
            [
                StatusChange::Fails(kind),
                StatusChange::BreakerOpened(kind),
                StatusChange::BreakerClosed
            ]
        );
        assert!(health.open().is_empty());
        assert_eq!((health.failure(), health.open_for()), (None, None));
    }

    #[test]
    fn the_parts_of_a_cluster_fail_apart_and_are_told_as_one() {
        let (health, kind) = (health(), StoreErrorKind::Unavailable);
        let (two, other) = (StoreParts(0b110), StoreParts::one(63));
        for _ in 0..10 {
            health.note_failure(two, &error(kind));
            health.note_answer(other, Operation::Spend, &[allow()]);
        }
        assert_eq!((health.open(), health.openings()), (two, 1));
        for _ in 0..10 {
            health.note_failure(other, &error(kind));
        }
        assert_eq!((health.open(), health.openings()), (two | other, 1));
        health.close(two);
        assert_eq!((health.open(), health.failure()), (other, Some(kind)));
        health.close(other);
        assert_eq!(
            (health.open(), health.failure(), health.open_for()),
            (StoreParts(0), None, None)
        );
        let told = health.changes().into_iter().map(|(_, change)| change.as_str());
        assert_eq!(
            told.collect::<Vec<_>>(),
            ["fails", "answers", "breaker_opened", "breaker_closed"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_single_keys_say_nothing_about_the_store_and_are_logged_now_and_then() {
        let health = health();
        for kind in [StoreErrorKind::Corrupt, StoreErrorKind::Full, StoreErrorKind::Invalid] {
            for _ in 0..20 {
                assert!(!health.note_failure(ALL, &error(kind)));
            }
            assert_eq!((health.failure(), !health.open().is_empty()), (None, false));
        }
        assert_eq!(health.key_warnings.due(health.now_us()), None);
        tokio::time::advance(WARNING_INTERVAL).await;
        assert_eq!(health.key_warnings.due(health.now_us()), Some(41), "39, and the two asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_now_and_then_is_logged_now_and_then() {
        let health = health();
        for _ in 0..50 {
            health.note_failure(ALL, &error(StoreErrorKind::Timeout));
            health.note_answer(ALL, Operation::Spend, &[allow()]);
        }
        assert_eq!(health.failure_warnings.held_back.load(Ordering::Relaxed), 49);
        tokio::time::advance(WARNING_INTERVAL).await;
        health.note_failure(ALL, &error(StoreErrorKind::Timeout));
        assert_eq!(health.failure_warnings.held_back.load(Ordering::Relaxed), 0);
    }
}
