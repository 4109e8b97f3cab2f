//! What a shard keeps: states of buckets, and records beside them.

use std::hash::BuildHasher;
use std::time::Duration;

use tollgate_core::{Record, State, Ticket, Timestamp};

use crate::shard::KeyHasher;
use crate::shelf::{Item, WindBack, micros};

/// A stored bucket.
#[derive(Debug)]
pub(crate) struct KeptState {
    pub(crate) key: Box<str>,
    /// There is always one: a change is carried out on an option.
    pub(crate) state: Option<State>,
    pub(crate) full_at: u64,
}

impl Item for KeptState {
    fn hash(&self, hasher: &KeyHasher) -> u64 {
        hasher.hash_one(&self.key)
    }

    fn ends(&self) -> u64 {
        self.full_at
    }

    fn heap_bytes(&self) -> usize {
        self.key.len() + self.state.as_ref().map_or(0, State::heap_bytes)
    }

    fn wind_back(&mut self, back: &WindBack) {
        let Some(state) = &mut self.state else { return };
        match state {
            State::Bucket(_) | State::Cells(_) => {
                let ahead = state.ts().map_or(Duration::ZERO, |ts| ts.saturating_since(back.now));
                if ahead > back.max_clock_skew {
                    let moved = state.wind_back(ahead);
                    self.full_at = self.full_at.saturating_sub(micros(moved));
                }
            }
            // The next check moves these to its own time. If there is none, they have lasted long
            // enough when any that is written now would have ended.
            _ => self.full_at = self.full_at.min(back.ends_max),
        }
    }
}

/// A stored record: that of a ticket beside the bucket at a key.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    pub(crate) key: Box<str>,
    /// The hash of the key alone, by which a reset finds the records of a key.
    pub(crate) key_hash: u64,
    pub(crate) ticket: Ticket,
    pub(crate) record: Record,
}

impl KeptRecord {
    pub(crate) fn is(&self, key: &str, ticket: Ticket) -> bool {
        self.ticket == ticket && *self.key == *key
    }

    /// The hash of the record of `ticket` beside the bucket whose key has the hash `key_hash`.
    pub(crate) fn hash_of(key_hash: u64, ticket: Ticket, hasher: &KeyHasher) -> u64 {
        hasher.hash_one((key_hash, ticket))
    }
}

impl Item for KeptRecord {
    fn hash(&self, hasher: &KeyHasher) -> u64 {
        Self::hash_of(self.key_hash, self.ticket, hasher)
    }

    fn ends(&self) -> u64 {
        self.record.ends.as_micros()
    }

    fn heap_bytes(&self) -> usize {
        self.key.len()
    }

    fn wind_back(&mut self, back: &WindBack) {
        self.record.ends = self.record.ends.min(Timestamp::from_micros(back.ends_max));
    }
}
