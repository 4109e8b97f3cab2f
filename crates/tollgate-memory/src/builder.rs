//! How a store is set up.

use std::time::Duration;

use tollgate_core::MAX_CLOCK_SKEW_DEFAULT;

use crate::store::MemoryStore;

/// The most buckets a store holds unless set otherwise, and the most records: 1,000,000.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// Sets up a [`MemoryStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_memory::MemoryStore;
///
/// let store = MemoryStore::builder()
///     .keys_max(50_000)
///     .max_clock_skew(Duration::from_millis(200))
///     .build();
/// assert_eq!(store.keys_max(), 50_000);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes a store only when it is built"]
pub struct MemoryStoreBuilder {
    keys_max: usize,
    max_clock_skew: Duration,
}

impl MemoryStoreBuilder {
    pub(crate) const fn new() -> Self {
        Self { keys_max: KEYS_MAX_DEFAULT, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT }
    }

    /// Sets the most buckets that are stored at once, and the most records beside them, 1,000,000
    /// unless set. 0 is taken as 1.
    ///
    /// Nothing is allocated ahead; memory grows with the keys that are in use, see
    /// [the page of the crate](crate#memory).
    pub const fn keys_max(mut self, keys_max: usize) -> Self {
        self.keys_max = if keys_max == 0 { 1 } else { keys_max };
        self
    }

    /// Sets how far `now` may go back while the stored times hold (G4), 1 s unless set.
    pub const fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// Makes the store.
    pub fn build(self) -> MemoryStore {
        MemoryStore::with_limits(self.keys_max, self.max_clock_skew)
    }
}
