//! The exact token bucket as one pure function.
//!
//! A bucket holds at most `burst` tokens and refills at `rate`. Refill is lazy: nothing runs in
//! the background, and a request's arrival adds what the elapsed time is worth.
//! [`TokenBucket::judge`] takes the stored state, the cost and `now`, and gives a [`Judgement`]:
//! a [`Fit`], which can be spent or kept, or a [`Shortfall`], which has no way to spend. So a
//! denial cannot take anything, by type (G3).
//!
//! # Rules
//!
//! 1. No stored state is a full bucket, and a full bucket is never stored (G5).
//! 2. A request is allowed if its cost is at most the tokens there are; otherwise nothing changes
//!    and `retry_after` is exact (G2).
//! 3. State that was stored under another quota is carried over: the tokens stay, capped at the
//!    new burst (G11). A fraction that the new scale cannot hold is rounded down.
//! 4. If `now` is before the stored time by at most `max_clock_skew`, the stored time holds:
//!    nothing is added until `now` has caught up. If it is further back, the stored time moves to
//!    `now` and the tokens are kept (G4). That repair is the only write a denial may make.
//!
//! The admitted cost in any interval of length w is at most `burst + rate * w` (G1), the bound of
//! the token bucket in RFC 2697 and RFC 2698 (committed burst size, committed information rate).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Change, Cost, Quota, Timestamp, TokenBucket};
//!
//! let quota = Quota::new("3/s".parse()?, 1)?;
//! let bucket = TokenBucket::new(&quota);
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//!
//! let (decision, change) = bucket.decide(None, Cost::ONE, now);
//! assert!(decision.is_allow());
//! let Change::Store(state) = change else { panic!("an allowed cost is spent") };
//!
//! let (decision, change) = bucket.decide(Some(&state), Cost::ONE, now);
//! assert_eq!(decision.retry_after(), Some(Duration::from_micros(333_334)));
//! assert_eq!(change, Change::Keep);
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::time::Duration;

use crate::cost::Cost;
use crate::decision::{Allow, Decision, Deny};
use crate::quota::Quota;
use crate::time::Timestamp;

/// The stored state of one bucket that is not full.
///
/// The bucket held `level / scale` tokens at `ts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The tokens times `scale`.
    pub level: u64,
    /// The level of one token under the quota that wrote the state.
    pub scale: u64,
    /// The instant at which `level` was exact.
    pub ts: Timestamp,
}

/// What a store must do with a bucket's state after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a change that is not stored admits the same units twice"]
pub enum Change {
    /// Leave the stored state as it is.
    Keep,
    /// Replace the stored state.
    Store(Bucket),
    /// Remove the stored state, because the bucket is full.
    Remove,
}

/// A token bucket under one quota.
///
/// See the [module docs](self) for the rules and an example.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket<'a> {
    quota: &'a Quota,
    max_clock_skew: Duration,
}

/// How far a clock may go back before the stored time is moved to it, unless set otherwise: 1 s.
pub const MAX_CLOCK_SKEW_DEFAULT: Duration = Duration::from_secs(1);

impl<'a> TokenBucket<'a> {
    /// Makes a bucket under `quota` that tolerates a clock skew of 1 s.
    pub const fn new(quota: &'a Quota) -> Self {
        Self { quota, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT }
    }

    /// Sets how far `now` may lie before the stored time while the stored time holds (G4).
    #[must_use]
    pub const fn with_max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// Decides whether `cost` fits at `now`, and spends it if it does.
    ///
    /// A `cost` of 0 is a peek. A `cost` above the burst is denied with the time until the bucket
    /// is full, but it can never succeed: callers sort it out first by [`Quota::admits`].
    pub fn decide(
        &self,
        bucket: Option<&Bucket>,
        cost: Cost,
        now: Timestamp,
    ) -> (Decision, Change) {
        match self.judge(bucket, cost, now) {
            Judgement::Fit(fit) => fit.spend(),
            Judgement::Shortfall(shortfall) => shortfall.deny(),
        }
    }

    /// Judges whether `cost` fits at `now`, and leaves it to the caller whether it is spent.
    pub fn judge(&self, bucket: Option<&Bucket>, cost: Cost, now: Timestamp) -> Judgement<'a> {
        let contents = self.contents(bucket, now);
        let need = cost.units().saturating_mul(self.quota.scale());
        if need <= contents.level {
            Judgement::Fit(Fit { contents, need })
        } else {
            Judgement::Shortfall(Shortfall { contents, need })
        }
    }

    /// Gives `cost` units back, never beyond the burst. A bucket that becomes full is removed.
    ///
    /// The decision is an [`Allow`] that tells the state after the refund.
    pub fn refund(
        &self,
        bucket: Option<&Bucket>,
        cost: Cost,
        now: Timestamp,
    ) -> (Decision, Change) {
        let mut contents = self.contents(bucket, now);
        let given = cost.units().saturating_mul(self.quota.scale());
        let before = contents.level;
        contents.level = before.saturating_add(given).min(self.quota.level_max());
        let change = if contents.is_full() {
            contents.ts = now;
            if bucket.is_some() { Change::Remove } else { Change::Keep }
        } else if contents.level > before {
            contents.store()
        } else {
            contents.repair()
        };
        (contents.allow(), change)
    }

    /// Brings the stored state up to `now`.
    fn contents(&self, bucket: Option<&Bucket>, now: Timestamp) -> Contents<'a> {
        let quota = self.quota;
        let full = Contents { quota, level: quota.level_max(), ts: now, now, repaired: false };
        let Some(bucket) = bucket else { return full };
        let level = carried_over(bucket, quota);
        if level >= quota.level_max() {
            return full;
        }
        if now < bucket.ts {
            let repaired = bucket.ts.saturating_since(now) > self.max_clock_skew;
            let ts = if repaired { now } else { bucket.ts };
            return Contents { quota, level, ts, now, repaired };
        }
        let tick_us = u64::from(quota.tick_us());
        let ticks = (now.as_micros() - bucket.ts.as_micros()) / tick_us;
        let gained = ticks.saturating_mul(quota.units_per_tick());
        if gained >= quota.level_max() - level {
            return full;
        }
        let ts = Timestamp::from_micros(bucket.ts.as_micros() + ticks * tick_us);
        Contents { quota, level: level + gained, ts, now, repaired: false }
    }
}

