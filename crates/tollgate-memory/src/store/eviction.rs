//! Where a request finds room, and how memory comes back.

use tollgate_core::{StoreError, StoreErrorKind, Timestamp};

use crate::room::{Count, Reservation};
use crate::shard_lock::Locked;
use crate::store::MemoryStore;

/// How many buckets and records a write settles on its way. Four, since it stores up to two of them for
/// each charge, so that more leave than come.
const SETTLED_PER_WRITE: usize = 4;

/// How much longer a bucket must have been full before a write to another one that was known settles
/// it: 10 s.
const SETTLED_LATER_US: u64 = 10_000_000;

/// How many buckets are settled under one lock when room is made. Several, so that those who come
/// next find room at once, and few, so that those who wait for the lock do not wait long.
const SETTLED_PER_LOCK: usize = 16;

/// How many buckets a check that needs room settles at the most, and how many others it moves back after
/// a clock step before it stops to look for more: some tenths of a millisecond for either. What it has
/// put right stays so, and the next check goes on.
const SETTLED_PER_CHECK: usize = 1_024;
const MOVED_PER_CHECK: usize = 4_096;

/// What has been settled.
#[derive(Clone, Copy, Debug)]
struct Settlement {
    freed: Count,
    /// How many buckets and records were looked at.
    steps: usize,
}

impl MemoryStore {
    /// Evicts every bucket that has been full, and every record that has been over, for
    /// `max_clock_skew` at `now`, and returns how many of both there were.
    ///
    /// Writes do this on their way, so nobody has to call it. It gives memory back where no writes
    /// come any more. A lock is let go after every 16 buckets.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
    /// use tollgate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let quota = Quota::new("1/s".parse()?, 3)?;
    /// let start = Timestamp::from_micros(1_700_000_000_000_000);
    /// let charge = Charge::new("default:login:ip=1.2.3.4", &quota, Cost::new(3));
    /// store.decide_one(Operation::Spend, &charge, start)?;
    ///
    /// // Full after 3 s, and evicted once no clock within 1 s can tell the difference.
    /// assert_eq!(store.evict_full(start.saturating_add(Duration::from_micros(3_999_999))), 0);
    /// assert_eq!(store.evict_full(start.saturating_add(Duration::from_secs(4))), 1);
    /// assert_eq!((store.len(), store.evicted()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_full(&self, now: Timestamp) -> usize {
        let ended_by = self.full_for_all_clocks(now);
        let mut evicted = 0;
        for shard in &self.shards {
            while shard.may_have_ended(ended_by) {
                let freed = self.settle(&mut shard.lock(), ended_by, SETTLED_PER_LOCK).freed;
                self.room.give_back(freed);
                evicted += freed.sum();
            }
        }
        evicted
    }

    /// Settles a few buckets of a shard to which a spending from a known key was written.
    ///
    /// It waits longer than others do, for a bucket that is in use is found in the order again and
    /// again, and each time costs as much as a check.
    #[inline]
    pub(super) fn settle_later(&self, shard: &mut Locked<'_>, now: Timestamp) {
        self.settle_ended_by(shard, self.full_for_all_clocks(now).saturating_sub(SETTLED_LATER_US));
    }

    /// Settles a few buckets of a shard that is being written to.
    pub(super) fn settle_on_the_way(&self, shard: &mut Locked<'_>, now: Timestamp) {
        self.settle_ended_by(shard, self.full_for_all_clocks(now));
    }

    #[inline]
    fn settle_ended_by(&self, shard: &mut Locked<'_>, ended_by: u64) {
        if shard.may_have_ended(ended_by) {
            let freed = self.settle(shard, ended_by, SETTLED_PER_WRITE).freed;
            self.room.give_back(freed);
        }
    }

    /// Settles at most `steps_max` buckets and records that may have ended by `ended_by`. The room of
    /// those that are evicted is the caller's to give back.
    fn settle(&self, shard: &mut Locked<'_>, ended_by: u64, steps_max: usize) -> Settlement {
        let before = shard.count();
        let mut steps = 0;
        while steps < steps_max && shard.settle(ended_by).is_some() {
            steps += 1;
        }
        let freed = before - shard.count();
        if freed != Count::NONE {
            shard.tidy();
            self.room.count_evicted(freed);
        }
        Settlement { freed, steps }
    }

    /// Finds room for all that a request needs, by evicting buckets that are full and records that
    /// have ended at `now`, first in the shard `near`. No shard is locked while another one is.
    pub(super) fn make_room(
        &self,
        reservation: &mut Reservation<'_>,
        need: Count,
        near: usize,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let ended_by = now.as_micros();
        let (before, from) = self.shards.split_at(near);
        let mut steps_left = SETTLED_PER_CHECK;
        for shard in from.iter().chain(before) {
            while shard.may_have_ended(ended_by) && steps_left > 0 {
                let steps_max = steps_left.min(SETTLED_PER_LOCK);
                let Settlement { freed, steps } =
                    self.settle(&mut shard.lock(), ended_by, steps_max);
                steps_left -= steps;
                reservation.take_over(freed, need);
                if reservation.cover(need) {
                    return Ok(());
                }
            }
        }
        self.wind_back(now);
        if reservation.cover(need) {
            return Ok(());
        }
        Err(self.full(need, reservation.missing(need), steps_left == 0))
    }

    /// Repairs buckets that a clock step has left in the future (G4). Otherwise none of those that
    /// nobody checks any more would make room before the clock has caught up.
    fn wind_back(&self, now: Timestamp) {
        let mut moved = 0;
        for shard in &self.shards {
            if shard.may_be_ahead(now, self.max_clock_skew) {
                let mut shard = shard.lock();
                moved += shard.count().sum();
                shard.wind_back(now, self.max_clock_skew);
                if moved >= MOVED_PER_CHECK {
                    return;
                }
            }
        }
    }

    #[cold]
    fn full(&self, need: Count, missing: Count, is_cut_short: bool) -> StoreError {
        let (keys_max, taken) = (self.keys_max(), self.room.taken());
        let them = if is_cut_short { "the first that were looked at" } else { "them" };
        let text = if missing.records == 0 || taken.buckets + missing.buckets > keys_max {
            let keys = if need.buckets == 1 { "key" } else { "keys" };
            format!(
                "no room for {} new {keys}: {} of at most {keys_max} buckets are stored, and none of \
                 {them} is full again; raise keys_max",
                need.buckets, taken.buckets
            )
        } else {
            format!(
                "no room to remember another reservation or refund: {} of at most {keys_max} records \
                 are stored, and none of {them} has ended; settle reservations sooner, or raise \
                 keys_max",
                taken.records
            )
        };
        StoreError::new(StoreErrorKind::Full, text)
    }

    /// The latest instant of which every clock within `max_clock_skew` says that it has passed.
    #[inline]
    const fn full_for_all_clocks(&self, now: Timestamp) -> u64 {
        now.as_micros().saturating_sub(self.max_clock_skew_us)
    }
}
