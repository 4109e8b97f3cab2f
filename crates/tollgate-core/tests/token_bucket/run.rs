//! One bucket of the engine, driven along a random timeline.

use std::time::Duration;

use tollgate_core::{
    Bucket, Change, Charge, Cost, Decision, MAX_CLOCK_SKEW_DEFAULT, Quota, State, Timestamp,
};

use crate::strategies::{Move, Size};

/// A bucket with its quota, its stored state and the time.
#[derive(Clone, Debug)]
pub struct Run {
    pub quota: Quota,
    pub state: Option<State>,
    pub now: Timestamp,
    pub max_clock_skew: Duration,
    last: Option<Decision>,
}

impl Run {
    pub fn new(quota: Quota, now: Timestamp) -> Self {
        Self { quota, state: None, now, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT, last: None }
    }

    pub fn charge(&self, cost: Cost) -> Charge<'_> {
        Charge::new("key", &self.quota, cost)
    }

    /// Decides at another time and on another state, without changing this run.
    pub fn ask(&self, state: Option<&State>, cost: Cost, now: Timestamp) -> Decision {
        self.charge(cost).decide(state, self.max_clock_skew, now).0
    }

    pub fn peek(&self) -> Decision {
        self.ask(self.state.as_ref(), Cost::ZERO, self.now)
    }

    pub fn check(&mut self, cost: Cost) -> (Decision, Change) {
        let answer = self.charge(cost).decide(self.state.as_ref(), self.max_clock_skew, self.now);
        self.apply(answer)
    }

    pub fn refund(&mut self, cost: Cost) -> (Decision, Change) {
        let answer = self.charge(cost).refund(self.state.as_ref(), self.max_clock_skew, self.now);
        self.apply(answer)
    }

    /// The stored bucket, `None` for a full one.
    pub fn bucket(&self) -> Option<Bucket> {
        match self.state {
            Some(State::Bucket(bucket)) => Some(bucket),
            _ => None,
        }
    }

    fn apply(&mut self, (decision, change): (Decision, Change)) -> (Decision, Change) {
        change.apply(&mut self.state);
        self.last = Some(decision);
        (decision, change)
    }

    /// Moves time, within the range of a timestamp.
    pub fn advance(&mut self, moved: Move) {
        let tick_us = i128::from(self.quota.tick_us());
        let rate = self.quota.rate();
        let unit_us = as_i128(rate.period()) / i128::from(rate.units());
        let last = self.last;
        let delta = match moved {
            Move::Stay => 0,
            Move::Micro => 1,
            Move::Ticks(ticks, edge) => (i128::from(ticks) * tick_us + i128::from(edge)).max(0),
            Move::Unit(thousandths) => unit_us * i128::from(thousandths) / 1_000,
            Move::Fill(thousandths) => {
                as_i128(self.quota.fill_time()) * i128::from(thousandths) / 1_000
            }
            Move::ToRetry(edge) => {
                let retry_us = last.and_then(|last| last.retry_after()).map_or(0, as_i128);
                (retry_us + i128::from(edge)).max(0)
            }
            Move::ToReset(edge) => {
                let reset_us = last.map_or(0, |last| as_i128(last.reset_after()));
                (reset_us + i128::from(edge)).max(0)
            }
            Move::Back(micros) => -i128::from(micros),
        };
        let now = (i128::from(self.now.as_micros()) + delta).max(0);
        self.now = Timestamp::from_micros(u64::try_from(now).unwrap_or(u64::MAX));
    }

    /// The cost that `size` stands for now.
    pub fn cost(&self, size: Size) -> Cost {
        let burst = u64::from(self.quota.burst());
        let remaining = || u64::from(self.peek().remaining());
        Cost::new(match size {
            Size::Zero => 0,
            Size::One => 1,
            Size::Share(thousandths) => burst * thousandths / 1_000,
            Size::Remaining => remaining(),
            Size::RemainingAndOne => remaining() + 1,
            Size::Burst => burst,
            Size::BurstAndOne => burst + 1,
        })
    }
}

/// What has been admitted, to compare with what a rate may admit.
#[derive(Clone, Copy, Debug)]
pub struct Allowance(Quota);

impl Allowance {
    pub fn of(quota: &Quota) -> Self {
        Self(*quota)
    }

    /// Whether `units` are at most the burst and what the rate gives in `elapsed_us`, exactly.
    pub fn covers(self, units: u128, elapsed_us: u64) -> bool {
        let period_us = self.0.rate().period().as_micros();
        let refill = u128::from(self.0.rate().units()) * u128::from(elapsed_us);
        units * period_us <= u128::from(self.0.burst()) * period_us + refill
    }
}

fn as_i128(duration: Duration) -> i128 {
    i128::try_from(duration.as_micros()).unwrap_or(i128::MAX)
}
