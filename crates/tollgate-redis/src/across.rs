//! One request whose charges are in several hash slots of a cluster.
//!
//! Each slot decides in one atomic step, but not all of them in one. So that a request spends in
//! all or in none (G7), what some slots have taken is given back when another one denies or fails.
//! Until then others see it as spent: too little may be admitted for the time of a round trip, and
//! never too much. If giving back fails, the units come back as spent ones do.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{
    Charge, Cost, Decision, Decisions, Operation, Quota, StoreError, Ticket, Timestamp,
};

use crate::call::Step;
use crate::error;
use crate::key::HashSlot;
use crate::reply::Answer;
use crate::store::Inner;

/// The charges of a request that are in one slot.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    slot: HashSlot,
    charges: Vec<Placed>,
}

/// A charge that outlives the call, and its place among the charges of the request.
#[derive(Clone, Debug)]
struct Placed {
    place: usize,
    key: String,
    quota: Quota,
    cost: Cost,
    shadow: bool,
    ticket: Option<Ticket>,
}

impl Placed {
    fn charge(&self) -> Charge<'_> {
        let Self { key, quota, cost, shadow, ticket, .. } = self;
        Charge { key, quota, cost: *cost, shadow: *shadow, ticket: *ticket }
    }
}

/// What the script said on the charges of one slot, and when.
type Said = Result<(Vec<Answer>, Timestamp), StoreError>;

impl Group {
    /// Puts the charges of each slot together, in their order.
    pub(crate) fn of(
        charges: &[Charge<'_>],
        slot_of: impl Fn(&Charge<'_>) -> HashSlot,
    ) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (place, charge) in charges.iter().enumerate() {
            let Charge { key, quota, cost, shadow, ticket } = *charge;
            let placed = Placed { place, key: key.to_owned(), quota: *quota, cost, shadow, ticket };
            let slot = slot_of(charge);
            match groups.iter_mut().find(|group| group.slot == slot) {
                Some(group) => group.charges.push(placed),
                None => groups.push(Self { slot, charges: vec![placed] }),
            }
        }
        groups
    }

    async fn send(&self, inner: &Inner, step: Step, now: Timestamp, deadline: Instant) -> Said {
        let charges: Vec<_> = self.charges.iter().map(Placed::charge).collect();
        let call = inner.call(step, &charges, now);
        let reply = inner.send(self.slot, &call, deadline).await?;
        call.answers(&reply).ok_or_else(|| error::unintelligible(&inner.transport.target.name()))
    }

    /// Sends the charges in a task of their own.
    fn start(
        self,
        inner: &Arc<Inner>,
        step: Step,
        now: Timestamp,
        deadline: Instant,
    ) -> JoinHandle<(Self, Said)> {
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            let said = self.send(&inner, step, now, deadline).await;
            (self, said)
        })
    }
}

/// Applies an operation to charges in several slots.
///
/// # Cancel safety
///
/// It goes on in a task of its own if the future is dropped.
pub(crate) async fn apply(
    inner: &Arc<Inner>,
    operation: Operation,
    groups: Vec<Group>,
    now: Timestamp,
) -> Result<Decisions, StoreError> {
    let request = Request { inner: Arc::clone(inner), operation, now };
    let task = tokio::spawn(async move { request.run(groups).await });
    match task.await {
        Ok(decisions) => decisions,
        Err(_) => Err(error::cancelled(&inner.transport.target.name())),
    }
}

struct Request {
    inner: Arc<Inner>,
    operation: Operation,
    now: Timestamp,
}

impl Request {
    async fn run(self, groups: Vec<Group>) -> Result<Decisions, StoreError> {
        let deadline = self.inner.transport.deadline();
        let step = Step::Apply(self.operation);
        let started: Vec<_> = groups
            .into_iter()
            .map(|group| group.start(&self.inner, step, self.now, deadline))
            .collect();
        let mut failure = None;
        let mut said = Vec::with_capacity(started.len());
        for group in started {
            match group.await {
                Ok((group, Ok((answers, at)))) => said.push((group, answers, at)),
                Ok((_, Err(error))) => failure = failure.or(Some(error)),
                Err(_) => {
                    let servers = self.inner.transport.target.name();
                    failure = failure.or_else(|| Some(error::cancelled(&servers)));
                }
            }
        }
        let mut decided: Vec<(usize, Decision)> = Vec::new();
        let mut is_denied = false;
        for (group, answers, _) in &said {
            for (charge, answer) in group.charges.iter().zip(answers) {
                decided.push((charge.place, answer.decision));
                is_denied |= answer.decision.is_deny() && !charge.shadow;
            }
        }
        let reserved = matches!(self.operation, Operation::Reserve { .. });
        if (reserved || self.operation == Operation::Spend) && (is_denied || failure.is_some()) {
            let has_failed = failure.is_some();
            for undone in self.undo(said, reserved, has_failed, deadline).await {
                for (place, decision) in &mut decided {
                    if *place == undone.0 {
                        *decision = undone.1;
                    }
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        decided.sort_unstable_by_key(|(place, _)| *place);
        Ok(decided.into_iter().map(|(_, decision)| decision).collect())
    }

    /// Gives back what was taken, also by shadow charges if the request fails, and returns what is
    /// there after it, as far as that is known before the deadline.
    async fn undo(
        &self,
        said: Vec<(Group, Vec<Answer>, Timestamp)>,
        reserved: bool,
        has_failed: bool,
        deadline: Instant,
    ) -> Vec<(usize, Decision)> {
        let mut started = Vec::new();
        for (group, answers, at) in said {
            let charges: Vec<_> = group
                .charges
                .into_iter()
                .zip(answers)
                .filter(|(charge, answer)| answer.taken && (has_failed || !charge.shadow))
                .map(|(charge, _)| charge)
                .collect();
            if !charges.is_empty() {
                let group = Group { charges, ..group };
                let step = Step::Undo { since: at, reserved };
                // It has a deadline of its own, so that what is late is still given back.
                let own = self.inner.transport.deadline();
                started.push(group.start(&self.inner, step, self.now, own));
            }
        }
        let mut undone = Vec::new();
        for group in started {
            if let Ok(Ok((group, Ok((answers, _))))) = timeout_at(deadline, group).await {
                let places = group.charges.iter().map(|charge| charge.place);
                undone.extend(places.zip(answers.iter().map(|answer| answer.decision)));
            }
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charges_of_a_slot_stay_together_and_know_their_places() {
        let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
        let keys = ["{a}1", "b", "{a}2", "c", "{a}3"];
        let charges = keys.map(|key| Charge::new(key, &quota, Cost::new(key.len() as u64)));
        let groups = Group::of(&charges, |charge| HashSlot::of("tollgate", charge.key));
        let places: Vec<Vec<_>> = groups
            .iter()
            .map(|group| group.charges.iter().map(|charge| charge.place).collect())
            .collect();
        assert_eq!(places, [vec![0, 2, 4], vec![1], vec![3]]);
        let again = groups[0].charges[1].charge();
        assert_eq!((again.key, again.cost), ("{a}2", Cost::new(4)));
    }
}