/// Rescales a stored level to the quota in force and caps it at its burst (G11).
fn carried_over(bucket: &Bucket, quota: &Quota) -> u64 {
    let level = if bucket.scale == quota.scale() {
        bucket.level
    } else {
        let scaled = u128::from(bucket.level) * u128::from(quota.scale());
        u64::try_from(scaled / u128::from(bucket.scale.max(1))).unwrap_or(u64::MAX)
    };
    level.min(quota.level_max())
}

/// Whether a cost fits, before anything is spent.
#[derive(Clone, Copy, Debug)]
pub enum Judgement<'a> {
    /// The cost fits; it may be spent.
    Fit(Fit<'a>),
    /// The cost does not fit; there is nothing to spend.
    Shortfall(Shortfall<'a>),
}

impl Judgement<'_> {
    /// Tells whether the cost fits.
    pub const fn is_fit(&self) -> bool {
        matches!(self, Self::Fit(_))
    }

    /// Gives the decision without spending. A cost that fits is reported with what is there now.
    pub fn keep(self) -> (Decision, Change) {
        match self {
            Self::Fit(fit) => fit.keep(),
            Self::Shortfall(shortfall) => shortfall.deny(),
        }
    }
}

/// A cost that fits.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a> {
    contents: Contents<'a>,
    need: u64,
}

impl Fit<'_> {
    /// Spends the cost.
    pub fn spend(mut self) -> (Decision, Change) {
        debug_assert!(self.need <= self.contents.level, "G1: more spent than there was");
        if self.need == 0 {
            return self.keep();
        }
        self.contents.forget_what_would_overflow();
        self.contents.level -= self.need;
        (self.contents.allow(), self.contents.store())
    }

    /// Leaves the units in the bucket, because another rule denied the request or because the
    /// caller only looks.
    pub fn keep(self) -> (Decision, Change) {
        (self.contents.allow(), self.contents.repair())
    }
}

/// A cost that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Shortfall<'a> {
    contents: Contents<'a>,
    need: u64,
}

impl Shortfall<'_> {
    /// Gives the denial. It changes nothing, but for the repair of a clock step.
    pub fn deny(self) -> (Decision, Change) {
        let contents = self.contents;
        debug_assert!(self.need > contents.level, "G2: a denial of what would fit");
        let deny = Deny {
            limit: contents.quota.burst(),
            remaining: contents.remaining(),
            reset_after: contents.time_until(contents.quota.level_max()),
            retry_after: contents.time_until(self.need.min(contents.quota.level_max())),
        };
        (Decision::Deny(deny), contents.repair())
    }
}

/// A bucket's content at `now`.
#[derive(Clone, Copy, Debug)]
struct Contents<'a> {
    quota: &'a Quota,
    level: u64,
    ts: Timestamp,
    now: Timestamp,
    repaired: bool,
}

impl Contents<'_> {
    const fn is_full(&self) -> bool {
        self.level >= self.quota.level_max()
    }

    fn remaining(&self) -> u32 {
        let tokens = self.level / self.quota.scale();
        debug_assert!(tokens <= u64::from(self.quota.burst()), "G1: more tokens than the burst");
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Starts a new tick at `now` if the current one would fill the bucket.
    ///
    /// What a tick has gathered counts when it ends. If it would fill the bucket, a part of that
    /// has no place in it any more; counted after a spending all the same, it would admit up to a
    /// tick's units above the bound (G1). Ticks of 1 µs end at every instant and gather nothing.
    fn forget_what_would_overflow(&mut self) {
        let missing = self.quota.level_max().saturating_sub(self.level);
        if self.ts < self.now && self.quota.units_per_tick() >= missing {
            self.ts = self.now;
        }
    }

    /// The time from `now` until the level has risen to `level`.
    fn time_until(&self, level: u64) -> Duration {
        let missing = level.saturating_sub(self.level);
        if missing == 0 {
            return Duration::ZERO;
        }
        let after_ts = self.quota.ticks_to_gain(missing);
        let ahead = self.ts.saturating_since(self.now);
        let behind = self.now.saturating_since(self.ts);
        (after_ts + ahead).saturating_sub(behind)
    }

    fn allow(&self) -> Decision {
        Decision::Allow(Allow {
            limit: self.quota.burst(),
            remaining: self.remaining(),
            reset_after: self.time_until(self.quota.level_max()),
            delay: Duration::ZERO,
        })
    }

    const fn state(&self) -> Bucket {
        Bucket { level: self.level, scale: self.quota.scale(), ts: self.ts }
    }

    fn store(&self) -> Change {
        debug_assert!(!self.is_full(), "G5: a full bucket is not stored");
        Change::Store(self.state())
    }

    const fn repair(&self) -> Change {
        if self.repaired { Change::Store(self.state()) } else { Change::Keep }
    }
}

#[cfg(test)]
mod tests;
