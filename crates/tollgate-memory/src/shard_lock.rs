//! A shard behind its lock, and what can be told of it without the lock.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tollgate_core::Timestamp;

use crate::shard::Shard;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// A shard behind its lock, in cache lines of its own.
///
/// The two instants beside the lock are written before each unlock. A check that needs room reads
/// them to pass over the shards that have none, without disturbing those who use them. A value
/// that is out of date belongs to a change that is concurrent with the read.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ShardLock {
    first_end: AtomicU64,
    newest_us: AtomicU64,
    shard: Mutex<Shard>,
}

impl ShardLock {
    pub(crate) fn new() -> Self {
        Self {
            first_end: AtomicU64::new(u64::MAX),
            newest_us: AtomicU64::new(0),
            shard: Mutex::new(Shard::default()),
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { lock: self, shard: self.shard.lock() }
    }

    /// Tells whether a bucket may be full, or a record ended, by `ended_by`.
    pub(crate) fn may_have_ended(&self, ended_by: u64) -> bool {
        self.first_end.load(Ordering::Relaxed) <= ended_by
    }

    /// Tells whether anything may lie more than `max_clock_skew` ahead of `now`.
    pub(crate) fn may_be_ahead(&self, now: Timestamp, max_clock_skew: Duration) -> bool {
        let newest = Timestamp::from_micros(self.newest_us.load(Ordering::Relaxed));
        newest.saturating_since(now) > max_clock_skew
    }
}

/// A locked shard.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    lock: &'a ShardLock,
    shard: MutexGuard<'a, Shard>,
}

impl Deref for Locked<'_> {
    type Target = Shard;

    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.lock.first_end.store(self.shard.first_end(), Ordering::Relaxed);
        self.lock.newest_us.store(self.shard.newest().as_micros(), Ordering::Relaxed);
    }
}
