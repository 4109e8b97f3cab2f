//! What was spent on this node's own account while the store could not answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::{Charge, Cost, Operation, Quota, ShardTerms, Timestamp, key};
use tollgate_memory::MemoryStore;

/// How many buckets may be in debt, as many as this node's own store holds (G9).
const KEYS_MAX: usize = 1_000_000;

/// What is owed to the store, by the key of the bucket.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    by_key: Mutex<HashMap<String, Debt>>,
    /// Whether there are any, which every answer of the store asks.
    any: AtomicBool,
    charged: AtomicU64,
    forgotten: AtomicU64,
}

/// What was spent of one bucket on this node's own account.
#[derive(Clone, Debug)]
pub(crate) struct Debt {
    /// The quota of the bucket in the store.
    pub(crate) quota: Quota,
    /// The part of it that this node granted.
    pub(crate) part: Quota,
    pub(crate) shadow: bool,
    pub(crate) spent: u64,
    pub(crate) place: Place,
}

/// Where a debt is charged.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// To the bucket of the same key as here.
    Whole,
    /// To all shards in which the store keeps the bucket.
    Shards(Box<ShardTerms>),
    /// To one shard of the bucket that has this key here.
    ShardOf(Arc<str>),
}

/// A bucket and what is owed to it.
pub(crate) type Owed = (String, Debt);

impl Debts {
    /// Adds what was spent of the bucket at `key`.
    pub(crate) fn add(&self, key: &str, debt: Debt) {
        let mut by_key = self.lock();
        if let Some(known) = by_key.get_mut(key) {
            let spent = known.spent.saturating_add(debt.spent);
            *known = Debt { spent, ..debt };
            return;
        }
        if by_key.len() >= KEYS_MAX {
            // Ordering: a number for operators that guards no other memory, here and below.
            self.forgotten.fetch_add(1, Ordering::Relaxed);
            return;
        }
        by_key.insert(key.to_owned(), debt);
        self.any.store(true, Ordering::Release);
    }

    /// Tells whether anything is owed.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns the number of buckets that are in debt.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns how many units were charged to the store so far.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Returns how many buckets could not be noted since too many were in debt.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Takes all debts out.
    pub(crate) fn take(&self) -> Vec<Owed> {
        let mut by_key = self.lock();
        self.any.store(false, Ordering::Release);
        // A flood of keys must not keep its memory.
        std::mem::take(&mut *by_key).into_iter().collect()
    }

