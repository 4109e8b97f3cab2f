//! What a shard keeps with exact keys: states of any kind, and records.

use std::time::Duration;

use tollgate_core::{Change, Record, State, Ticket, Timestamp};

use crate::key_hash::{Key, KeyHasher};
use crate::shelf::{Item, WindBack, micros};

/// A stored bucket of any kind, with its key.
#[derive(Debug)]
pub(crate) struct KeptState {
    key: Box<str>,
    hash: u64,
    full_at: u64,
    /// There is always one: a change is carried out on an option.
    state: Option<State>,
}

const _: () = assert!(size_of::<Option<KeptState>>() <= 64);

impl KeptState {
    /// Makes what is kept of a bucket that was not stored, after the change of its first spending.
    pub(crate) fn new(key: Key<'_>, change: &Change, full_at: u64) -> Self {
        let mut state = None;
        change.apply(&mut state);
        Self { key: key.text.into(), hash: key.hash, full_at, state }
    }

    pub(crate) fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash && *self.key == *key.text
    }

    pub(crate) const fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Changes the state.
    pub(crate) fn edit(&mut self, change: &Change, full_at: u64) {
        change.apply(&mut self.state);
        self.full_at = full_at;
    }
}

impl Item for KeptState {
    type Shared = ();

    fn hash(&self) -> u64 {
        self.hash
    }

    fn ends(&self, (): &()) -> u64 {
        self.full_at
    }

    fn heap_bytes(&self) -> usize {
        self.key.len() + self.state.as_ref().map_or(0, State::heap_bytes)
    }

    fn wind_back(&mut self, back: &WindBack) {
        match &mut self.state {
            None => {}
            Some(state @ (State::Bucket(_) | State::Cells(_))) => {
                let ahead = state.ts().map_or(Duration::ZERO, |ts| back.ahead(ts));
                if !ahead.is_zero() {
                    let moved = state.wind_back(ahead);
                    self.full_at = self.full_at.saturating_sub(micros(moved));
                }
            }
            // The next check moves these to its own time. If there is none, they have lasted
            // long enough when any that is written now would have ended.
            Some(_) => self.full_at = self.full_at.min(back.ends_max),
        }
    }
}

/// A stored record: that of a ticket beside the bucket at a key.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    key: Box<str>,
    hash: u64,
    ticket: Ticket,
    pub(crate) record: Record,
}

impl KeptRecord {
    pub(crate) fn new(key: Key<'_>, (ticket, record): (Ticket, Record), hash: u64) -> Self {
        Self { key: key.text.into(), hash, ticket, record }
    }

    pub(crate) fn is(&self, key: Key<'_>, ticket: Ticket) -> bool {
        self.ticket == ticket && *self.key == *key.text
    }

    /// The hash of the record of `ticket` beside the bucket at a key.
    pub(crate) fn hash_of(key: Key<'_>, ticket: Ticket, hasher: &KeyHasher) -> u64 {
        hasher.hash_one((key.hash, ticket))
    }
}

impl Item for KeptRecord {
    type Shared = ();

    fn hash(&self) -> u64 {
        self.hash
    }

    fn ends(&self, (): &()) -> u64 {
        self.record.ends.as_micros()
    }

    fn heap_bytes(&self) -> usize {
        self.key.len()
    }

    fn wind_back(&mut self, back: &WindBack) {
        self.record.ends = self.record.ends.min(Timestamp::from_micros(back.ends_max));
    }
}
