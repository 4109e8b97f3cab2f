//! One shard: its buckets, and the records beside them.

use std::time::Duration;

use tollgate_core::{
    Bucket, Change, Charge, Decided, Edit, JudgedBucket, Quota, Record, State, Ticket, Timestamp,
};

use crate::exact::Exact;
use crate::kept_bucket::{KeptBucket, Spent};
use crate::key_hash::{Key, KeyHasher};
use crate::quotas::Refill;
use crate::room::Count;
use crate::shelf::{Item, Settled, Shelf};

/// Where the bucket of a key is. It holds until a bucket is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Among the token buckets and leaky buckets.
    Bucket(usize),
    /// Among the states that are kept with their keys.
    Exact(usize),
}

/// An edit of a bucket's state, and when the bucket is full after it, in microseconds since the
/// epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refilling<'a> {
    pub(crate) edit: &'a Edit,
    pub(crate) quota: &'a Quota,
    pub(crate) full_at: u64,
    /// How long the state may have to stay, if it does not tell when it was written.
    pub(crate) stay: Duration,
}

/// A part of the buckets and of the records beside them, under one lock.
///
/// A key has one bucket: it is kept with its key or without it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Shard {
    /// The hash of the key that was denied last.
    denied_hash: u64,
    buckets: Shelf<KeptBucket>,
    /// Few shards have any, and the others are smaller without.
    exact: Option<Box<Exact>>,
}

impl Shard {
    /// Returns the slot of a bucket, `None` if it is full.
    #[inline]
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Slot> {
        match self.find_bucket(key) {
            Some(slot) => Some(Slot::Bucket(slot)),
            None => self.exact.as_ref()?.find(key).map(Slot::Exact),
        }
    }

    #[inline(always)]
    fn find_bucket(&self, key: Key<'_>) -> Option<usize> {
        self.buckets.find(key.hash, |kept| kept.is(key))
    }

    /// Returns the state of a bucket that is kept without its key, put together.
    #[inline]
    pub(crate) fn bucket_state(&self, slot: Slot) -> Option<State> {
        match slot {
            Slot::Bucket(slot) => self.buckets.at(slot)?.state(self.buckets.shared()),
            Slot::Exact(_) => None,
        }
    }

    /// Returns the state of a bucket that is kept with its key.
    #[inline]
    pub(crate) fn exact_state(&self, slot: Slot) -> Option<&State> {
        match slot {
            Slot::Bucket(_) => None,
            Slot::Exact(slot) => self.exact.as_ref()?.state(slot),
        }
    }

