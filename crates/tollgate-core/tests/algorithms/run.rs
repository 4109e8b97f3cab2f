//! One bucket of any algorithm, driven along a random timeline.

use std::time::Duration;

use tollgate_core::{
    Change, Charge, Cost, Decision, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, State, Stored,
    Ticket, Timestamp, decide_together,
};

use crate::strategies::{Action, Move, Size};

/// A bucket with its quota, its stored state and the time.
#[derive(Clone, Debug)]
pub struct Run {
    pub quota: Quota,
    pub state: Option<State>,
    pub now: Timestamp,
    pub max_clock_skew: Duration,
    last: Option<Decision>,
    /// The tickets given out: one for each check, which only a concurrency limit looks at.
    tickets: u32,
}

impl Run {
    pub fn new(quota: Quota, now: Timestamp) -> Self {
        let (state, last) = (None, None);
        Self { quota, state, now, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT, last, tickets: 0 }
    }

    /// A charge under the ticket that the next check has, which holds nothing yet.
    pub fn charge(&self, cost: Cost) -> Charge<'_> {
        Charge::new("key", &self.quota, cost).with_ticket(Ticket::new(self.tickets.into()))
    }

    /// Decides at another time and on another state, without changing this run.
    pub fn ask(&self, state: Option<&State>, cost: Cost, now: Timestamp) -> Decision {
        self.charge(cost).decide(state, self.max_clock_skew, now).0
    }

    pub fn peek(&self) -> Decision {
        self.ask(self.state.as_ref(), Cost::ZERO, self.now)
    }

    /// The number of the ticket that the next check has.
    pub fn next_ticket(&self) -> u32 {
        self.tickets
    }

    /// Leaves out the tickets before `ticket`.
    pub fn skip_to_ticket(&mut self, ticket: u32) {
        self.tickets = ticket;
    }

    pub fn check(&mut self, cost: Cost) -> (Decision, Change) {
        let answer = self.charge(cost).decide(self.state.as_ref(), self.max_clock_skew, self.now);
        self.tickets += 1;
        self.apply(answer)
    }

    pub fn refund(&mut self, cost: Cost) -> (Decision, Change) {
        let answer = self.charge(cost).refund(self.state.as_ref(), self.max_clock_skew, self.now);
        self.apply(answer)
    }

    /// Ends what the check with this ticket holds.
    pub fn release(&mut self, ticket: u32) -> (Decision, Change) {
        let charge =
            Charge::new("key", &self.quota, Cost::ONE).with_ticket(Ticket::new(ticket.into()));
        let stored = Stored { state: self.state.as_ref(), record: None };
        let effects = decide_together(
            Operation::Release,
            &[charge],
            &[stored],
            self.max_clock_skew,
            self.now,
        );
        self.apply((effects.decisions[0], effects.changes[0]))
    }

    /// Carries out what is not a check, or tells the cost of the check.
    pub fn carry_out(&mut self, action: Action) -> Option<Cost> {
        match action {
            Action::Check(size) => return Some(self.cost(size)),
            Action::Refund(size) => drop(self.refund(self.cost(size))),
            Action::Release(before) => drop(self.release(self.tickets.saturating_sub(before))),
            Action::SetQuota(changed) => self.quota = changed,
        }
        None
    }

    /// Carries an action out, and answers it; a change of the quota by what is there now.
    pub fn carry_out_and_answer(&mut self, action: Action) -> Decision {
        match self.carry_out(action) {
            Some(cost) => self.check(cost).0,
            None if matches!(action, Action::SetQuota(_)) => self.peek(),
            None => self.last.unwrap_or_else(|| self.peek()),
        }
    }

    fn apply(&mut self, (decision, change): (Decision, Change)) -> (Decision, Change) {
        change.apply(&mut self.state);
        self.last = Some(decision);
        (decision, change)
    }

    /// Moves time, within the range of a timestamp.
    pub fn advance(&mut self, moved: Move) {
        let now_us = i128::from(self.now.as_micros());
        let period_us = as_i128(self.quota.rate().period());
        let last = self.last;
        let delta = match moved {
            Move::Stay => 0,
            Move::Micro => 1,
            Move::Period(thousandths) => period_us * i128::from(thousandths) / 1_000,
            Move::ToBoundary(parts, edge) => {
                let part_us = (period_us / i128::from(parts)).max(1);
                ((now_us / part_us + 1) * part_us - now_us + i128::from(edge)).max(0)
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
        let now = (now_us + delta).max(0);
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

fn as_i128(duration: Duration) -> i128 {
    i128::try_from(duration.as_micros()).unwrap_or(i128::MAX)
}
