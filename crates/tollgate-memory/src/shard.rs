//! One shard: a table of buckets and the order in which they become full.

use std::collections::binary_heap::PeekMut;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashTable;
use tollgate_core::{Bucket, Timestamp};

use crate::queue::{Node, Queue};

/// Hashes keys with a seed of its own per store, so that nobody can aim keys at one shard. The
/// model checker replays a run, which a random seed would change.
#[cfg(not(loom))]
pub(crate) type KeyHasher = foldhash::quality::RandomState;
#[cfg(loom)]
pub(crate) type KeyHasher = foldhash::quality::FixedState;

/// A table of this capacity is kept when it empties, so that a key that comes and goes does not
/// make it grow and shrink each time.
const CAPACITY_MIN: usize = 28;

/// A stored bucket.
#[derive(Debug)]
struct Entry {
    key: Box<str>,
    bucket: Bucket,
    /// Microseconds since the epoch, and unlike a `Timestamp` not clamped: what is full only after
    /// the last timestamp is never full.
    full_at: u64,
}

impl Entry {
    fn is_full(&self, full_by: u64) -> bool {
        self.full_at <= full_by
    }
}

/// A bucket that is not full, and when it will be, in microseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refilling {
    pub(crate) bucket: Bucket,
    pub(crate) full_at: u64,
}

/// What [`Shard::settle`] did with the bucket that may be full first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It was full and is evicted.
    Evicted,
    /// It had been spent from or removed since, and its place in the order is put right.
    Moved,
}

/// A part of the buckets, under one lock.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    table: HashTable<Entry>,
    queue: Queue,
    key_bytes: usize,
    /// The latest `ts` that was stored since the shard was last wound back.
    newest: Timestamp,
}

impl Shard {
    /// Returns the stored state of a bucket, `None` if it is full.
    pub(crate) fn bucket(&self, hash: u64, key: &str) -> Option<Bucket> {
        self.table.find(hash, |entry| *entry.key == *key).map(|entry| entry.bucket)
    }

    /// Stores the state of a bucket, and tells whether its key is new.
    pub(crate) fn store(
        &mut self,
        hash: u64,
        key: &str,
        Refilling { bucket, full_at }: Refilling,
        hasher: &KeyHasher,
    ) -> bool {
        self.newest = self.newest.max(bucket.ts);
        let (is_new, is_sooner) = match self.table.find_mut(hash, |entry| *entry.key == *key) {
            Some(entry) => {
                let is_sooner = full_at < entry.full_at;
                (entry.bucket, entry.full_at) = (bucket, full_at);
                (false, is_sooner)
            }
            None => {
                self.key_bytes += key.len();
                let entry = Entry { key: key.into(), bucket, full_at };
                self.table.insert_unique(hash, entry, |entry| hasher.hash_one(&entry.key));
                (true, true)
            }
        };
        if is_sooner {
            self.queue.push(Node { full_at, hash });
            self.tidy(hasher);
        }
        is_new
    }

    /// Removes a bucket, which fills it, and tells whether it was stored.
    pub(crate) fn remove(&mut self, hash: u64, key: &str, hasher: &KeyHasher) -> bool {
        let Ok(entry) = self.table.find_entry(hash, |entry| *entry.key == *key) else {
            return false;
        };
        entry.remove();
        self.key_bytes -= key.len();
        self.tidy(hasher);
        true
    }

    /// Removes all buckets and returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.table.len();
        *self = Self::default();
        count
    }

    /// Returns the time before which no bucket is full.
    pub(crate) fn first_full_at(&self) -> u64 {
        self.queue.first()
    }

    /// Returns the latest `ts` that was stored.
    pub(crate) const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Settles the bucket that may be full first: evicts it if it was full by `full_by`.
    ///
    /// Returns `None` if no bucket was full by then. Whoever calls this ends with
    /// [`tidy`](Self::tidy).
    pub(crate) fn settle(&mut self, full_by: u64, hasher: &KeyHasher) -> Option<Settled> {
        let mut top = self.queue.peek_mut()?;
        let Node { full_at, hash } = top.0;
        if full_at > full_by {
            return None;
        }
        let same_hash = |entry: &Entry| hasher.hash_one(&entry.key) == hash;
        match self.table.find_entry(hash, same_hash) {
            Ok(entry) if entry.get().is_full(full_by) => {
                let (entry, _) = entry.remove();
                self.key_bytes -= entry.key.len();
                PeekMut::pop(top);
                Some(Settled::Evicted)
            }
            Ok(entry) => {
                top.0.full_at = entry.get().full_at;
                Some(Settled::Moved)
            }
            Err(_) => {
                PeekMut::pop(top);
                Some(Settled::Moved)
            }
        }
    }

    /// Gives memory back after buckets have gone. The work is paid for by what was removed or
    /// pushed since the last time.
    pub(crate) fn tidy(&mut self, hasher: &KeyHasher) {
        let count = self.table.len();
        if self.queue.len() > 2 * count + CAPACITY_MIN {
            self.queue.rebuild(nodes(&self.table, hasher));
        }
        if self.table.capacity() > CAPACITY_MIN && count < self.table.capacity() / 8 {
            self.table.shrink_to(2 * count, |entry| hasher.hash_one(&entry.key));
            self.queue.shrink_to(2 * count);
        }
    }

    /// Moves every bucket that lies more than `max_clock_skew` ahead of `now` to `now`, with the
    /// units it has (G4).
    pub(crate) fn wind_back(
        &mut self,
        now: Timestamp,
        max_clock_skew: Duration,
        hasher: &KeyHasher,
    ) {
        self.newest = Timestamp::EPOCH;
        for entry in &mut self.table {
            let ahead = entry.bucket.ts.saturating_since(now);
            if ahead > max_clock_skew {
                entry.bucket.ts = now;
                entry.full_at = entry.full_at.saturating_sub(micros(ahead));
            }
            self.newest = self.newest.max(entry.bucket.ts);
        }
        self.queue.rebuild(nodes(&self.table, hasher));
    }

    /// Returns the heap memory of the shard, without what the allocator adds to each key.
    pub(crate) fn bytes(&self) -> usize {
        self.table.allocation_size() + self.queue.bytes() + self.key_bytes
    }
}

fn nodes(table: &HashTable<Entry>, hasher: &KeyHasher) -> impl Iterator<Item = Node> {
    table.iter().map(|entry| Node { full_at: entry.full_at, hash: hasher.hash_one(&entry.key) })
}

/// Returns a duration in whole microseconds, at most `u64::MAX`.
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros().into())
}