    /// Decides a charge to a token bucket or a leaky bucket under the quota that wrote its state, and
    /// writes what is spent. `None` if it is another bucket, or not stored.
    #[inline(always)]
    pub(crate) fn spend_known<'q>(
        &mut self,
        key: Key<'_>,
        charge: &Charge<'q>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<(Decided<'q>, Spent)> {
        let slot = self.find_bucket(key)?;
        let (kept, quotas) = self.buckets.at_mut(slot)?;
        let judged = kept.judge(quotas, charge, max_clock_skew, now)?;
        let (decided, spent) = kept.carry_out(judged, charge.quota, true);
        if spent == Spent::OutOfOrder {
            self.buckets.put_forward(slot);
        }
        Some((decided, spent))
    }

    /// Notes that a key was denied, and returns its bucket and quota if it was the last one that was.
    #[inline(always)]
    pub(crate) fn note_denied(&mut self, key: Key<'_>) -> Option<(&KeptBucket, &Refill)> {
        if self.denied_hash != key.hash {
            self.denied_hash = key.hash;
            return None;
        }
        let kept = self.buckets.at(self.find_bucket(key)?)?;
        Some((kept, self.buckets.shared().refill(kept.quota()?)?))
    }

    /// Judges a charge as [`spend_known`](Self::spend_known) does, and tells the slot of its bucket.
    #[inline(always)]
    pub(crate) fn judge_known<'q>(
        &self,
        key: Key<'_>,
        charge: &Charge<'q>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<(usize, JudgedBucket<'q>)> {
        let slot = self.find_bucket(key)?;
        let judged =
            self.buckets.at(slot)?.judge(self.buckets.shared(), charge, max_clock_skew, now)?;
        Some((slot, judged))
    }

    /// Carries out what was judged of the bucket in a slot. If it is then out of order, the caller
    /// puts it [forward](Self::put_forward) when it needs no slot any more.
    #[inline(always)]
    pub(crate) fn carry_out<'q>(
        &mut self,
        (slot, judged): (usize, JudgedBucket<'q>),
        quota: &Quota,
        spends: bool,
    ) -> Option<(Decided<'q>, Spent)> {
        let (kept, _) = self.buckets.at_mut(slot)?;
        Some(kept.carry_out(judged, quota, spends))
    }

    /// Puts a bucket that may end earlier than it did to its place in the order.
    #[cold]
    pub(crate) fn put_forward(&mut self, key: Key<'_>) {
        if let Some(slot) = self.find_bucket(key) {
            self.buckets.put_forward(slot);
        }
    }

    /// Changes the state of a bucket, which may not be stored yet. Tells whether the order in which
    /// buckets end has changed.
    pub(crate) fn edit(
        &mut self,
        (key, slot): (Key<'_>, Option<Slot>),
        refilling: Refilling<'_>,
        hasher: &KeyHasher,
    ) -> bool {
        match refilling.edit {
            Edit::Bucket(bucket) => self.edit_bucket((key, slot), bucket, refilling, hasher),
            _ => self.edit_exact((key, slot), refilling),
        }
    }

    fn edit_bucket(
        &mut self,
        (key, slot): (Key<'_>, Option<Slot>),
        bucket: &Bucket,
        refilling: Refilling<'_>,
        hasher: &KeyHasher,
    ) -> bool {
        if let Some(Slot::Bucket(slot)) = slot
            && let Some((kept, quotas)) = self.buckets.at_mut(slot)
            && let Some(is_earlier) = kept.write(quotas, refilling.quota, bucket)
        {
            if is_earlier {
                self.buckets.put_forward(slot);
            }
            return is_earlier;
        }
        let Some(quota) = self.buckets.shared_mut().enter(refilling.quota, hasher) else {
            return self.edit_exact((key, slot), refilling);
        };
        let kept = KeptBucket::new(key, quota, bucket);
        debug_assert_eq!(
            kept.ends(self.buckets.shared()),
            refilling.full_at,
            "G5: a bucket is full when its decision says so"
        );
        if let Some(Slot::Bucket(slot)) = slot {
            return self.buckets.replace(slot, kept);
        }
        self.remove(slot);
        self.buckets.insert(kept);
        true
    }

    fn edit_exact(
        &mut self,
        (key, slot): (Key<'_>, Option<Slot>),
        Refilling { edit, full_at, stay, .. }: Refilling<'_>,
    ) -> bool {
        let slot = match slot {
            Some(Slot::Exact(slot)) => Some(slot),
            _ => {
                self.remove(slot);
                None
            }
        };
        let exact = self.exact.get_or_insert_default();
        exact.edit((key, slot), &Change::Edit(*edit), (full_at, stay))
    }

    /// Removes the bucket in a slot, which fills it.
    pub(crate) fn remove(&mut self, slot: Option<Slot>) {
        match (slot, &mut self.exact) {
            (Some(Slot::Bucket(slot)), _) => self.buckets.remove(slot),
            (Some(Slot::Exact(slot)), Some(exact)) => exact.remove(slot),
            _ => {}
        }
    }

    /// Returns the stored record of a ticket beside a bucket.
    pub(crate) fn record(
        &self,
        key: Key<'_>,
        ticket: Ticket,
        hasher: &KeyHasher,
    ) -> Option<Record> {
        self.exact.as_ref()?.record(key, ticket, hasher)
    }

    /// Stores the record of a ticket beside a bucket.
    pub(crate) fn store_record(
        &mut self,
        key: Key<'_>,
        record: (Ticket, Record),
        now: Timestamp,
        hasher: &KeyHasher,
    ) {
        self.exact.get_or_insert_default().store_record(key, record, now, hasher);
    }

    /// Removes the record of a ticket beside a bucket.
    pub(crate) fn remove_record(&mut self, key: Key<'_>, ticket: Ticket, hasher: &KeyHasher) {
        if let Some(exact) = &mut self.exact {
            exact.remove_record(key, ticket, hasher);
        }
    }

    /// Removes a bucket, and returns how many there were. Records beside it stay.
    pub(crate) fn forget(&mut self, key: Key<'_>) -> Count {
        let before = self.count();
        self.remove(self.find(key));
        before - self.count()
    }

    /// Returns how many buckets and records there are.
    pub(crate) fn count(&self) -> Count {
        let exact = self.exact.as_ref().map_or(Count::NONE, |exact| exact.count());
        exact + Count::of_buckets(self.buckets.len())
    }

    /// Removes everything and returns how many buckets and records there were.
    pub(crate) fn clear(&mut self) -> Count {
        let count = self.count();
        *self = Self::default();
        count
    }

    /// Returns the time before which no bucket is full and no record ends.
    pub(crate) fn first_end(&self) -> u64 {
        self.buckets.first_end().min(self.first_exact_end())
    }

    fn first_exact_end(&self) -> u64 {
        self.exact.as_ref().map_or(u64::MAX, |exact| exact.first_end())
    }

    /// Settles the bucket or the record that may end first: evicts it if it had ended by
    /// `ended_by`.
    ///
    /// Returns `None` if none had ended by then. Whoever calls this ends with
    /// [`tidy`](Self::tidy).
    pub(crate) fn settle(&mut self, ended_by: u64) -> Option<Settled> {
        let exact_end = self.first_exact_end();
        match &mut self.exact {
            Some(exact) if exact_end < self.buckets.first_end() => exact.settle(ended_by),
            _ => self.buckets.settle(ended_by),
        }
    }

    /// Gives memory back after buckets or records have gone.
    pub(crate) fn tidy(&mut self) {
        self.buckets.tidy();
        if let Some(exact) = &mut self.exact {
            exact.tidy();
        }
    }

    /// Moves what lies more than `max_clock_skew` ahead of `now` to `now`, with the units it has
    /// (G4).
    pub(crate) fn wind_back(&mut self, now: Timestamp, max_clock_skew: Duration) {
        self.buckets.wind_back(now, max_clock_skew);
        if let Some(exact) = &mut self.exact {
            exact.wind_back(now, max_clock_skew);
        }
    }

    /// Returns the heap memory of the shard, without what the allocator adds to each key.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.bytes() + self.exact.as_ref().map_or(0, |exact| exact.bytes())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_for_whose_quota_there_is_no_number_is_kept_with_its_key() {
        let (mut shard, hasher) = (Shard::default(), KeyHasher::new());
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let mut edit = |name: &str, burst: u64, level: u64| {
            let (key, quota) =
                (hasher.key(name), Quota::new("1/s".parse().unwrap(), burst).unwrap());
            let edit = Edit::Bucket(Bucket { level, scale: quota.scale(), ts: start });
            let full_at = start.as_micros() + quota.level_max() - level;
            let refilling = Refilling { edit: &edit, quota: &quota, full_at, stay: Duration::ZERO };
            let slot = shard.find(key);
            shard.edit((key, slot), refilling, &hasher);
            let slot = shard.find(key).unwrap();
            let state = shard.bucket_state(slot).or_else(|| shard.exact_state(slot).cloned());
            assert!(
                matches!(state, Some(State::Bucket(bucket)) if bucket.level == level),
                "{name}"
            );
            (matches!(slot, Slot::Exact(_)), shard.count().buckets)
        };
        let last = usize::from(u16::MAX);
        for number in 1..=last {
            assert_eq!(edit(&number.to_string(), number as u64, 7), (false, number));
        }
        assert_eq!(edit("one more", 100_000, 8), (true, last + 1));
        assert_eq!(edit("one more", 100_000, 9), (true, last + 1));
        assert_eq!(edit("1", 100_001, 10), (true, last + 1));
        // That was the last bucket of its quota, which leaves its number to the next.
        assert_eq!(edit("one more", 100_000, 11), (false, last + 1));
        assert_eq!(edit("1", 2, 12), (false, last + 1));
    }
}
