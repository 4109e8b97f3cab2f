//! What follows from a charge, and how it is written.

use std::time::Duration;

use tollgate_core::{
    Change, Charge, Decision, Edit, Effects, Operation, Record, RecordChange, Timestamp,
};

use crate::key_hash::Key;
use crate::room::Balance;
use crate::shard::{Refilling, Shard, Slot};
use crate::shard_lock::Locked;
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
    #[inline]
    pub(super) fn balance(self, has_state: bool, has_record: bool) -> Balance {
        let mut balance = Balance::default();
        match self.change {
            Change::Keep => {}
            Change::Edit(_) => balance.added.buckets = usize::from(!has_state),
            Change::Remove => balance.removed.buckets = usize::from(has_state),
        }
        match self.record {
            RecordChange::Keep => {}
            RecordChange::Store(_) => balance.added.records = usize::from(!has_record),
            RecordChange::Remove => balance.removed.records = usize::from(has_record),
        }
        balance
    }

    #[inline]
    pub(super) fn is_write(self) -> bool {
        !matches!((self.change, self.record), (Change::Keep, RecordChange::Keep))
    }
}

impl MemoryStore {
    /// Returns the stored record of a charge's ticket, if the operation has records.
    pub(super) fn record(
        &self,
        shard: &Shard,
        operation: Operation,
        (key, charge): (Key<'_>, &Charge<'_>),
    ) -> Option<Record> {
        let ticket = charge.ticket.filter(|_| operation.has_records())?;
        shard.record(key, ticket, &self.hasher)
    }

    /// Writes what a charge changes in its bucket, which is in `slot`, and in its record. The room
    /// for it is the caller's to hold and to settle.
    #[inline]
    pub(super) fn write(
        &self,
        shard: &mut Locked<'_>,
        (key, slot): (Key<'_>, Option<Slot>),
        charge: &Charge<'_>,
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
                let refilling = Refilling { edit, quota: charge.quota, full_at, stay };
                shard.edit((key, slot), refilling, now, &self.hasher);
            }
            Change::Remove => shard.remove(slot),
        }
        if *effect.record != RecordChange::Keep {
            self.write_record(shard, (key, charge), *effect.record, now);
        }
    }

    fn write_record(
        &self,
        shard: &mut Locked<'_>,
        (key, charge): (Key<'_>, &Charge<'_>),
        change: RecordChange,
        now: Timestamp,
    ) {
        let Some(ticket) = charge.ticket else { return };
        match change {
            RecordChange::Keep => {}
            RecordChange::Store(record) => {
                shard.store_record(key, (ticket, record), now, &self.hasher);
            }
            RecordChange::Remove => shard.remove_record(key, ticket, &self.hasher),
        }
    }
}
