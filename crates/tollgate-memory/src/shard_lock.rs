//! A shard behind its lock, and what can be told of it without the lock.

use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tollgate_core::{Charge, Decided, JudgedBucket, Quota, Record, Ticket, Timestamp};

use crate::kept_bucket::Spent;
use crate::key_hash::{Key, KeyHasher};
use crate::last_denied::LastDenied;
use crate::room::Count;
use crate::shard::{Refilling, Shard, Slot};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The latest write is known to 2^16 us, which is 66 ms.
const NEWEST_SPAN_BITS: u32 = 16;

/// How often a lock is tried before its owner is thought to be without a processor, and how many turns
/// of a spin loop lie before the first time. All together take some 5 us.
const WAITS: u32 = if cfg!(loom) { 0 } else { 6 };
const WAIT_SPINS: u32 = 4;

/// A shard behind its lock, in cache lines of its own.
///
/// The two instants beside the lock are written while it is held, and only when they change. A check
/// that needs room reads them to pass over the shards that have none, without disturbing those who
/// use them. A value that is out of date belongs to a change that is concurrent with the read.
///
/// What every check reads comes first, and what is read without the lock last.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ShardLock {
    first_end: AtomicU64,
    /// No write since the shard was last wound back is later.
    newest_us: AtomicU64,
    shard: Mutex<Shard>,
    last_denied: LastDenied,
}

const _: () = assert!(cfg!(loom) || size_of::<ShardLock>() == 256);

impl ShardLock {
    pub(crate) fn new() -> Self {
        Self {
            first_end: AtomicU64::new(u64::MAX),
            newest_us: AtomicU64::new(0),
            shard: Mutex::new(Shard::default()),
            last_denied: LastDenied::new(),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        let shard = self.shard.try_lock().unwrap_or_else(|| self.wait());
        Locked { lock: self, shard, is_reordered: false }
    }

    /// Waits for the lock: longer each time before it is tried again, and then without a processor.
    ///
    /// Who has the lock can take it several times meanwhile, in the time that it takes to pass what it
    /// guards from one processor to another.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> MutexGuard<'_, Shard> {
        for turn in 0..WAITS {
            (0..WAIT_SPINS << turn).for_each(|_| spin_loop());
            if let Some(shard) = self.shard.try_lock() {
                return shard;
            }
        }
        self.shard.lock()
    }

    /// Returns what is told without the lock of the bucket that was denied last.
    #[inline(always)]
    pub(crate) const fn last_denied(&self) -> &LastDenied {
        &self.last_denied
    }

    /// Tells whether a bucket may be full, or a record ended, by `ended_by`.
    pub(crate) fn may_have_ended(&self, ended_by: u64) -> bool {
        self.first_end.load(Ordering::Relaxed) <= ended_by
    }

    /// Notes the time of a write, at the end of its span: within one, all writes but the first only
    /// read.
    #[inline(always)]
    fn note_write(&self, now: Timestamp) {
        let span_end = now.as_micros() | ((1 << NEWEST_SPAN_BITS) - 1);
        if span_end > self.newest_us.load(Ordering::Relaxed) {
            self.newest_us.store(span_end, Ordering::Relaxed);
        }
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
    /// Whether what is told without the lock may have changed.
    is_reordered: bool,
}

impl Locked<'_> {
    /// Tells whether a bucket may be full, or a record ended, by `ended_by`.
    #[inline]
    pub(crate) fn may_have_ended(&self, ended_by: u64) -> bool {
        self.is_reordered || self.lock.may_have_ended(ended_by)
    }

    /// Decides a charge to a stored bucket as [`Shard::spend_known`] does, and tells whether anything
    /// was spent.
    #[inline(always)]
    pub(crate) fn spend_known<'q>(
        &mut self,
        key: Key<'_>,
        charge: &Charge<'q>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<(Decided<'q>, bool)> {
        let (decided, spent) = self.shard.spend_known(key, charge, max_clock_skew, now)?;
        if spent == Spent::Nothing {
            if decided.is_deny()
                && let Some((kept, refill)) = self.shard.note_denied(key)
            {
                self.lock.last_denied.post(kept, refill);
            }
            return Some((decided, false));
        }
        self.withdraw_denied();
        self.lock.note_write(now);
        self.is_reordered |= spent == Spent::OutOfOrder;
        Some((decided, true))
    }

    /// Carries out what was judged as [`Shard::carry_out`] does, and tells whether anything was
    /// changed, and if so whether it is in order.
    #[inline(always)]
    pub(crate) fn carry_out<'q>(
        &mut self,
        judged: (usize, JudgedBucket<'q>),
        quota: &Quota,
        spends: bool,
        now: Timestamp,
    ) -> Option<(Decided<'q>, Spent)> {
        let (decided, spent) = self.shard.carry_out(judged, quota, spends)?;
        if spent != Spent::Nothing {
            self.withdraw_denied();
            self.lock.note_write(now);
        }
        Some((decided, spent))
    }

    /// Withdraws what those read who do not lock, since a bucket changes. It comes before the lock of any
    /// shard is let go to which a request writes, so that nobody sees a part of what it writes (G7).
    #[inline(always)]
    fn withdraw_denied(&self) {
        self.lock.last_denied.withdraw();
    }

    /// Puts a bucket to its place in the order as [`Shard::put_forward`] does.
    pub(crate) fn put_forward(&mut self, key: Key<'_>) {
        self.is_reordered = true;
        self.shard.put_forward(key);
    }

    /// Changes the state of a bucket as [`Shard::edit`] does. A spending from a bucket that is
    /// stored leaves the order as it is.
    pub(crate) fn edit(
        &mut self,
        bucket: (Key<'_>, Option<Slot>),
        refilling: Refilling<'_>,
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.withdraw_denied();
        self.lock.note_write(now);
        self.is_reordered |= self.shard.edit(bucket, refilling, hasher);
    }

    /// Stores a record as [`Shard::store_record`] does.
    pub(crate) fn store_record(
        &mut self,
        key: Key<'_>,
        record: (Ticket, Record),
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.lock.note_write(now);
        self.is_reordered = true;
        self.shard.store_record(key, record, now, hasher);
    }

    /// Removes everything, and returns how many buckets and records there were.
    pub(crate) fn clear(&mut self) -> Count {
        self.withdraw_denied();
        self.is_reordered = true;
        self.lock.newest_us.store(0, Ordering::Relaxed);
        self.shard.clear()
    }

    /// Moves what a clock step has left in the future back, as [`Shard::wind_back`] does.
    pub(crate) fn wind_back(&mut self, now: Timestamp, max_clock_skew: Duration) {
        self.withdraw_denied();
        self.is_reordered = true;
        self.shard.wind_back(now, max_clock_skew);
        let newest = now.saturating_add(max_clock_skew).as_micros();
        self.lock.newest_us.fetch_min(newest, Ordering::Relaxed);
    }
}

impl Deref for Locked<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Shard {
        self.withdraw_denied();
        self.is_reordered = true;
        &mut self.shard
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_reordered {
            self.lock.first_end.store(self.shard.first_end(), Ordering::Relaxed);
        }
    }
}
