//! What a shard keeps: states of buckets, and records beside them.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use tollgate_core::{Bucket, Change, Edit, Record, State, Ticket, Timestamp};

use crate::shard::KeyHasher;
use crate::shelf::{Item, WindBack, micros};
use crate::short_key::ShortKey;

/// Returns the hash of a key.
#[inline]
pub(crate) fn hash_of_key(hasher: &KeyHasher, key: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(key);
    state.finish()
}

/// A stored bucket, in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) enum KeptState {
    /// A token bucket or a leaky bucket with a short key: nearly all are.
    Short { key: ShortKey, full_at: u64, bucket: Bucket },
    /// A bucket of any other kind.
    Long {
        key: Box<str>,
        full_at: u64,
        /// There is always one: a change is carried out on an option.
        state: Option<State>,
    },
}

const _: () = assert!(size_of::<KeptState>() == 64);

impl KeptState {
    /// Makes what is kept of a bucket that was not stored, after the change of its first spending.
    pub(crate) fn new(key: &str, change: &Change, full_at: u64) -> Self {
        match (change, ShortKey::new(key)) {
            (Change::Edit(Edit::Bucket(bucket)), Some(key)) => {
                Self::Short { key, full_at, bucket: *bucket }
            }
            _ => {
                let mut state = None;
                change.apply(&mut state);
                Self::Long { key: key.into(), full_at, state }
            }
        }
    }

    #[inline]
    pub(crate) fn is(&self, other: &str) -> bool {
        match self {
            Self::Short { key, .. } => key.is(other),
            Self::Long { key, .. } => **key == *other,
        }
    }

    /// Returns a copy of the state of a bucket with a short key.
    #[inline]
    pub(crate) const fn short_state(&self) -> Option<State> {
        match self {
            Self::Short { bucket, .. } => Some(State::Bucket(*bucket)),
            Self::Long { .. } => None,
        }
    }

    /// Returns the state of a bucket whose key is not short.
    #[inline]
    pub(crate) const fn long_state(&self) -> Option<&State> {
        match self {
            Self::Short { .. } => None,
            Self::Long { state, .. } => state.as_ref(),
        }
    }

    /// Changes the state.
    #[inline]
    pub(crate) fn edit(&mut self, change: &Change, full_at: u64) {
        match (&mut *self, change) {
            (
                Self::Short { full_at: kept_until, bucket, .. },
                Change::Edit(Edit::Bucket(edited)),
            ) => {
                *bucket = *edited;
                *kept_until = full_at;
            }
            _ => self.edit_long(change, full_at),
        }
    }

    #[inline(never)]
    fn edit_long(&mut self, change: &Change, full_at: u64) {
        match self {
            Self::Short { key, bucket, .. } => {
                let mut state = Some(State::Bucket(*bucket));
                change.apply(&mut state);
                let key = String::from_utf8_lossy(key.as_bytes()).into();
                *self = Self::Long { key, full_at, state };
            }
            Self::Long { full_at: kept_until, state, .. } => {
                change.apply(state);
                *kept_until = full_at;
            }
        }
    }
}

impl Item for KeptState {
    fn hash(&self, hasher: &KeyHasher) -> u64 {
        match self {
            Self::Short { key, .. } => hash_of_key(hasher, key.as_bytes()),
            Self::Long { key, .. } => hash_of_key(hasher, key.as_bytes()),
        }
    }

    #[inline]
    fn ends(&self) -> u64 {
        match self {
            Self::Short { full_at, .. } | Self::Long { full_at, .. } => *full_at,
        }
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long { key, state, .. } => {
                key.len() + state.as_ref().map_or(0, State::heap_bytes)
            }
        }
    }

    fn wind_back(&mut self, back: &WindBack) {
        let ahead_of = |ts: Timestamp| {
            let ahead = ts.saturating_since(back.now);
            if ahead > back.max_clock_skew { ahead } else { Duration::ZERO }
        };
        match self {
            Self::Short { full_at, bucket, .. } => {
                let ahead = ahead_of(bucket.ts);
                bucket.ts = bucket.ts.saturating_sub(ahead);
                *full_at = full_at.saturating_sub(micros(ahead));
            }
            Self::Long { state: None, .. } => {}
            Self::Long { full_at, state: Some(state), .. } => match state {
                State::Bucket(_) | State::Cells(_) => {
                    let ahead = state.ts().map_or(Duration::ZERO, ahead_of);
                    if !ahead.is_zero() {
                        let moved = state.wind_back(ahead);
                        *full_at = full_at.saturating_sub(micros(moved));
                    }
                }
                // The next check moves these to its own time. If there is none, they have lasted
                // long enough when any that is written now would have ended.
                _ => *full_at = (*full_at).min(back.ends_max),
            },
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
