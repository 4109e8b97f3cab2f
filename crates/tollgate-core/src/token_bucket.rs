//! The exact token bucket as one pure function.
//!
//! A bucket holds at most `burst` tokens and refills at `rate`. Refill is lazy: nothing runs in
//! the background, and a request's arrival adds what the elapsed time is worth.
//! [`Charge::judge`](crate::Charge::judge) takes the stored state and `now`, and gives a
//! [`Judgement`](crate::Judgement): a [`Fit`](crate::Fit), which can be spent or kept, or a
//! [`Shortfall`](crate::Shortfall), which has no way to spend. So a denial cannot take anything, by
//! type (G3).
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
//! # What it costs
//!
//! Three integers per bucket, a constant number of steps per check.
//!
//! # When to choose it
//!
//! For an API: it lets short bursts pass that do no harm, and holds the rate over time. **Worst
//! case: `burst + rate * w` units in an interval of length w.** Where a window must never hold more
//! than the limit, choose a [sliding window](crate::sliding_window).
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Change, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::new("3/s".parse()?, 1)?;
//! let charge = Charge::new("key", &quota, Cost::ONE);
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut state = None;
//!
//! let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! assert!(decision.is_allow());
//! change.apply(&mut state);
//!
//! let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! assert_eq!(decision.retry_after(), Some(Duration::from_micros(333_334)));
//! assert_eq!(change, Change::Keep);
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::cost::Cost;
use crate::decision::{Allow, Decision, Deny};
use crate::edit::Edit;
use crate::quota::Quota;
use crate::record::Record;
use crate::state::Change;
use crate::time::{Moment, Timestamp};
use crate::view::View;

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

/// What was decided about a bucket, before the times are worked out that its decision tells.
///
/// A store works them out when it has let go of the lock under which the bucket was changed.
#[derive(Clone, Copy, Debug)]
#[must_use = "a decision that is not acted upon limits nothing"]
pub struct Decided<'a> {
    after: BucketView<'a>,
    cost: Cost,
    /// The wait of an allowed request; a denied one has none.
    delay: Option<Duration>,
}

impl Decided<'_> {
    /// Tells whether the cost was denied.
    #[inline(always)]
    pub const fn is_deny(&self) -> bool {
        self.delay.is_none()
    }

    /// Returns the decision.
    #[inline(always)]
    pub fn decision(self) -> Decision {
        match self.delay {
            Some(delay) => self.after.allow(delay),
            None => self.after.deny(self.cost).0,
        }
    }
}

/// A cost that was judged against the state of one bucket, before anything is spent.
///
/// What is changed is written to the state that was judged.
#[derive(Clone, Copy, Debug)]
pub struct JudgedBucket<'a> {
    view: BucketView<'a>,
    cost: Cost,
    is_fit: bool,
}

impl<'a> JudgedBucket<'a> {
    /// Tells whether the cost fits.
    #[inline(always)]
    pub const fn is_fit(&self) -> bool {
        self.is_fit
    }

    /// Spends the cost if it fits, carries the change out on the stored state, and tells whether
    /// there was one.
    #[inline(always)]
    pub fn decide(self, bucket: &mut Bucket) -> (Decided<'a>, bool) {
        if !self.is_fit || self.cost.is_zero() {
            return self.keep(bucket);
        }
        let Self { view: mut after, cost, .. } = self;
        let delay = Some(after.delay());
        after.forget_what_would_overflow();
        after.level -= after.need(cost);
        *bucket = after.bucket();
        (Decided { after, cost, delay }, true)
    }

    /// Spends nothing: a cost that fits is allowed and told what is there now. The repair of a clock
    /// step (G4) is carried out on the stored state all the same; tells whether there was one.
    #[inline(always)]
    pub fn keep(self, bucket: &mut Bucket) -> (Decided<'a>, bool) {
        let Self { view: after, cost, is_fit } = self;
        let delay = is_fit.then(|| after.delay());
        if after.repaired {
            *bucket = after.bucket();
        }
        (Decided { after, cost, delay }, after.repaired)
    }
}

/// How far a clock may go back before the stored time is moved to it, unless set otherwise: 1 s.
pub const MAX_CLOCK_SKEW_DEFAULT: Duration = Duration::from_secs(1);

/// A token bucket or a leaky bucket at `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketView<'a> {
    quota: &'a Quota,
    level: u64,
    ts: Timestamp,
    now: Timestamp,
    stored: bool,
    repaired: bool,
}

impl<'a> BucketView<'a> {
    /// Brings the stored state up to `now`.
    #[inline(always)]
    pub(crate) fn new(
        quota: &'a Quota,
        bucket: Option<&Bucket>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let stored = bucket.is_some();
        let level_max = quota.level_max();
        let full = Self { quota, level: level_max, ts: now, now, stored, repaired: false };
        let Some(bucket) = bucket else { return full };
        let level = carried_over(bucket, quota);
        if level >= level_max {
            return full;
        }
        if now < bucket.ts {
            let moment = Moment::new(bucket.ts, max_clock_skew, now);
            return Self { level, ts: moment.effective, repaired: moment.repaired, ..full };
        }
        let tick_us = u64::from(quota.tick_us());
        let elapsed = now.as_micros() - bucket.ts.as_micros();
        let ticks = if tick_us == 1 { elapsed } else { elapsed / tick_us };
        let gained = ticks.saturating_mul(quota.units_per_tick());
        if gained >= level_max - level {
            return full;
        }
        let ts = Timestamp::from_micros(bucket.ts.as_micros() + ticks * tick_us);
        Self { level: level + gained, ts, ..full }
    }

