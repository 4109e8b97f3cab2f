//! Which algorithm a quota is counted by.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

/// The algorithm that a quota is counted by.
///
/// What each guarantees, what it costs and when to choose it is on its module's page and, with
/// plots, in `docs/algorithms.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Refills steadily; see [`token_bucket`](crate::token_bucket).
    #[default]
    TokenBucket,
    /// Counts in windows aligned to the epoch; see [`fixed_window`](crate::fixed_window).
    FixedWindow,
    /// Counts in cells of a sliding window; see [`sliding_window`](crate::sliding_window).
    SlidingWindow {
        /// How many cells the window is cut into, at most 100.
        cells: NonZeroU16,
    },
    /// Remembers every admitted request of a sliding window; see
    /// [`sliding_log`](crate::sliding_log).
    SlidingLog,
    /// Delays allowed requests so that they leave evenly spaced; see
    /// [`leaky_bucket`](crate::leaky_bucket).
    LeakyBucket,
    /// Counts requests in flight; see [`concurrency`](crate::concurrency).
    Concurrency {
        /// How long a slot is held unless its holder renews it.
        lease_ttl: Duration,
    },
}

impl Algorithm {
    /// The number of cells of a sliding window unless set otherwise: 20.
    pub const CELLS_DEFAULT: NonZeroU16 = NonZeroU16::new(20).unwrap();

    /// How long a slot is held unless set otherwise: 30 s.
    pub const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(30);

    /// Returns the algorithm's name as the configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
