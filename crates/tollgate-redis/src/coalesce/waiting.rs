//! Who waits to go with others.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::{Charge, Cost, Quota, Timestamp};

use super::Told;

/// Checks that wait for a call, and the calls that are in flight before them.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) in_flight: usize,
}

/// One check that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) charges: Vec<Kept>,
    /// The time to decide at, if the callers' clocks do.
    pub(super) now: Timestamp,
    deadline: Instant,
    answer: oneshot::Sender<Told>,
}

/// A charge that outlives the call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) key: String,
    pub(super) quota: Quota,
    pub(super) cost: Cost,
    pub(super) shadow: bool,
}

impl Kept {
    pub(super) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.key, &self.quota, self.cost).with_shadow(self.shadow)
    }
}

impl Waiting {
    pub(super) fn new(
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
        answer: oneshot::Sender<Told>,
    ) -> Self {
        let kept = |charge: &Charge<'_>| {
            let Charge { key, quota, cost, shadow, .. } = *charge;
            Kept { key: key.to_owned(), quota: *quota, cost, shadow }
        };
        Self { charges: charges.iter().map(kept).collect(), now, deadline, answer }
    }

    /// Tells whether somebody still waits for the answer.
    pub(super) fn is_wanted(&self, at: Instant) -> bool {
        !self.answer.is_closed() && at < self.deadline
    }

    pub(super) fn tell(self, told: Told) {
        // Whoever has gone away meanwhile has spent, as with a call of its own.
        let _ = self.answer.send(told);
    }
}