    /// Puts debts back that could not be charged.
    pub(crate) fn put_back(&self, owed: impl IntoIterator<Item = Owed>) {
        for (key, debt) in owed {
            self.add(&key, debt);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Debt>> {
        // No code that holds the lock can leave the map half changed.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was charged.
    pub(crate) fn note_charged(&self, units: u64) {
        self.charged.fetch_add(units, Ordering::Relaxed);
    }
}

/// What of a debt still counts: what refilled here meanwhile would have refilled there too.
pub(crate) fn still_counts(local: &MemoryStore, (key, debt): &Owed, now: Timestamp) -> u64 {
    let key = match &debt.place {
        Place::ShardOf(whole) => whole,
        Place::Whole | Place::Shards(_) => key.as_str(),
    };
    let look = Charge::new(key, &debt.part, Cost::ZERO);
    let left = local.decide_one(Operation::Look, &look, now);
    let used = match left {
        Ok(decision) => debt.part.burst().saturating_sub(decision.remaining()),
        Err(_) => debt.part.burst(),
    };
    debt.spent.min(used.into()).min(debt.quota.burst().into())
}

/// Divides a debt among the shards in which the store keeps the bucket, in equal parts of what still
/// counts; a debt without shards stays as it is.
pub(crate) fn in_shards(local: &MemoryStore, owed: Owed, now: Timestamp) -> Vec<Owed> {
    let Place::Shards(terms) = &owed.1.place else { return vec![owed] };
    let (units, count) = (still_counts(local, &owed, now), terms.count() as u64);
    let (whole, debt) = &owed;
    let local_key: Arc<str> = whole.as_str().into();
    (0..terms.count())
        .map(|number| {
            // The first shards are the larger ones.
            let spent = units / count + u64::from((number as u64) < units % count);
            let place = Place::ShardOf(Arc::clone(&local_key));
            let quota = *terms.quota(number);
            (key::shard(whole, number), Debt { quota, spent, place, ..debt.clone() })
        })
        .filter(|(_, debt)| debt.spent > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn quota(rate: &str, burst: u64) -> Quota {
        Quota::new(rate.parse().unwrap(), burst).unwrap()
    }

    fn debt(spent: u64) -> Debt {
        let (quota, part) = (quota("10/s", 10), quota("5/s", 5));
        Debt { quota, part, shadow: false, spent, place: Place::Whole }
    }

    #[test]
    fn what_is_spent_of_one_bucket_adds_up_and_is_taken_once() {
        let debts = Debts::default();
        assert!(!debts.is_any());
        debts.add("a", debt(2));
        debts.add("b", debt(1));
        debts.add("a", debt(3));
        assert_eq!((debts.len(), debts.is_any()), (2, true));
        let mut taken = debts.take();
        taken.sort_by(|(one, _), (other, _)| one.cmp(other));
        let spent: Vec<_> = taken.iter().map(|(key, debt)| (key.as_str(), debt.spent)).collect();
        assert_eq!(spent, [("a", 5), ("b", 1)]);
        assert!(!debts.is_any() && debts.take().is_empty());
        debts.put_back(taken);
        debts.add("a", debt(1));
        let again: u64 = debts.take().iter().map(|(_, debt)| debt.spent).sum();
        assert_eq!((again, debts.len()), (7, 0));
    }

    #[test]
    fn what_refilled_here_is_not_owed_any_more() {
        let local = MemoryStore::new();
        let spent = debt(4);
        let charge = Charge::new("a", &spent.part, Cost::new(4));
        assert!(local.decide_one(Operation::Spend, &charge, NOW).unwrap().is_allow());
        let owed = ("a".to_owned(), spent);
        let after = |millis| NOW.saturating_add(Duration::from_millis(millis));
        assert_eq!(still_counts(&local, &owed, NOW), 4);
        assert_eq!(still_counts(&local, &owed, after(400)), 2);
        assert_eq!(still_counts(&local, &owed, after(800)), 0);
        let charged_before = ("a".to_owned(), debt(1));
        assert_eq!(still_counts(&local, &charged_before, NOW), 1, "no more than was spent since");
    }

    #[test]
    fn a_debt_of_a_bucket_in_shards_is_divided_among_them_to_the_unit() {
        let local = MemoryStore::new();
        let terms = ShardTerms::of(&quota("10/s", 10), 4.try_into().unwrap()).unwrap();
        let spent = Debt { place: Place::Shards(Box::new(terms)), ..debt(5) };
        let charge = Charge::new("a", &spent.part, Cost::new(5));
        assert!(local.decide_one(Operation::Spend, &charge, NOW).unwrap().is_allow());
        let after = |millis| NOW.saturating_add(Duration::from_millis(millis));
        let shares = |now| {
            let shards = in_shards(&local, ("a".to_owned(), spent.clone()), now);
            shards.into_iter().map(|(key, debt)| (key, debt.spent)).collect::<Vec<_>>()
        };
        let named = |shares: &[u64]| {
            let shards = shares.iter().enumerate();
            shards.map(|(number, units)| (format!("a:@shard={number}"), *units)).collect::<Vec<_>>()
        };
        assert_eq!(shares(NOW), named(&[2, 1, 1, 1]));
        // What refilled here would have refilled there too.
        assert_eq!(shares(after(400)), named(&[1, 1, 1]));
        assert_eq!(shares(after(1_000)), []);
        let shard = in_shards(&local, ("a".to_owned(), spent.clone()), NOW).remove(0);
        assert_eq!(still_counts(&local, &shard, NOW), 2);
        assert_eq!(still_counts(&local, &shard, after(800)), 1);
        assert_eq!(still_counts(&local, &shard, after(1_000)), 0);
    }
}
