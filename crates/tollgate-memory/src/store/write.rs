//! What one request changes.

use std::time::Duration;

use tollgate_core::{
    Change, Charge, Decision, Edit, Effects, Operation, Record, RecordChange, Stored, Timestamp,
};

use crate::room::Reservation;
use crate::shard::{Key, Refilling};
use crate::shard_lock::Locked;
use crate::shelf::micros;
use crate::store::MemoryStore;

/// What follows from one charge: its decision, and what it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) decision: Decision,
    pub(super) change: Change,
    pub(super) record: RecordChange,
}

impl Effect {
    pub(super) fn of(effects: &Effects, index: usize) -> Self {
        Self {
            decision: effects.decisions[index],
            change: effects.changes[index],
            record: effects.records[index],
        }
    }

    /// Returns for how many keys it needs room beside what is stored.
    pub(super) fn need(&self, stored: &Stored<'_>) -> usize {
        let state = stored.state.is_none() && matches!(self.change, Change::Edit(_));
        let record = stored.record.is_none() && matches!(self.record, RecordChange::Store(_));
        usize::from(state) + usize::from(record)
    }

    pub(super) fn is_write(&self) -> bool {
        self.change != Change::Keep || self.record != RecordChange::Keep
    }
}

impl MemoryStore {
    /// Returns the record that `operation` reads for a charge.
    pub(super) fn record(
        &self,
        shard: &Locked<'_>,
        operation: Operation,
        charge: &Charge<'_>,
        key: Key<'_>,
    ) -> Option<Record> {
        let ticket = charge.ticket.filter(|_| operation.has_records())?;
        shard.record(key, ticket, &self.hasher)
    }

    /// Writes what a charge changes, in room that `reservation` holds.
    pub(super) fn write(
        &self,
        shard: &mut Locked<'_>,
        (key, charge): (Key<'_>, &Charge<'_>),
        effect: Effect,
        reservation: &mut Reservation<'_>,
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
                let refilling = Refilling { edit: effect.change, full_at, stay };
                if shard.edit(key, refilling, now, &self.hasher) {
                    reservation.spend(1);
                }
            }
            Change::Remove => {
                if shard.remove(key, &self.hasher) {
                    self.room.give_back(1);
                }
            }
        }
        let Some(ticket) = charge.ticket else { return };
        match effect.record {
            RecordChange::Keep => {}
            RecordChange::Store(record) => {
                if shard.store_record(key, (ticket, record), now, &self.hasher) {
                    reservation.spend(1);
                }
            }
            RecordChange::Remove => {
                if shard.remove_record(key, ticket, &self.hasher) {
                    self.room.give_back(1);
                }
            }
        }
    }
}
