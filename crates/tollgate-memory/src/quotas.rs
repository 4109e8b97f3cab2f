//! The quotas by which the buckets of a shard refill, each kept once.

use std::num::NonZeroU16;

use smallvec::SmallVec;
use tollgate_core::{Quota, Timestamp};

use crate::key_hash::KeyHasher;
use crate::shelf::Shared;
use crate::table::Table;

/// So many free entries stay, so that a key that comes and goes does not allocate each time.
const FREE_MIN: usize = 4;

/// The number of a quota in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaId(NonZeroU16);

impl QuotaId {
    #[inline(always)]
    const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl From<NonZeroU16> for QuotaId {
    #[inline(always)]
    fn from(number: NonZeroU16) -> Self {
        Self(number)
    }
}

impl From<QuotaId> for NonZeroU16 {
    fn from(id: QuotaId) -> Self {
        id.0
    }
}

/// What the level of a bucket and its refill depend on, of its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refill {
    pub(crate) scale: u64,
    units_per_tick: u64,
    burst: u32,
    tick_us: u32,
}

impl Refill {
    #[inline(always)]
    pub(crate) const fn of(quota: &Quota) -> Self {
        Self {
            scale: quota.scale(),
            units_per_tick: quota.units_per_tick(),
            burst: quota.burst(),
            tick_us: quota.tick_us(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, quota: &Quota) -> bool {
        *self == Self::of(quota)
    }

    /// Returns all that it says.
    #[inline(always)]
    pub(crate) const fn words(&self) -> [u64; 3] {
        let size = (self.burst as u64) << 32 | self.tick_us as u64;
        [self.scale, self.units_per_tick, size]
    }

    /// Returns when the bucket that had `level` at `ts` is full, in microseconds since the epoch, at
    /// most `u64::MAX`.
    pub(crate) fn full_at(&self, level: u64, ts: Timestamp) -> u64 {
        let level_max = u64::from(self.burst) * self.scale;
        let ticks = level_max.saturating_sub(level).div_ceil(self.units_per_tick.max(1));
        ts.as_micros().saturating_add(ticks.saturating_mul(self.tick_us.into()))
    }
}

/// A quota, and how many buckets refill by it: none if its number is free.
#[derive(Clone, Copy, Debug)]
struct Entry {
    refill: Refill,
    hash: u32,
    buckets: u32,
}

impl Entry {
    /// Spreads half of a hash over the bits of a whole one, for the table takes those at both ends.
    const fn table_hash(&self) -> u64 {
        (self.hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// The quotas of a shard.
///
/// Buckets are many and quotas few, so that a bucket keeps the number of its quota in place of what
/// the quota says. Never are there more of them than there were buckets at once.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    /// The first lies beside what else a check reads of its shard.
    entries: SmallVec<[Entry; 1]>,
    numbers: Option<Box<Numbers>>,
}

/// What is needed only when buckets come and go.
#[derive(Debug, Default)]
struct Numbers {
    /// Those of the quotas that have buckets, by the hash of the quota.
    used: Table<QuotaId>,
    free: Vec<QuotaId>,
}

impl Quotas {
    #[inline(always)]
    pub(crate) fn refill(&self, id: QuotaId) -> Option<&Refill> {
        Some(&self.entries.get(id.index())?.refill)
    }

    /// Counts one more bucket under a quota. `None` if all numbers are taken by others.
    pub(crate) fn enter(&mut self, quota: &Quota, hasher: &KeyHasher) -> Option<QuotaId> {
        let refill = Refill::of(quota);
        let entry = Entry { refill, hash: hasher.hash_one(refill) as u32, buckets: 1 };
        let hash = entry.table_hash();
        let Self { entries, numbers } = self;
        let numbers = numbers.get_or_insert_default();
        let is_it = |id: &QuotaId| entries.get(id.index()).is_some_and(|e| e.refill == refill);
        let known = numbers.used.find(hash, is_it).and_then(|slot| numbers.used.at(slot)).copied();
        if let Some(id) = known {
            let entry = entries.get_mut(id.index())?;
            entry.buckets = entry.buckets.checked_add(1)?;
            return Some(id);
        }
        let id = match numbers.free.pop() {
            Some(id) => {
                *entries.get_mut(id.index())? = entry;
                id
            }
            None => {
                let id = NonZeroU16::new(u16::try_from(entries.len() + 1).ok()?)?;
                entries.push(entry);
                QuotaId(id)
            }
        };
        numbers.used.insert(hash, id, &|id: &QuotaId| hash_of(entries, *id));
        Some(id)
    }

    /// Counts one bucket less under a quota.
    pub(crate) fn leave(&mut self, id: QuotaId) {
        let Self { entries, numbers: Some(numbers) } = self else { return };
        let Some(entry) = entries.get_mut(id.index()) else { return };
        entry.buckets -= 1;
        if entry.buckets > 0 {
            return;
        }
        if let Some(slot) = numbers.used.find(entry.table_hash(), |other| *other == id) {
            numbers.used.remove(slot);
        }
        numbers.free.push(id);
        numbers.used.tidy(&|id: &QuotaId| hash_of(entries, *id));
        if numbers.used.len() == 0 && numbers.free.len() > FREE_MIN {
            *self = Self::default();
        }
    }
}

fn hash_of(entries: &[Entry], id: QuotaId) -> u64 {
    entries.get(id.index()).map_or(0, Entry::table_hash)
}

impl Shared for Quotas {
    fn bytes(&self) -> usize {
        let entries = if self.entries.spilled() { self.entries.capacity() } else { 0 };
        let numbers = self.numbers.as_ref().map_or(0, |numbers| {
            size_of::<Numbers>()
                + numbers.used.bytes()
                + numbers.free.capacity() * size_of::<QuotaId>()
        });
        entries * size_of::<Entry>() + numbers
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn quota(burst: u64) -> Quota {
        Quota::new("7/min".parse().unwrap(), burst).unwrap()
    }

    #[test]
    fn a_quota_is_kept_once_for_all_buckets_and_as_long_as_there_are_any() {
        let (mut quotas, hasher) = (Quotas::default(), KeyHasher::new());
        let ids: Vec<_> = (1..=100).map(|n| quotas.enter(&quota(n), &hasher).unwrap()).collect();
        for (n, id) in (1..).zip(&ids) {
            assert!(quotas.refill(*id).unwrap().is_of(&quota(n)));
            assert!(!quotas.refill(*id).unwrap().is_of(&quota(n + 1)));
            assert_eq!(quotas.enter(&quota(n), &hasher), Some(*id));
        }
        assert_eq!(quotas.entries.len(), 100);
        ids.iter().for_each(|id| quotas.leave(*id));
        assert_eq!(quotas.enter(&quota(50), &hasher), Some(ids[49]));
        quotas.leave(ids[49]);
        let bytes = quotas.bytes();
        ids.iter().for_each(|id| quotas.leave(*id));
        assert!(quotas.entries.is_empty() && quotas.numbers.is_none());
        assert!(bytes > 4_000 && quotas.bytes() == 0, "{bytes} {}", quotas.bytes());
    }

    #[test]
    fn numbers_of_quotas_that_are_gone_are_given_to_others() {
        let (mut quotas, hasher) = (Quotas::default(), KeyHasher::new());
        let first = quotas.enter(&quota(1), &hasher).unwrap();
        for n in 2..1_000 {
            let id = quotas.enter(&quota(n), &hasher).unwrap();
            assert!(quotas.refill(id).unwrap().is_of(&quota(n)));
            quotas.leave(id);
        }
        assert!(quotas.refill(first).unwrap().is_of(&quota(1)));
        assert_eq!(quotas.entries.len(), 2);
    }

    #[test]
    fn a_bucket_is_full_when_its_decisions_say_so() {
        use tollgate_core::{Charge, Cost, MAX_CLOCK_SKEW_DEFAULT};
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        // Ticks of 1 us and of 1 s.
        for (rate, burst) in [("7/min", 100), ("1000/s", 3), ("3/day", Quota::BURST_MAX)] {
            let quota = Quota::new(rate.parse().unwrap(), burst).unwrap();
            let refill = Refill::of(&quota);
            let (mut state, mut now) = (None, start);
            for cost in [1, 2, 1, 1] {
                let charge = Charge::new("a", &quota, Cost::new(cost));
                let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
                change.apply(&mut state);
                if let Some(tollgate_core::State::Bucket(bucket)) = &state {
                    let full_at = now.saturating_add(decision.reset_after()).as_micros();
                    assert_eq!(refill.full_at(bucket.level, bucket.ts), full_at, "{quota}");
                }
                now = now.saturating_add(std::time::Duration::from_micros(900_001));
            }
            assert!(state.is_some());
        }
    }
}
