//! The bucket of a shard that was denied last, to be denied again without the lock.

use std::time::Duration;

use tollgate_core::{Bucket, Charge, Decided, Timestamp};

use crate::kept_bucket::KeptBucket;
use crate::key_hash::Key;
use crate::quotas::Refill;
use crate::sync::{AtomicU64, Ordering, fence};

/// A copy of a bucket that was denied, in a cache line of its own.
///
/// Whoever holds the lock of the shard posts the bucket, and withdraws it before letting go of the lock
/// under which anything was changed. Where the copy still stands after it was read, the bucket was as it
/// says in the meantime, and a denial, which changes nothing, is decided by it as under the lock (G6).
/// Those who are denied write nothing, so that threads do not pass a line between them for it.
///
/// Withdrawals and the reads of the version are in one order that all threads agree upon. Otherwise of
/// two threads that each change one bucket and are denied another, each could miss what the other did.
/// The model checker knows such an order of fences only, so there one follows each withdrawal.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LastDenied {
    /// Odd while nothing is posted. It counts up, so that a reader sees that the words have changed.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 7;

const _: () = assert!(cfg!(loom) || size_of::<LastDenied>() == 64);

impl LastDenied {
    pub(crate) fn new() -> Self {
        Self { version: AtomicU64::new(1), words: [0; WORDS].map(AtomicU64::new) }
    }

    /// Decides a charge to the bucket that is posted, if it denies the charge and changes nothing.
    /// `None` if another one is posted, or none.
    #[inline(always)]
    pub(crate) fn deny<'q>(
        &self,
        key: Key<'_>,
        charge: &Charge<'q>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Option<Decided<'q>> {
        let [_, check, level, ts, refill @ ..] = self.read(key.hash)?;
        if check != key.kept_check() || refill != Refill::of(charge.quota).words() {
            return None;
        }
        let ts = Timestamp::from_micros(ts);
        let mut bucket = Bucket { level, scale: charge.quota.scale(), ts };
        let judged = charge.judge_bucket(&bucket, max_clock_skew, now)?;
        if judged.is_fit() {
            return None;
        }
        let (decided, is_repaired) = judged.keep(&mut bucket);
        (!is_repaired).then_some(decided)
    }

    /// Reads what is posted as of one instant. `None` if it is of another hash, or has changed.
    #[inline(always)]
    fn read(&self, hash: u64) -> Option<[u64; WORDS]> {
        let version = self.version.load(Ordering::SeqCst);
        let [first, ..] = &self.words;
        if !version.is_multiple_of(2) || first.load(Ordering::Relaxed) != hash {
            return None;
        }
        let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(words)
    }

    /// Posts a bucket in place of another one, under the lock of the shard.
    pub(crate) fn post(&self, kept: &KeptBucket, refill: &Refill) {
        let version = self.version.fetch_or(1, Ordering::Relaxed) | 1;
        // A reader that meets one of the new words sees the version that came before it.
        fence(Ordering::Release);
        let ([hash, check, level, ts], [scale, rate, size]) = (kept.words(), refill.words());
        for (word, value) in self.words.iter().zip([hash, check, level, ts, scale, rate, size]) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 1, Ordering::Release);
    }

    /// Withdraws what is posted, under the lock of the shard.
    #[inline(always)]
    pub(crate) fn withdraw(&self) {
        // The model checker passes over schedules between a load and a store of one thread.
        if cfg!(loom) || self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            self.version.fetch_or(1, Ordering::SeqCst);
        }
        if cfg!(loom) {
            fence(Ordering::SeqCst);
        }
    }
}
