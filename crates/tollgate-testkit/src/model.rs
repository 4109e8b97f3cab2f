//! The token bucket in exact rational numbers: slow, obvious, and apart from `tollgate-core`.
//!
//! The engine counts in scaled integers, the Lua scripts in doubles. This model counts in
//! [`BigRational`]s, without a scale, an overflow or a saturation, and is written from the rules
//! rather than from the code. A property test that compares the two proves both the arithmetic and
//! the rules:
//!
//! 1. A bucket holds at most `burst` tokens; a bucket that nobody spent from, or that is full
//!    again, is as if there were none.
//! 2. Time passes in whole ticks ([`Quota::tick_us`]) from the instant of the last write. A tick
//!    adds `units / period * tick` tokens. If it would fill the bucket, a spending starts a new
//!    tick: a part of what it has gathered would have had no place in the bucket.
//! 3. A cost of at most the tokens is spent; a cost above them changes nothing. `retry_after` is
//!    the instant of the first tick at which there are enough, `reset_after` that of the first at
//!    which the bucket is full.
//! 4. A bucket that another quota wrote keeps its tokens, down to a whole multiple of what the
//!    new quota can tell apart (one token divided by the denominator of its tokens per tick), and
//!    at most the new burst.
//! 5. Before the instant of the last write, by at most the skew, the bucket stands still. Further
//!    back, that instant moves to now.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{Cost, Quota, Timestamp};
//! use tollgate_testkit::Model;
//!
//! let thirds = Quota::new("3/s".parse()?, 1)?;
//! let start = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut bucket = Model::default();
//! assert_eq!(bucket.check(&thirds, Cost::ONE, start).outcome(), "allow");
//! let answer = bucket.check(&thirds, Cost::ONE, start);
//! assert_eq!(
//!     answer.to_string(),
//!     "deny, remaining 0, reset_after_us 333334, retry_after_us 333334"
//! );
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::time::Duration;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use tollgate_core::{Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};

use crate::answer::Answer;

/// One token bucket, in rationals.
///
/// See the [module docs](self) for its rules and an example.
#[derive(Clone, Debug)]
pub struct Model {
    /// What was written last; nothing for a full bucket.
    stored: Option<Tokens>,
    max_clock_skew: Duration,
}

/// So many tokens at an instant.
#[derive(Clone, Debug)]
struct Tokens {
    amount: BigRational,
    at: Timestamp,
}

/// What the bucket holds now.
struct Contents {
    tokens: Tokens,
    /// Whether the clock went back so far that the instant was moved to now.
    moved: bool,
}

/// A quota as the model sees it.
struct Terms {
    tokens_per_tick: BigRational,
    tick_us: u64,
    burst: BigRational,
}

impl Default for Model {
    /// Makes a full bucket that tolerates a clock skew of 1 s.
    fn default() -> Self {
        Self { stored: None, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT }
    }
}

impl Model {
    /// Makes a full bucket that stands still for at most `max_clock_skew` when time goes back.
    pub fn with_max_clock_skew(max_clock_skew: Duration) -> Self {
        Self { stored: None, max_clock_skew }
    }

    /// Answers a request of `cost` at `now`, and spends it if it is allowed.
    pub fn check(&mut self, quota: &Quota, cost: Cost, now: Timestamp) -> Answer {
        let terms = Terms::of(quota);
        let cost = whole(cost.units());
        if cost > terms.burst {
            return Answer::Impossible;
        }
        let mut contents = self.contents(&terms, now);
        if cost > contents.tokens.amount {
            let answer = Answer::Deny {
                remaining: contents.remaining(),
                reset_after: terms.wait(&contents.tokens, &terms.burst, now),
                retry_after: terms.wait(&contents.tokens, &cost, now),
            };
            self.keep(contents);
            return answer;
        }
        if cost.is_zero() {
            let answer = terms.allow(&contents, now);
            self.keep(contents);
            return answer;
        }
        if &contents.tokens.amount + &terms.tokens_per_tick >= terms.burst {
            contents.tokens.at = contents.tokens.at.max(now);
        }
        contents.tokens.amount -= cost;
        let answer = terms.allow(&contents, now);
        self.stored = Some(contents.tokens);
        answer
    }

    /// Gives `cost` units back at `now`, never beyond the burst.
    pub fn refund(&mut self, quota: &Quota, cost: Cost, now: Timestamp) -> Answer {
        let terms = Terms::of(quota);
        let mut contents = self.contents(&terms, now);
        let before = contents.tokens.amount.clone();
        contents.tokens.amount = (&before + whole(cost.units())).min(terms.burst.clone());
        let answer = terms.allow(&contents, now);
        if contents.tokens.amount == terms.burst {
            self.stored = None;
        } else if contents.tokens.amount > before {
            self.stored = Some(contents.tokens);
        } else {
            self.keep(contents);
        }
        answer
    }

    /// Leaves what is stored as it is, but for the repair of a clock that went back too far.
    fn keep(&mut self, contents: Contents) {
        if contents.moved {
            self.stored = Some(contents.tokens);
        }
    }

