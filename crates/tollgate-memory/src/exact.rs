//! What a shard keeps with its keys: states that are not buckets, and records.

use std::time::Duration;

use tollgate_core::{Change, Record, State, Ticket, Timestamp};

use crate::kept::{KeptRecord, KeptState};
use crate::key_hash::{Key, KeyHasher};
use crate::room::Count;
use crate::shelf::{Settled, Shelf, micros};

/// The states of any kind that lie under their keys, and the records.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    states: Shelf<KeptState>,
    records: Shelf<KeptRecord>,
}

impl Exact {
    /// Returns the slot of a state. It holds until a state is added or removed.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<usize> {
        self.states.find(key.hash, |kept| kept.is(key))
    }

    pub(crate) fn state(&self, slot: usize) -> Option<&State> {
        self.states.at(slot)?.state()
    }

    /// Changes a state, which may not be stored yet, and tells whether the order has changed. Without
    /// an instant of its own it may have to stay for `stay`.
    pub(crate) fn edit(
        &mut self,
        (key, slot): (Key<'_>, Option<usize>),
        change: &Change,
        (full_at, stay): (u64, Duration),
    ) -> bool {
        self.states.note_stay(micros(stay));
        if let Some(slot) = slot {
            return self.states.edit(slot, |kept| kept.edit(change, full_at));
        }
        self.states.insert(KeptState::new(key, change, full_at));
        true
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.states.remove(slot);
    }

    /// Returns the record of a ticket beside a bucket.
    pub(crate) fn record(
        &self,
        key: Key<'_>,
        ticket: Ticket,
        hasher: &KeyHasher,
    ) -> Option<Record> {
        let hash = KeptRecord::hash_of(key, ticket, hasher);
        let slot = self.records.find(hash, |kept| kept.is(key, ticket))?;
        Some(self.records.at(slot)?.record)
    }

    /// Stores the record of a ticket beside a bucket.
    pub(crate) fn store_record(
        &mut self,
        key: Key<'_>,
        (ticket, record): (Ticket, Record),
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.records.note_stay(micros(record.ends.saturating_since(now)));
        let hash = KeptRecord::hash_of(key, ticket, hasher);
        if let Some(slot) = self.records.find(hash, |kept| kept.is(key, ticket)) {
            self.records.edit(slot, |kept| kept.record = record);
            return;
        }
        self.records.insert(KeptRecord::new(key, (ticket, record), hash));
    }

    /// Removes the record of a ticket beside a bucket.
    pub(crate) fn remove_record(&mut self, key: Key<'_>, ticket: Ticket, hasher: &KeyHasher) {
        let hash = KeptRecord::hash_of(key, ticket, hasher);
        if let Some(slot) = self.records.find(hash, |kept| kept.is(key, ticket)) {
            self.records.remove(slot);
        }
    }

    pub(crate) const fn count(&self) -> Count {
        Count { buckets: self.states.len(), records: self.records.len() }
    }

    /// Returns the time before which nothing ends.
    pub(crate) fn first_end(&self) -> u64 {
        self.states.first_end().min(self.records.first_end())
    }

    /// Settles the state or the record that may end first, as [`Shelf::settle`] does.
    pub(crate) fn settle(&mut self, ended_by: u64) -> Option<Settled> {
        if self.records.first_end() < self.states.first_end() {
            self.records.settle(ended_by)
        } else {
            self.states.settle(ended_by)
        }
    }

    pub(crate) fn tidy(&mut self) {
        self.states.tidy();
        self.records.tidy();
    }

    pub(crate) fn wind_back(&mut self, now: Timestamp, max_clock_skew: Duration) {
        self.states.wind_back(now, max_clock_skew);
        self.records.wind_back(now, max_clock_skew);
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.states.bytes() + self.records.bytes()
    }
}
