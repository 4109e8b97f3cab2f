//! Where a limiter reads the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tollgate_core::Timestamp;

/// A source of the current time.
///
/// A clock may step back; the algorithms repair that (G4).
pub trait Clock: Send + Sync + 'static {
    /// Returns the current instant.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::EPOCH.saturating_add(since_epoch.unwrap_or(Duration::ZERO))
    }
}

/// A clock that moves only when told to, for tests and examples. Clones share the time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let start = clock.now();
/// clock.clone().advance(Duration::from_millis(1_500));
/// assert_eq!(clock.now().saturating_since(start), Duration::from_millis(1_500));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// Makes a clock that stands at 2023-11-14 22:13:20 UTC, 1,700,000,000 s after the epoch.
    pub fn new() -> Self {
        Self { micros: Arc::new(AtomicU64::new(1_700_000_000_000_000)) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        self.set(self.now().saturating_add(duration));
    }

    /// Moves the clock to `now`, which may be in its past.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}
