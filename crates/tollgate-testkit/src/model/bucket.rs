//! The token bucket and the leaky bucket, in rationals.

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use tollgate_core::{Algorithm, Quota, Timestamp};

use super::{Contents, Stored};

/// So many tokens at an instant.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    amount: BigRational,
    at: Timestamp,
}

/// A token bucket or a leaky bucket now.
pub(super) struct Bucket {
    terms: Terms,
    tokens: Tokens,
    now: Timestamp,
    is_stored: bool,
    written: bool,
}

/// A quota as the model sees it.
struct Terms {
    tokens_per_tick: BigRational,
    tick_us: u64,
    burst: BigRational,
    is_queue: bool,
}

impl Bucket {
    pub(super) fn new(
        quota: &Quota,
        stored: Option<&Tokens>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let terms = Terms::of(quota);
        let tokens = Tokens { amount: terms.burst.clone(), at: now };
        let mut bucket = Self { terms, tokens, now, is_stored: stored.is_some(), written: false };
        let Some(stored) = stored else { return bucket };
        let Terms { burst, tokens_per_tick, tick_us, .. } = &bucket.terms;
        let held = bucket.terms.carried_over(&stored.amount);
        let ticks = now.as_micros().saturating_sub(stored.at.as_micros()) / tick_us;
        let amount = &held + whole(ticks) * tokens_per_tick;
        if amount >= *burst {
            return bucket;
        }
        bucket.written = stored.at.saturating_since(now) > max_clock_skew;
        if !bucket.written {
            bucket.tokens.at = Timestamp::from_micros(stored.at.as_micros() + ticks * tick_us);
        }
        bucket.tokens.amount = amount;
        bucket
    }

    /// The time from now until there are so many tokens.
    fn time_until(&self, wanted: &BigRational) -> Duration {
        let Tokens { amount, at } = &self.tokens;
        if wanted <= amount {
            return Duration::ZERO;
        }
        let ticks = ((wanted - amount) / &self.terms.tokens_per_tick).ceil();
        let instant = whole(at.as_micros()) + ticks * whole(self.terms.tick_us);
        let wait_us = (instant - whole(self.now.as_micros())).to_integer();
        let second = BigInt::from(1_000_000);
        Duration::from_secs(saturate(&(&wait_us / &second)))
            + Duration::from_micros(saturate(&(wait_us % second)))
    }
}

impl Contents for Bucket {
    fn fits(&self, units: u64) -> bool {
        whole(units) <= self.tokens.amount
    }

    fn take(&mut self, units: u64) {
        if &self.tokens.amount + &self.terms.tokens_per_tick >= self.terms.burst {
            self.tokens.at = self.tokens.at.max(self.now);
        }
        self.tokens.amount -= whole(units);
        self.written = true;
    }

    fn give_back(&mut self, units: u64) {
        let amount = (&self.tokens.amount + whole(units)).min(self.terms.burst.clone());
        let is_full = amount == self.terms.burst;
        self.written |= amount > self.tokens.amount || (is_full && self.is_stored);
        self.tokens.amount = amount;
    }

    fn remaining(&self) -> u64 {
        saturate(&self.tokens.amount.to_integer())
    }

    fn reset_after(&self) -> Duration {
        self.time_until(&self.terms.burst)
    }

    fn retry_after(&self, units: u64) -> Duration {
        self.time_until(&whole(units))
    }

    fn delay(&self) -> Duration {
        if self.terms.is_queue { self.reset_after() } else { Duration::ZERO }
    }

    fn write(self: Box<Self>, stored: &mut Option<Stored>) {
        let is_full = self.tokens.amount == self.terms.burst;
        if self.written {
            *stored = (!is_full).then_some(Stored::Tokens(self.tokens));
        }
    }
}

impl Terms {
    fn of(quota: &Quota) -> Self {
        let period_us = BigRational::from(BigInt::from(quota.rate().period().as_micros()));
        let tick_us = u64::from(quota.tick_us());
        Self {
            tokens_per_tick: whole(quota.rate().units()) / period_us * whole(tick_us),
            tick_us,
            burst: whole(u64::from(quota.burst())),
            is_queue: quota.algorithm() == Algorithm::LeakyBucket,
        }
    }

    /// The stored amount under this quota. An amount that it wrote itself is not changed, because
    /// it is a whole number of steps.
    fn carried_over(&self, amount: &BigRational) -> BigRational {
        let steps = BigRational::from(self.tokens_per_tick.denom().clone());
        ((amount * &steps).floor() / steps).min(self.burst.clone())
    }
}

fn whole(number: u64) -> BigRational {
    BigRational::from(BigInt::from(number))
}

/// Seconds and units of every quota fit; a number that did not would differ from any answer.
fn saturate(number: &BigInt) -> u64 {
    number.to_u64().unwrap_or(u64::MAX)
}
