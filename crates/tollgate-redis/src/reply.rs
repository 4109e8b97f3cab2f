//! What the script replied, as the decisions that core makes on the same state.

use std::time::Duration;

use redis::Value;
use tollgate_core::{
    Algorithm, Allow, Bucket, Charge, Cost, Decision, Decisions, Deny, Judgement, Quota, State,
    Timestamp,
};

use crate::call::Call;

/// What the script said about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    /// Whether the call took the units, so that they can be given back.
    pub(crate) taken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Denied,
    Taken,
    Allowed,
    NothingToSettle,
}

impl Call<'_> {
    /// Turns the reply into decisions, or gives `None` if the script cannot have replied that.
    pub(crate) fn decisions(&self, reply: &Value) -> Option<Decisions> {
        let mut reply = Reply::new(reply, self.max_clock_skew)?;
        let decisions = self.charges.iter().map(|charge| Some(reply.answer(charge)?.decision));
        let decisions = decisions.collect::<Option<_>>()?;
        reply.rest.is_empty().then_some(decisions)
    }

    /// Turns the reply into answers and the instant at which they were given, or gives `None` if
    /// the script cannot have replied that.
    pub(crate) fn answers(&self, reply: &Value) -> Option<(Vec<Answer>, Timestamp)> {
        let mut reply = Reply::new(reply, self.max_clock_skew)?;
        let answers = self.charges.iter().map(|charge| reply.answer(charge));
        let answers = answers.collect::<Option<_>>()?;
        reply.rest.is_empty().then_some((answers, reply.now))
    }
}

/// A reply that is read charge by charge.
struct Reply<'a> {
    now: Timestamp,
    max_clock_skew: Duration,
    rest: &'a [Value],
}

impl<'a> Reply<'a> {
    fn new(reply: &'a Value, max_clock_skew: Duration) -> Option<Self> {
        let Value::Array(items) = reply else { return None };
        let mut reply = Self { now: Timestamp::EPOCH, max_clock_skew, rest: items };
        reply.now = reply.instant()?;
        Some(reply)
    }

    fn whole(&mut self) -> Option<u64> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match first {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.whole().map(Timestamp::from_micros)
    }

    fn duration(&mut self) -> Option<Duration> {
        self.whole().map(Duration::from_micros)
    }

    fn answer(&mut self, charge: &Charge<'_>) -> Option<Answer> {
        let outcome = match self.whole()? {
            0 => Outcome::Denied,
            1 => Outcome::Taken,
            2 => Outcome::Allowed,
            3 => Outcome::NothingToSettle,
            _ => return None,
        };
        let decision = match charge.quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.on_bucket(charge, outcome)?,
            _ => self.on_used(charge.quota, outcome)?,
        };
        Some(Answer { decision, taken: outcome == Outcome::Taken })
    }

    /// Decides on the bucket that the script left. It is brought up to `now`, so judging it there
    /// gives back its level and its time; what was spent is already gone, so an allowed charge is
    /// looked at with cost 0.
    fn on_bucket(&mut self, charge: &Charge<'_>, outcome: Outcome) -> Option<Decision> {
        let state = self.bucket(charge)?;
        let (now, max_clock_skew) = (self.now, self.max_clock_skew);
        let judge =
            |cost, state| Charge { cost, ..*charge }.judge(Some(state), max_clock_skew, now);
        let mut decision = match outcome {
            Outcome::Denied => match judge(charge.cost, &state) {
                Judgement::Fit(_) => return None,
                Judgement::Shortfall(shortfall) => shortfall.deny().0,
            },
            _ => judge(Cost::ZERO, &state).keep().0,
        };
        if charge.quota.algorithm() == Algorithm::LeakyBucket {
            let before = self.bucket(charge)?;
            if let Decision::Allow(allow) = &mut decision {
                allow.delay = judge(Cost::ZERO, &before).keep().0.delay();
            }
        }
        Some(match outcome {
            Outcome::NothingToSettle => Decision::Deny(Deny {
                limit: decision.limit(),
                remaining: decision.remaining(),
                reset_after: decision.reset_after(),
                retry_after: Duration::ZERO,
            }),
            _ => decision,
        })
    }

    fn bucket(&mut self, charge: &Charge<'_>) -> Option<State> {
        let (level, ts) = (self.whole()?, self.instant()?);
        Some(State::Bucket(Bucket { level, scale: charge.quota.scale(), ts }))
    }

    fn on_used(&mut self, quota: &Quota, outcome: Outcome) -> Option<Decision> {
        let limit = quota.burst();
        let left = u64::from(limit).saturating_sub(self.whole()?);
        let remaining = u32::try_from(left).ok()?;
        let (reset_after, retry_after) = (self.duration()?, self.duration()?);
        Some(match outcome {
            Outcome::Taken | Outcome::Allowed => {
                Decision::Allow(Allow { limit, remaining, reset_after, delay: Duration::ZERO })
            }
            Outcome::Denied | Outcome::NothingToSettle => {
                Decision::Deny(Deny { limit, remaining, reset_after, retry_after })
            }
        })
    }
}

/// A reply of words, which are read one by one.
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(crate) fn new(reply: &'a Value) -> Option<Self> {
        match reply {
            Value::BulkString(rest) => Some(Self { rest }),
            _ => None,
        }
    }

    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|byte| *byte == b' ');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        Some(word)
    }
}

/// Reads an integer of digits only.
pub(crate) fn whole(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests;
