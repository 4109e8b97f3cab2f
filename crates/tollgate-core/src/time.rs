//! Instants as integer microseconds.

use std::fmt;
use std::time::Duration;

/// An instant in whole microseconds since the Unix epoch.
///
/// The range is `0 ..= 2^53 - 1` (the year 2255), because the Lua scripts hold instants in
/// doubles. Every constructor clamps to it, so arithmetic on a `Timestamp` cannot overflow.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Timestamp;
///
/// let start = Timestamp::from_micros(1_700_000_000_000_000);
/// let later = start.saturating_add(Duration::from_millis(250));
/// assert_eq!(later.as_micros(), 1_700_000_000_250_000);
/// assert_eq!(later.saturating_since(start), Duration::from_millis(250));
/// assert_eq!(start.saturating_since(later), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// The last instant that can be represented, in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Makes the instant that is `micros` microseconds after the Unix epoch, at most [`MAX`](Self::MAX).
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the instant that is `duration` later, at most [`MAX`](Self::MAX). A part of a
    /// microsecond is dropped.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Returns the instant that is `duration` earlier, at least [`EPOCH`](Self::EPOCH). A part of a
    /// microsecond is dropped.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is the later one.
    #[inline]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// `now` as a stored instant makes it appear: the rules for clocks that step back (G4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    /// The instant at which units are counted: the stored one while it holds, else `now`.
    pub(crate) effective: Timestamp,
    /// Whether the stored instant lies so far ahead that it must be moved to `now`.
    pub(crate) repaired: bool,
}

impl Moment {
    pub(crate) const fn at(now: Timestamp) -> Self {
        Self { now, effective: now, repaired: false }
    }

    pub(crate) fn new(stored: Timestamp, max_clock_skew: Duration, now: Timestamp) -> Self {
        if now >= stored {
            return Self::at(now);
        }
        let repaired = stored.saturating_since(now) > max_clock_skew;
        Self { now, effective: if repaired { now } else { stored }, repaired }
    }

    /// The time from `now` until the instant `micros`.
    pub(crate) const fn until_micros(&self, micros: u64) -> Duration {
        Duration::from_micros(micros.saturating_sub(self.now.as_micros()))
    }
}