    const fn need(&self, cost: Cost) -> u64 {
        cost.units().saturating_mul(self.quota.scale())
    }

    const fn is_full(&self) -> bool {
        self.level >= self.quota.level_max()
    }

    #[inline(always)]
    fn remaining(&self) -> u32 {
        let tokens = self.quota.units_in(self.level);
        debug_assert!(tokens <= u64::from(self.quota.burst()), "G1: more tokens than the burst");
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Starts a new tick at `now` if the current one would fill the bucket.
    ///
    /// What a tick has gathered counts when it ends. If it would fill the bucket, a part of that
    /// has no place in it any more; counted after a spending all the same, it would admit up to a
    /// tick's units above the bound (G1). Ticks of 1 µs end at every instant and gather nothing.
    #[inline(always)]
    fn forget_what_would_overflow(&mut self) {
        let missing = self.quota.level_max().saturating_sub(self.level);
        if self.ts < self.now && self.quota.units_per_tick() >= missing {
            self.ts = self.now;
        }
    }

    /// The time from `now` until the level has risen to `level`.
    #[inline(always)]
    fn time_until(&self, level: u64) -> Duration {
        let missing = level.saturating_sub(self.level);
        if missing == 0 {
            return Duration::ZERO;
        }
        let after_ts = self.quota.ticks_to_gain(missing);
        if self.ts == self.now {
            return after_ts;
        }
        let ahead = self.ts.saturating_since(self.now);
        let behind = self.now.saturating_since(self.ts);
        (after_ts + ahead).saturating_sub(behind)
    }

    /// The time until a request that finds the bucket as it is now may go on: a leaky bucket lets
    /// it out when what the queue holds has drained.
    #[inline(always)]
    fn delay(&self) -> Duration {
        match self.quota.algorithm() {
            Algorithm::LeakyBucket => self.time_until(self.quota.level_max()),
            _ => Duration::ZERO,
        }
    }

    #[inline(always)]
    fn allow(&self, delay: Duration) -> Decision {
        Decision::Allow(Allow {
            limit: self.quota.burst(),
            remaining: self.remaining(),
            reset_after: self.time_until(self.quota.level_max()),
            delay,
        })
    }

    /// Judges a cost, and leaves it to the caller whether it is spent.
    #[inline(always)]
    pub(crate) fn judged(self, cost: Cost) -> JudgedBucket<'a> {
        JudgedBucket { is_fit: self.fits(cost), view: self, cost }
    }

    const fn bucket(&self) -> Bucket {
        debug_assert!(!self.is_full(), "G5: a full bucket is not stored");
        Bucket { level: self.level, scale: self.quota.scale(), ts: self.ts }
    }

    const fn store(&self) -> Change {
        Change::Edit(Edit::Bucket(self.bucket()))
    }

    const fn repair(&self) -> Change {
        if self.repaired { self.store() } else { Change::Keep }
    }
}

impl View for BucketView<'_> {
    #[inline(always)]
    fn fits(&self, cost: Cost) -> bool {
        self.need(cost) <= self.level
    }

    #[inline(always)]
    fn spend(mut self, cost: Cost) -> (Decision, Change) {
        let need = self.need(cost);
        debug_assert!(need <= self.level, "G1: more spent than there was");
        let delay = self.delay();
        self.forget_what_would_overflow();
        self.level -= need;
        (self.allow(delay), self.store())
    }

    #[inline(always)]
    fn keep(self, _cost: Cost) -> (Decision, Change) {
        (self.allow(self.delay()), self.repair())
    }

    #[inline(always)]
    fn deny(self, cost: Cost) -> (Decision, Change) {
        let need = self.need(cost);
        debug_assert!(need > self.level, "G2: a denial of what would fit");
        let level_max = self.quota.level_max();
        let deny = Deny {
            limit: self.quota.burst(),
            remaining: self.remaining(),
            reset_after: self.time_until(level_max),
            retry_after: self.time_until(need.min(level_max)),
        };
        (Decision::Deny(deny), self.repair())
    }

    fn refund(mut self, cost: Cost) -> (Decision, Change) {
        let before = self.level;
        self.level = before.saturating_add(self.need(cost)).min(self.quota.level_max());
        let change = if self.is_full() {
            self.ts = self.now;
            if self.stored { Change::Remove } else { Change::Keep }
        } else if self.level > before {
            self.store()
        } else {
            self.repair()
        };
        (self.allow(self.delay()), change)
    }

    fn give_back(self, cost: Cost, reserved: &Record) -> (Decision, Change) {
        let is_last = || {
            let drained_after = self.time_until(self.quota.level_max());
            self.now.saturating_add(drained_after) == reserved.queue_end
        };
        match self.quota.algorithm() {
            Algorithm::LeakyBucket if !is_last() => self.keep(cost),
            // What has refilled since has its cap in the burst.
            _ => self.refund(cost),
        }
    }
}

/// Rescales a stored level to the quota in force and caps it at its burst (G11).
#[inline]
fn carried_over(bucket: &Bucket, quota: &Quota) -> u64 {
    let level = if bucket.scale == quota.scale() {
        bucket.level
    } else {
        let scaled = u128::from(bucket.level) * u128::from(quota.scale());
        u64::try_from(scaled / u128::from(bucket.scale.max(1))).unwrap_or(u64::MAX)
    };
    level.min(quota.level_max())
}

#[cfg(test)]
mod tests;
