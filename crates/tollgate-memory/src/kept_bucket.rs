//! What is kept of a token bucket or a leaky bucket: nearly all are.

use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use tollgate_core::{Bucket, Charge, Decided, JudgedBucket, Quota, State, Timestamp};

use crate::key_hash::{CHECK, Key};
use crate::quotas::{QuotaId, Quotas};
use crate::shelf::{Item, WindBack};

/// A stored bucket. Two share a cache line.
///
/// In place of the key it has 112 bits of two hashes of the key, so keys for which these are the same
/// share a bucket.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct KeptBucket {
    hash: u64,
    check_and_quota: NonZeroU64,
    level: u64,
    ts: Timestamp,
}

const _: () = assert!(size_of::<Option<KeptBucket>>() == 32);

/// What a check has spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    Nothing,
    /// It puts the end of the bucket off.
    InOrder,
    /// The bucket may now end earlier than it did.
    OutOfOrder,
}

impl KeptBucket {
    /// Makes what is kept of a bucket at a key, under a quota that has counted it.
    pub(crate) fn new(key: Key<'_>, quota: QuotaId, bucket: &Bucket) -> Self {
        let check_and_quota = NonZeroU64::from(NonZeroU16::from(quota)) | key.kept_check();
        Self { hash: key.hash, check_and_quota, level: bucket.level, ts: bucket.ts }
    }

    #[inline(always)]
    pub(crate) const fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash && (self.check_and_quota.get() ^ key.check) & CHECK == 0
    }

    /// Returns the quota that wrote the state.
    #[inline(always)]
    pub(crate) fn quota(&self) -> Option<QuotaId> {
        NonZeroU16::new(self.check_and_quota.get() as u16).map(QuotaId::from)
    }

    /// Returns all but the number of the quota: the hash and the check of the key, the level, and when
    /// it was that.
    pub(crate) const fn words(&self) -> [u64; 4] {
        [self.hash, self.check_and_quota.get() & CHECK, self.level, self.ts.as_micros()]
    }

    pub(crate) fn state(&self, quotas: &Quotas) -> Option<State> {
        let scale = quotas.refill(self.quota()?)?.scale;
        Some(State::Bucket(Bucket { level: self.level, scale, ts: self.ts }))
    }

    /// Judges a charge under the quota that wrote the state. `None` under another one.
    #[inline(always)]
    pub(crate) fn judge<'q>(
        &self,
        quotas: &Quotas,
        charge: &Charge<'q>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<JudgedBucket<'q>> {
        let refill = quotas.refill(self.quota()?)?;
        if !refill.is_of(charge.quota) {
            return None;
        }
        charge.judge_bucket(&self.bucket(charge.quota), max_clock_skew, now)
    }

    /// Carries out on the state what was judged of it under `quota`, and spends the cost if it fits
    /// and `spends`.
    #[inline(always)]
    pub(crate) fn carry_out<'q>(
        &mut self,
        judged: JudgedBucket<'q>,
        quota: &Quota,
        spends: bool,
    ) -> (Decided<'q>, Spent) {
        let mut bucket = self.bucket(quota);
        let (decided, is_changed) =
            if spends { judged.decide(&mut bucket) } else { judged.keep(&mut bucket) };
        if !is_changed {
            return (decided, Spent::Nothing);
        }
        // No spending makes a bucket full earlier, but the repair of a clock step may (G4).
        let spent = if bucket.ts < self.ts { Spent::OutOfOrder } else { Spent::InOrder };
        self.set(&bucket);
        (decided, spent)
    }

    #[inline(always)]
    const fn bucket(&self, quota: &Quota) -> Bucket {
        Bucket { level: self.level, scale: quota.scale(), ts: self.ts }
    }

    /// Writes a state under the quota that wrote the last one, and tells whether the bucket is full
    /// earlier than it was. `None` under another one.
    pub(crate) fn write(
        &mut self,
        quotas: &Quotas,
        quota: &Quota,
        bucket: &Bucket,
    ) -> Option<bool> {
        let refill = quotas.refill(self.quota()?).filter(|refill| refill.is_of(quota))?;
        let [before, after] =
            [(self.level, self.ts), (bucket.level, bucket.ts)].map(|(l, ts)| refill.full_at(l, ts));
        self.set(bucket);
        Some(after < before)
    }

    #[inline(always)]
    const fn set(&mut self, bucket: &Bucket) {
        self.level = bucket.level;
        self.ts = bucket.ts;
    }
}

impl Item for KeptBucket {
    type Shared = Quotas;

    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn ends(&self, quotas: &Quotas) -> u64 {
        let refill = self.quota().and_then(|quota| quotas.refill(quota));
        refill.map_or(u64::MAX, |refill| refill.full_at(self.level, self.ts))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn wind_back(&mut self, back: &WindBack) {
        self.ts = self.ts.saturating_sub(back.ahead(self.ts));
    }

    fn leave(&self, quotas: &mut Quotas) {
        if let Some(quota) = self.quota() {
            quotas.leave(quota);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::key_hash::KeyHasher;

    #[test]
    fn keys_that_differ_in_any_of_112_bits_have_buckets_of_their_own() {
        let (mut quotas, hasher) = (Quotas::default(), KeyHasher::new());
        let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
        let id = quotas.enter(&quota, &hasher).unwrap();
        let key = hasher.key("a");
        let bucket = Bucket { level: 1, scale: quota.scale(), ts: Timestamp::EPOCH };
        let kept = KeptBucket::new(key, id, &bucket);
        assert!(kept.is(key));
        assert_eq!(kept.quota(), Some(id));
        for bit in 0..64 {
            assert!(!kept.is(Key { hash: key.hash ^ (1 << bit), ..key }), "{bit}");
            assert_eq!(kept.is(Key { check: key.check ^ (1 << bit), ..key }), bit < 16, "{bit}");
        }
    }
}
