//! One shard: its buckets, and the records beside them.

use std::time::Duration;

use tollgate_core::{Change, Record, State, Ticket, Timestamp};

use crate::kept::{KeptRecord, KeptState};
use crate::shelf::{Settled, Shelf, micros};

/// Hashes keys with a seed of its own per store, so that nobody can aim keys at one shard. The
/// model checker replays a run, which a random seed would change.
#[cfg(not(loom))]
pub(crate) type KeyHasher = foldhash::quality::RandomState;
#[cfg(loom)]
pub(crate) type KeyHasher = foldhash::quality::FixedState;

/// The key of a bucket with its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) hash: u64,
    pub(crate) text: &'a str,
}

/// An edit of a bucket's state, and when the bucket is full after it, in microseconds since the
/// epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refilling<'a> {
    pub(crate) change: &'a Change,
    pub(crate) full_at: u64,
    /// How long the state may have to stay, if it does not tell when it was written.
    pub(crate) stay: Duration,
}

/// A part of the buckets and of the records beside them, under one lock.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    states: Shelf<KeptState>,
    records: Shelf<KeptRecord>,
    /// The latest time of a write since the shard was last wound back.
    newest: Timestamp,
}

impl Shard {
    /// Returns the stored state of a bucket, `None` if it is full.
    pub(crate) fn state(&self, key: Key<'_>) -> Option<&State> {
        self.states.find(key.hash, |kept| *kept.key == *key.text)?.state.as_ref()
    }

    /// Changes the state of a bucket, which may not be stored yet.
    pub(crate) fn edit(
        &mut self,
        key: Key<'_>,
        Refilling { change, full_at, stay }: Refilling<'_>,
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.newest = self.newest.max(now);
        self.states.note_stay(micros(stay));
        let edit = |kept: &mut KeptState| {
            change.apply(&mut kept.state);
            kept.full_at = full_at;
        };
        if self.states.edit(key.hash, |kept| *kept.key == *key.text, edit, hasher) {
            return;
        }
        let mut state = None;
        change.apply(&mut state);
        self.states.insert(key.hash, KeptState { key: key.text.into(), state, full_at }, hasher);
    }

    /// Removes a bucket, which fills it.
    pub(crate) fn remove(&mut self, key: Key<'_>, hasher: &KeyHasher) {
        self.states.remove(key.hash, |kept| *kept.key == *key.text, hasher);
    }

    /// Returns the stored record of a ticket beside a bucket.
    pub(crate) fn record(
        &self,
        key: Key<'_>,
        ticket: Ticket,
        hasher: &KeyHasher,
    ) -> Option<Record> {
        let hash = KeptRecord::hash_of(key.hash, ticket, hasher);
        self.records.find(hash, |kept| kept.is(key.text, ticket)).map(|kept| kept.record)
    }

    /// Stores the record of a ticket beside a bucket.
    pub(crate) fn store_record(
        &mut self,
        key: Key<'_>,
        (ticket, record): (Ticket, Record),
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.newest = self.newest.max(now);
        self.records.note_stay(micros(record.ends.saturating_since(now)));
        let hash = KeptRecord::hash_of(key.hash, ticket, hasher);
        let is_it = |kept: &KeptRecord| kept.is(key.text, ticket);
        if self.records.edit(hash, is_it, |kept| kept.record = record, hasher) {
            return;
        }
        let kept = KeptRecord { key: key.text.into(), key_hash: key.hash, ticket, record };
        self.records.insert(hash, kept, hasher);
    }

    /// Removes the record of a ticket beside a bucket.
    pub(crate) fn remove_record(&mut self, key: Key<'_>, ticket: Ticket, hasher: &KeyHasher) {
        let hash = KeptRecord::hash_of(key.hash, ticket, hasher);
        self.records.remove(hash, |kept| kept.is(key.text, ticket), hasher);
    }

    /// Removes a bucket, and returns how many there were. Records beside it stay.
    pub(crate) fn forget(&mut self, key: Key<'_>, hasher: &KeyHasher) -> usize {
        let before = self.len();
        self.remove(key, hasher);
        before - self.len()
    }

    fn len(&self) -> usize {
        self.states.len() + self.records.len()
    }

    /// Removes everything and returns how many buckets and records there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.len();
        *self = Self::default();
        count
    }

    /// Returns the time before which no bucket is full and no record ends.
    pub(crate) fn first_end(&self) -> u64 {
        self.states.first_end().min(self.records.first_end())
    }

    /// Returns the latest time of a write.
    pub(crate) const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Settles the bucket or the record that may end first: evicts it if it had ended by
    /// `ended_by`.
    ///
    /// Returns `None` if none had ended by then. Whoever calls this ends with
    /// [`tidy`](Self::tidy).
    pub(crate) fn settle(&mut self, ended_by: u64, hasher: &KeyHasher) -> Option<Settled> {
        if self.records.first_end() < self.states.first_end() {
            self.records.settle(ended_by, hasher)
        } else {
            self.states.settle(ended_by, hasher)
        }
    }

    /// Gives memory back after buckets or records have gone.
    pub(crate) fn tidy(&mut self, hasher: &KeyHasher) {
        self.states.tidy(hasher);
        self.records.tidy(hasher);
    }

    /// Moves what lies more than `max_clock_skew` ahead of `now` to `now`, with the units it has
    /// (G4).
    pub(crate) fn wind_back(
        &mut self,
        now: Timestamp,
        max_clock_skew: Duration,
        hasher: &KeyHasher,
    ) {
        self.states.wind_back(now, max_clock_skew, hasher);
        self.records.wind_back(now, max_clock_skew, hasher);
        self.newest = self.newest.min(now.saturating_add(max_clock_skew));
    }

    /// Returns the heap memory of the shard, without what the allocator adds to each key.
    pub(crate) fn bytes(&self) -> usize {
        self.states.bytes() + self.records.bytes()
    }
}
