//! How much one request spends.

use std::fmt;

/// The units one request spends from a bucket.
///
/// A cost of 0 is a peek: it is never denied and spends nothing. A cost above the burst of a
/// quota can never succeed; see [`Quota::admits`](crate::Quota::admits).
///
/// # Examples
///
/// ```
/// use tollgate_core::Cost;
///
/// assert_eq!(Cost::default(), Cost::ONE);
/// assert!(Cost::ZERO.is_zero());
/// assert_eq!(Cost::from(7_u32).units(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// Spends nothing: a peek.
    pub const ZERO: Self = Self(0);

    /// Spends one unit, what a request costs unless it says otherwise.
    pub const ONE: Self = Self(1);

    /// Makes a cost of `units` units.
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// Returns the number of units.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Tells whether the cost is 0, which makes a check a peek.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<u32> for Cost {
    fn from(units: u32) -> Self {
        Self(u64::from(units))
    }
}

impl From<u64> for Cost {
    fn from(units: u64) -> Self {
        Self(units)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
