//! What follows from a charge, and how it is written.

use std::time::Duration;

use tollgate_core::{
    Change, Charge, Decision, Edit, Effects, Operation, RecordChange, Stored, Timestamp,
};

use crate::room::Balance;
use crate::shard::{Key, Refilling, Shard};
use crate::shelf::micros;
use crate::store::MemoryStore;

/// What follows from one charge: its decision, and what it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect<'e> {
    pub(super) decision: &'e Decision,
    pub(super) change: &'e Change,
    pub(super) record: &'e RecordChange,
}

impl<'e> Effect<'e> {
    pub(super) fn of(effects: &'e Effects, index: usize) -> Self {
        Self {
            decision: &effects.decisions[index],
            change: &effects.changes[index],
            record: &effects.records[index],
        }
    }

    /// Returns what it adds to what is stored and what it removes.
    pub(super) fn balance(self, stored: &Stored<'_>) -> Balance {
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

    pub(super) fn is_write(self) -> bool {
        *self.change != Change::Keep || *self.record != RecordChange::Keep
    }
}

impl MemoryStore {
    /// Returns what is stored for a charge.
    pub(super) fn stored<'s>(
        &self,
        shard: &'s Shard,
        operation: Operation,
        (key, charge): (Key<'_>, &Charge<'_>),
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
        effect: Effect<'_>,
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
        match *effect.record {
            RecordChange::Keep => {}
            RecordChange::Store(record) => {
                shard.store_record(key, (ticket, record), now, &self.hasher);
            }
            RecordChange::Remove => shard.remove_record(key, ticket, &self.hasher),
        }
    }
}
