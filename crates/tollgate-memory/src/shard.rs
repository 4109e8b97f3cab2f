//! One shard: its buckets, and the records beside them.

use std::time::Duration;

use tollgate_core::{Change, Charge, Decision, Record, Ticket, Timestamp};

use crate::kept::{KeptRecord, KeptState};
use crate::room::Count;
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

/// What a check has spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    Nothing,
    /// It puts the end of the bucket off.
    InOrder,
    /// The bucket now ends earlier than it did.
    OutOfOrder,
}

/// A part of the buckets and of the records beside them, under one lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Shard {
    states: Shelf<KeptState>,
    records: Shelf<KeptRecord>,
}

impl Shard {
    /// Returns the slot of a bucket, `None` if it is full. It holds until a bucket is added or removed.
    #[inline(always)]
    pub(crate) fn find(&self, key: Key<'_>) -> Option<usize> {
        self.states.find(key.hash, |kept| kept.is(key.text))
    }

    #[inline]
    pub(crate) fn kept(&self, slot: usize) -> Option<&KeptState> {
        self.states.at(slot)
    }

    /// Decides a charge to a token bucket or a leaky bucket with a short key in a slot, and writes
    /// what is spent. `None` if it is another bucket.
    #[inline(always)]
    pub(crate) fn spend_short(
        &mut self,
        (hash, slot): (u64, usize),
        charge: &Charge<'_>,
        max_clock_skew: Duration,
        now: Timestamp,
        spent: &mut Spent,
        hasher: &KeyHasher,
    ) -> Option<Decision> {
        let Some(KeptState::Short { full_at, bucket, .. }) = self.states.at_mut(slot) else {
            return None;
        };
        let (decision, is_changed) = charge.decide_bucket(bucket, max_clock_skew, now)?;
        if !is_changed {
            return Some(decision);
        }
        let ends = now.as_micros().saturating_add(micros(decision.reset_after()));
        debug_assert!(ends > now.as_micros(), "G5: a full bucket is not stored");
        let ended = std::mem::replace(full_at, ends);
        *spent = if ends >= ended { Spent::InOrder } else { Spent::OutOfOrder };
        if *spent == Spent::OutOfOrder {
            self.states.put_forward(hash, ends, hasher);
        }
        Some(decision)
    }

    /// Changes the state of a bucket, which may not be stored yet. Tells whether the order in which
    /// buckets end has changed.
    #[inline]
    pub(crate) fn edit(
        &mut self,
        (key, slot): (Key<'_>, Option<usize>),
        Refilling { change, full_at, stay }: Refilling<'_>,
        hasher: &KeyHasher,
    ) -> bool {
        self.states.note_stay(micros(stay));
        if let Some(slot) = slot {
            let edit = |kept: &mut KeptState| kept.edit(change, full_at);
            return self.states.edit((key.hash, slot), edit, hasher);
        }
        self.states.insert(key.hash, KeptState::new(key.text, change, full_at), hasher);
        true
    }

    /// Removes a bucket, which fills it.
    pub(crate) fn remove(&mut self, key: Key<'_>, hasher: &KeyHasher) {
        self.states.remove(key.hash, |kept| kept.is(key.text), hasher);
    }

    /// Returns the stored record of a ticket beside a bucket.
    pub(crate) fn record(
        &self,
        key: Key<'_>,
        ticket: Ticket,
        hasher: &KeyHasher,
    ) -> Option<Record> {
        let hash = KeptRecord::hash_of(key.hash, ticket, hasher);
        let slot = self.records.find(hash, |kept| kept.is(key.text, ticket))?;
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
        let hash = KeptRecord::hash_of(key.hash, ticket, hasher);
        if let Some(slot) = self.records.find(hash, |kept| kept.is(key.text, ticket)) {
            self.records.edit((hash, slot), |kept| kept.record = record, hasher);
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
    pub(crate) fn forget(&mut self, key: Key<'_>, hasher: &KeyHasher) -> Count {
        let before = self.count();
        self.remove(key, hasher);
        before - self.count()
    }

    /// Returns how many buckets and records there are.
    pub(crate) const fn count(&self) -> Count {
        Count { buckets: self.states.len(), records: self.records.len() }
    }

    /// Removes everything and returns how many buckets and records there were.
    pub(crate) fn clear(&mut self) -> Count {
        let count = self.count();
        *self = Self::default();
        count
    }

    /// Returns the time before which no bucket is full and no record ends.
    pub(crate) fn first_end(&self) -> u64 {
        self.states.first_end().min(self.records.first_end())
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
    }

    /// Returns the heap memory of the shard, without what the allocator adds to each key.
    pub(crate) fn bytes(&self) -> usize {
        self.states.bytes() + self.records.bytes()
    }
}