    fn contents(&self, terms: &Terms, now: Timestamp) -> Contents {
        let full =
            Contents { tokens: Tokens { amount: terms.burst.clone(), at: now }, moved: false };
        let Some(stored) = &self.stored else { return full };
        let held = terms.carried_over(&stored.amount);
        if held == terms.burst {
            return full;
        }
        if now < stored.at {
            let moved = stored.at.saturating_since(now) > self.max_clock_skew;
            let at = if moved { now } else { stored.at };
            return Contents { tokens: Tokens { amount: held, at }, moved };
        }
        let ticks = (now.as_micros() - stored.at.as_micros()) / terms.tick_us;
        let amount = held + whole(ticks) * &terms.tokens_per_tick;
        if amount >= terms.burst {
            return full;
        }
        let at = Timestamp::from_micros(stored.at.as_micros() + ticks * terms.tick_us);
        Contents { tokens: Tokens { amount, at }, moved: false }
    }
}

impl Contents {
    fn remaining(&self) -> u64 {
        saturate(&self.tokens.amount.to_integer())
    }
}

impl Terms {
    fn of(quota: &Quota) -> Self {
        let per_us = whole(quota.rate().units()) / micros(quota.rate().period());
        let tick_us = u64::from(quota.tick_us());
        Self {
            tokens_per_tick: per_us * whole(tick_us),
            tick_us,
            burst: whole(u64::from(quota.burst())),
        }
    }

    /// The stored amount under this quota. An amount that it wrote itself is not changed, because
    /// it is a whole number of steps.
    fn carried_over(&self, amount: &BigRational) -> BigRational {
        let steps = BigRational::from(self.tokens_per_tick.denom().clone());
        ((amount * &steps).floor() / steps).min(self.burst.clone())
    }

    /// The time from `now` until the tokens have become `wanted`.
    fn wait(&self, tokens: &Tokens, wanted: &BigRational, now: Timestamp) -> Duration {
        if *wanted <= tokens.amount {
            return Duration::ZERO;
        }
        let ticks = ((wanted - &tokens.amount) / &self.tokens_per_tick).ceil();
        let instant = whole(tokens.at.as_micros()) + ticks * whole(self.tick_us);
        let wait_us = (instant - whole(now.as_micros())).to_integer();
        let second = BigInt::from(1_000_000);
        Duration::from_secs(saturate(&(&wait_us / &second)))
            + Duration::from_micros(saturate(&(wait_us % second)))
    }

    fn allow(&self, contents: &Contents, now: Timestamp) -> Answer {
        Answer::Allow {
            remaining: contents.remaining(),
            reset_after: self.wait(&contents.tokens, &self.burst, now),
            delay: Duration::ZERO,
        }
    }
}

fn whole(number: u64) -> BigRational {
    BigRational::from(BigInt::from(number))
}

fn micros(duration: Duration) -> BigRational {
    BigRational::from(BigInt::from(duration.as_micros()))
}

/// Seconds and units of every quota fit; a number that did not would differ from any answer.
fn saturate(number: &BigInt) -> u64 {
    number.to_u64().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{self, Step};

    #[test]
    fn the_model_gives_the_answers_of_the_worked_timelines() {
        let timelines = timeline::parse(timeline::TOKEN_BUCKET).unwrap();
        assert_eq!(timelines.len(), 12);
        for timeline in timelines {
            let mut bucket = Model::default();
            let mut quota = *timeline.quota();
            for (index, step) in timeline.steps().iter().enumerate() {
                match step {
                    Step::SetQuota(changed) => quota = *changed,
                    Step::Check { at, cost, expect } => {
                        let now = timeline.start().saturating_add(*at);
                        let got = bucket.check(&quota, *cost, now);
                        assert_eq!(got, *expect, "{} step {index}", timeline.name());
                    }
                }
            }
        }
    }

    #[test]
    fn a_refund_fills_the_bucket_and_no_more() {
        let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
        let mut bucket = Model::default();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let _ = bucket.check(&quota, Cost::new(3), now);
        let four = bucket.refund(&quota, Cost::new(2), now);
        assert_eq!(four.to_string(), "allow, remaining 4, reset_after_us 1000000, delay_us 0");
        let full = bucket.refund(&quota, Cost::new(u64::MAX), now);
        assert_eq!(full.to_string(), "allow, remaining 5, reset_after_us 0, delay_us 0");
        assert!(bucket.stored.is_none());
    }

    #[test]
    fn tokens_of_another_quota_are_rounded_down_to_what_the_new_one_can_tell_apart() {
        let (sevenths, halves) = (
            Quota::new("1/7us".parse().unwrap(), 3).unwrap(),
            Quota::new("1/2us".parse().unwrap(), 3).unwrap(),
        );
        let mut bucket = Model::default();
        let at = |micros: u64| Timestamp::from_micros(1_700_000_000_000_000 + micros);
        let _ = bucket.check(&sevenths, Cost::new(3), at(0));
        let _ = bucket.check(&sevenths, Cost::ONE, at(13));
        let _ = bucket.check(&sevenths, Cost::ONE, at(13));
        let peek = bucket.check(&sevenths, Cost::ZERO, at(13));
        // 6/7 of a token is 1/2 in halves: 5 more of them, of 1 us each, make it full.
        assert_eq!(peek.to_string(), "allow, remaining 0, reset_after_us 15, delay_us 0");
        let carried = bucket.check(&halves, Cost::ZERO, at(13));
        assert_eq!(carried.to_string(), "allow, remaining 0, reset_after_us 5, delay_us 0");
    }
}
