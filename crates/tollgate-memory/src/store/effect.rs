//! What follows from a charge, and how it is written.

use std::slice;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Change, Charge, Decision, Edit, Effects, Operation, RecordChange, Stored, Timestamp,
    decide_together,
};

use crate::room::Balance;
use crate::shard::{Key, Refilling, Shard};
use crate::shard_lock::Locked;
use crate::shelf::micros;
use crate::store::MemoryStore;
use crate::store::lock_plan::LockPlan;

/// What follows from one charge: its decision, and what it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) decision: Decision,
    change: Change,
    record: RecordChange,
}

impl Effect {
    pub(super) fn of(effects: &Effects, index: usize) -> Self {
        Self {
            decision: effects.decisions[index],
            change: effects.changes[index],
            record: effects.records[index],
        }
    }

    /// Returns what it adds to what is stored and what it removes.
    pub(super) fn balance(&self, stored: &Stored<'_>) -> Balance {
        let (has_state, has_record) = (stored.state.is_some(), stored.record.is_some());
        let state = match self.change {
            Change::Keep => Balance::default(),
            Change::Edit(_) => Balance::added(!has_state),
            Change::Remove => Balance::removed(has_state),
        };
        let record = match self.record {
            RecordChange::Keep => Balance::default(),
            RecordChange::Store(_) => Balance::added(!has_record),
            RecordChange::Remove => Balance::removed(has_record),
        };
        state + record
    }

    pub(super) fn is_write(&self) -> bool {
        self.change != Change::Keep || self.record != RecordChange::Keep
    }
}

impl MemoryStore {
    /// Decides all charges of a request, and tells what they add and remove.
    pub(super) fn decide_all(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        (plan, locked): (&LockPlan, &[Locked<'_>]),
        now: Timestamp,
    ) -> (Effects, Balance) {
        let stored: SmallVec<[Stored<'_>; 4]> = charges
            .iter()
            .zip(&plan.places)
            .map(|(charge, place)| {
                self.stored(&locked[place.lock], operation, place.key(charge), charge)
            })
            .collect();
        let effects = decide_together(operation, charges, &stored, self.max_clock_skew, now);
        let balance = |(index, stored)| Effect::of(&effects, index).balance(stored);
        let balance = stored.iter().enumerate().map(balance).sum();
        (effects, balance)
    }

    /// Decides a single charge as [`decide_together`] does; for what is asked most, at less than
    /// half the cost.
    pub(super) fn decide_alone(
        &self,
        operation: Operation,
        charge: &Charge<'_>,
        (key, shard): (Key<'_>, &Shard),
        now: Timestamp,
    ) -> (Effect, Balance) {
        let stored = self.stored(shard, operation, key, charge);
        let (decision, change) = match operation {
            Operation::Spend => charge.decide(stored.state, self.max_clock_skew, now),
            Operation::Look => charge.judge(stored.state, self.max_clock_skew, now).keep(),
            _ => {
                let (charges, stored) = (slice::from_ref(charge), slice::from_ref(&stored));
                let effects = decide_together(operation, charges, stored, self.max_clock_skew, now);
                let effect = Effect::of(&effects, 0);
                return (effect, effect.balance(&stored[0]));
            }
        };
        let effect = Effect { decision, change, record: RecordChange::Keep };
        (effect, effect.balance(&stored))
    }

    /// Returns what is stored for a charge.
    fn stored<'s>(
        &self,
        shard: &'s Shard,
        operation: Operation,
        key: Key<'_>,
        charge: &Charge<'_>,
    ) -> Stored<'s> {
        let ticket = charge.ticket.filter(|_| operation.has_records());
        let record = ticket.and_then(|ticket| shard.record(key, ticket, &self.hasher));
        Stored { state: shard.state(key), record }
    }

    /// Writes what a charge changes. The room for it is the caller's to hold and to settle.
    pub(super) fn write(
        &self,
        shard: &mut Shard,
        (key, charge): (Key<'_>, &Charge<'_>),
        effect: &Effect,
        now: Timestamp,
    ) {
        match effect.change {
            Change::Keep => {}
            Change::Edit(edit) => {
                let reset_after = micros(effect.decision.reset_after());
                let full_at = now.as_micros().saturating_add(reset_after);
                debug_assert!(full_at > now.as_micros(), "G5: a full bucket is not stored");
                let stay = match edit {
                    Edit::Bucket(_) | Edit::Cells(_) => Duration::ZERO,
                    _ => charge.quota.fill_time(),
                };
                let refilling = Refilling { change: effect.change, full_at, stay };
                shard.edit(key, refilling, now, &self.hasher);
            }
            Change::Remove => shard.remove(key, &self.hasher),
        }
        let Some(ticket) = charge.ticket else { return };
        match effect.record {
            RecordChange::Keep => {}
            RecordChange::Store(record) => {
                shard.store_record(key, (ticket, record), now, &self.hasher);
            }
            RecordChange::Remove => shard.remove_record(key, ticket, &self.hasher),
        }
    }
}
