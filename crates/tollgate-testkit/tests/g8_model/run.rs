//! One bucket of the engine, driven along a random timeline.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, Record, RecordChange, State,
    Stored, Ticket, Timestamp, decide_together,
};
use tollgate_testkit::Answer;

use crate::strategies::{Move, Size};

/// A bucket with its quota, what is stored for it, and the time.
#[derive(Clone, Debug)]
pub struct Run {
    pub quota: Quota,
    pub now: Timestamp,
    state: Option<State>,
    records: HashMap<Ticket, Record>,
    last: Option<Answer>,
}

impl Run {
    pub fn new(quota: Quota, now: Timestamp) -> Self {
        Self { quota, now, state: None, records: HashMap::new(), last: None }
    }

    /// Carries out an operation as a store does.
    pub fn apply(&mut self, operation: Operation, charge: &Charge<'_>) -> Answer {
        let judges =
            matches!(operation, Operation::Spend | Operation::Look | Operation::Reserve { .. });
        if judges && !charge.quota.admits(charge.cost) {
            return Answer::Impossible;
        }
        let ticket = charge.ticket.filter(|_| operation.has_records());
        let record = ticket.and_then(|ticket| self.records.get(&ticket).copied());
        let stored = Stored { state: self.state.as_ref(), record };
        let effects =
            decide_together(operation, &[*charge], &[stored], MAX_CLOCK_SKEW_DEFAULT, self.now);
        effects.changes[0].apply(&mut self.state);
        match (effects.records[0], ticket) {
            (RecordChange::Keep, _) => {}
            (RecordChange::Store(record), Some(ticket)) => {
                self.records.insert(ticket, record);
            }
            (RecordChange::Remove, Some(ticket)) => {
                self.records.remove(&ticket);
            }
            (change, None) => panic!("{change:?} without a ticket"),
        }
        let answer = Answer::from(effects.decisions[0]);
        self.last = Some(answer);
        answer
    }

    /// Moves time, within the range of a timestamp.
    pub fn advance(&mut self, moved: Move) {
        let (retry_after, reset_after) = match self.last {
            Some(Answer::Allow { reset_after, .. }) => (Duration::ZERO, reset_after),
            Some(Answer::Deny { reset_after, retry_after, .. }) => (retry_after, reset_after),
            _ => (Duration::ZERO, Duration::ZERO),
        };
        let now = i128::from(self.now.as_micros());
        let delta = match moved {
            Move::Stay => 0,
            Move::Micro => 1,
            Move::Fill(thousandths) => {
                as_i128(self.quota.fill_time()) * i128::from(thousandths) / 1_000
            }
            Move::ToCell(edge) => {
                let width = as_i128(self.quota.rate().period()) / i128::from(self.cells());
                let width = width.max(1);
                width - now % width + i128::from(edge)
            }
            Move::ToRetry(edge) => as_i128(retry_after) + i128::from(edge),
            Move::ToReset(edge) => as_i128(reset_after) + i128::from(edge),
            Move::Back(micros) => -i128::from(micros),
        };
        let now = u64::try_from((now + delta).max(0)).unwrap_or(u64::MAX);
        self.now = Timestamp::from_micros(now);
    }

    /// The cost that `size` stands for now.
    pub fn cost(&self, size: Size) -> Cost {
        let burst = u64::from(self.quota.burst());
        let remaining = || {
            let peek = Charge::new("key", &self.quota, Cost::ZERO);
            let (decision, _) = peek.decide(self.state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, self.now);
            u64::from(decision.remaining())
        };
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

    fn cells(&self) -> u16 {
        match self.quota.algorithm() {
            Algorithm::SlidingWindow { cells } => cells.get(),
            _ => 1,
        }
    }
}

fn as_i128(duration: Duration) -> i128 {
    i128::try_from(duration.as_micros()).unwrap_or(i128::MAX)
}
