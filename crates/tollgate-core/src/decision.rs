//! What one bucket answers.

use std::time::Duration;

/// The answer of one bucket to one request: allowed or denied.
///
/// A denial is an answer, never an error, and has changed nothing (G3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a decision that is not acted upon limits nothing"]
pub enum Decision {
    /// The cost fits.
    Allow(Allow),
    /// The cost does not fit now.
    Deny(Deny),
}

/// An allowed request, and what is left after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allow {
    /// The most units that can pass at once, the quota's burst.
    pub limit: u32,
    /// The whole units left, rounded down.
    pub remaining: u32,
    /// The time until the bucket is full again if nothing more is spent.
    pub reset_after: Duration,
    /// The time the caller must wait before it goes on, zero but for a leaky bucket.
    pub delay: Duration,
}

/// A denied request, and when it can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deny {
    /// The most units that can pass at once, the quota's burst.
    pub limit: u32,
    /// The whole units left, rounded down: fewer than the cost.
    pub remaining: u32,
    /// The time until the bucket is full again if nothing more is spent.
    pub reset_after: Duration,
    /// The time until the cost fits, rounded up to the next microsecond: one microsecond
    /// earlier the same request is denied, at it the request is allowed, if nobody spends in
    /// between (G2).
    pub retry_after: Duration,
}

impl Decision {
    /// Tells whether the request may go on.
    pub const fn is_allow(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// Tells whether the request must be turned away.
    pub const fn is_deny(&self) -> bool {
        matches!(self, Self::Deny(_))
    }

    /// Returns the most units that can pass at once, the quota's burst.
    pub const fn limit(&self) -> u32 {
        match self {
            Self::Allow(allow) => allow.limit,
            Self::Deny(deny) => deny.limit,
        }
    }

    /// Returns the whole units left, rounded down.
    pub const fn remaining(&self) -> u32 {
        match self {
            Self::Allow(allow) => allow.remaining,
            Self::Deny(deny) => deny.remaining,
        }
    }

    /// Returns the time until the bucket is full again if nothing more is spent.
    pub const fn reset_after(&self) -> Duration {
        match self {
            Self::Allow(allow) => allow.reset_after,
            Self::Deny(deny) => deny.reset_after,
        }
    }

    /// Returns the time until the cost fits, if the request was denied.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Allow(_) => None,
            Self::Deny(deny) => Some(deny.retry_after),
        }
    }

    /// Returns the time an allowed request must wait before it goes on, zero but for a leaky
    /// bucket.
    pub const fn delay(&self) -> Duration {
        match self {
            Self::Allow(allow) => allow.delay,
            Self::Deny(_) => Duration::ZERO,
        }
    }
}
