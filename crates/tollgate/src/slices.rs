//! Slices of buckets that were debited ahead of time, from which this node spends on its own.
//!
//! A key that is asked for little is judged by the store. When it is asked for often, a slice is
//! debited in the background, once at a time, as large as what the key is asked for in half of the
//! time for which it may be spent from; near exhaustion it is a small part of what is left. What is
//! not spent in time is given back as far as it would still be in the bucket, had it never been
//! debited; what a crash takes along is at most one slice of each key. [`LeaseTerms`] says why no
//! more is admitted by all that.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::time::Instant;
use tollgate_core::{Allow, Cost, LeaseTerms, Quota};

/// Over which time it is counted what a key is asked for.
const WINDOW: Duration = Duration::from_millis(100);

/// How many checks in a window make a key a hot one.
const HOT_CHECKS: u64 = 8;

/// A slice that ends sooner than this is not worth its call.
const TTL_MIN: Duration = Duration::from_millis(10);

/// How long it may take until what is given back is in the bucket.
const REFUND_TIME: Duration = Duration::from_millis(50);

/// Near exhaustion a slice is at most this part of what is left, so that others get theirs.
const LEFT_PART: u64 = 4;

const SHARDS: usize = 16;

/// The most keys of a part of the table; further ones are judged by the store.
const SHARD_LEN_MAX: usize = 512;

/// The slices that this node holds, of at most 8,192 keys.
#[derive(Debug)]
pub(crate) struct Slices {
    shards: [Mutex<HashMap<String, Key, RandomState>>; SHARDS],
    hasher: RandomState,
}

/// What is known of one key.
#[derive(Debug)]
struct Key {
    terms: LeaseTerms,
    slices: VecDeque<Slice>,
    demand: Demand,
    is_debited: bool,
    /// What the bucket held after the last debit.
    left: u64,
    /// Until when no slice is debited, because the last one was denied.
    strict_until: Instant,
}

/// Units that were debited together.
#[derive(Clone, Copy, Debug)]
struct Slice {
    units: u64,
    /// Before its debit was sent.
    since: Instant,
    /// What the bucket lacked after the debit.
    missing: u64,
}

/// What a key is asked for.
#[derive(Debug)]
struct Demand {
    since: Instant,
    checks: u64,
    units: u64,
    /// In the window before.
    units_before: u64,
    checks_before: u64,
}

/// What became of a check.
pub(crate) struct Taken {
    /// What is told, if the cost was there.
    pub(crate) allow: Option<Allow>,
    /// How large a slice is to be debited now.
    pub(crate) debit: Option<u64>,
}

/// Units to be given back.
pub(crate) struct Leftover {
    pub(crate) key: String,
    pub(crate) quota: Quota,
    pub(crate) cost: Cost,
}

impl Default for Slices {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, hasher: RandomState::default() }
    }
}

impl Slices {
    /// Spends a cost from what is held of a key.
    pub(crate) fn take(&self, key: &str, terms: &LeaseTerms, cost: Cost, now: Instant) -> Taken {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(key).filter(|held| held.terms == *terms) else {
            if terms.ttl() >= TTL_MIN && shard.len() < SHARD_LEN_MAX {
                shard.insert(key.to_owned(), Key::new(*terms, cost, now));
            }
            return Taken { allow: None, debit: None };
        };
        held.demand.note(cost, now);
        held.drop_ended(now);
        let allow = held.spend(cost);
        Taken { allow, debit: held.wants(cost, now) }
    }

    /// Puts a cost back that was taken for a request that did not go on, where it ends soonest.
    pub(crate) fn put_back(&self, key: &str, cost: Cost) {
        if let Some(held) = self.shard(key).get_mut(key)
            && let Some(first) = held.slices.front_mut()
        {
            first.units += cost.units();
        }
    }

    /// Adds a slice that was debited, or notes for how long none is to be had. `left` is what the
    /// bucket held after it.
    pub(crate) fn debited(
        &self,
        key: &str,
        units: u64,
        answer: Result<u64, Duration>,
        since: Instant,
    ) {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(key) else { return };
        held.is_debited = false;
        match answer {
            Ok(left) => {
                let missing = u64::from(held.terms.quota().burst()).saturating_sub(left);
                held.left = left;
                held.slices.push_back(Slice { units, since, missing });
            }
            Err(wait) => {
                held.left = 0;
                held.strict_until = since + wait.min(held.terms.ttl());
            }
        }
    }

    /// Takes what is not worth keeping: what ends within `ahead`, and all of keys that nobody asks
    /// for any more; everything without an `ahead`. Tells whether anything is left to watch.
    pub(crate) fn leftovers(&self, ahead: Option<Duration>, now: Instant) -> (Vec<Leftover>, bool) {
        let mut leftovers = Vec::new();
        let mut is_watched = false;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|key, held| {
                let is_idle = held.demand.is_idle(now);
                let ttl = held.terms.ttl();
                held.slices.retain(|slice| {
                    let ends = slice.since + ttl;
                    let is_kept = !is_idle && ahead.is_some_and(|ahead| now + ahead < ends);
                    let back = slice.still_missed(held.terms.quota(), now + REFUND_TIME);
                    if !is_kept && now < ends && back > 0 {
                        let (key, quota) = (key.clone(), *held.terms.quota());
                        leftovers.push(Leftover { key, quota, cost: Cost::new(back) });
                    }
                    is_kept
                });
                let is_kept = !is_idle || held.is_debited;
                is_watched |= is_kept;
                is_kept
            });
        }
        (leftovers, is_watched)
    }

    /// Takes all.
    pub(crate) fn drain(&self, now: Instant) -> Vec<Leftover> {
        self.leftovers(None, now).0
    }

    /// The units that are held and not spent.
    pub(crate) fn units(&self) -> u64 {
        let of = |shard: &Mutex<HashMap<String, Key, RandomState>>| -> u64 {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().flat_map(|held| &held.slices).map(|slice| slice.units).sum()
        };
        self.shards.iter().map(of).sum()
    }

    /// Forgets what is held of a key: it was reset, which gave all of it back.
    pub(crate) fn forget(&self, key: &str) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, HashMap<String, Key, RandomState>> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn new(terms: LeaseTerms, cost: Cost, now: Instant) -> Self {
        let mut demand =
            Demand { since: now, checks: 0, units: 0, units_before: 0, checks_before: 0 };
        demand.note(cost, now);
        let left = u64::from(terms.quota().burst());
        let slices = VecDeque::new();
        Self { terms, slices, demand, is_debited: false, left, strict_until: now }
    }

    fn held(&self) -> u64 {
        self.slices.iter().map(|slice| slice.units).sum()
    }

    fn drop_ended(&mut self, now: Instant) {
        let ttl = self.terms.ttl();
        self.slices.retain(|slice| slice.units > 0 && now < slice.since + ttl);
    }

    /// Spends from the oldest first: it ends first.
    fn spend(&mut self, cost: Cost) -> Option<Allow> {
        let held = self.held();
        let mut wanted = cost.units();
        if held < wanted {
            return None;
        }
        for slice in &mut self.slices {
            let spent = wanted.min(slice.units);
            slice.units -= spent;
            wanted -= spent;
        }
        let limit = self.terms.quota().burst();
        let there = (self.left + held - cost.units()).min(u64::from(limit));
        let remaining = u32::try_from(there).unwrap_or(limit);
        let reset_after = self.terms.quota().time_to_gain(u64::from(limit - remaining));
        Some(Allow { limit, remaining, reset_after, delay: Duration::ZERO })
    }

    /// How large a slice is worth to be debited now.
    fn wants(&mut self, cost: Cost, now: Instant) -> Option<u64> {
        if self.is_debited || now < self.strict_until || !self.demand.is_hot() {
            return None;
        }
        // What is asked for in half of the time for which a slice may be spent from.
        let half_ms = (self.terms.ttl() / 2).as_millis().min(1_000);
        let window_ms = WINDOW.as_millis();
        let asked = u128::from(self.demand.units_before.max(self.demand.units)) * half_ms;
        let asked = u64::try_from(asked / window_ms).unwrap_or(u64::MAX);
        let size = asked.min(self.terms.slice_max()).min(self.left / LEFT_PART);
        // A slice for two checks saves no call.
        let is_worth_it = size >= cost.units().saturating_mul(2) && self.held() < size / 2;
        self.is_debited = is_worth_it;
        is_worth_it.then_some(size)
    }
}

impl Demand {
    fn note(&mut self, cost: Cost, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= WINDOW {
            let is_next = passed < 2 * WINDOW;
            self.units_before = if is_next { self.units } else { 0 };
            self.checks_before = if is_next { self.checks } else { 0 };
            (self.since, self.checks, self.units) = (now, 0, 0);
        }
        self.checks += 1;
        self.units = self.units.saturating_add(cost.units());
    }

    fn is_hot(&self) -> bool {
        self.checks.max(self.checks_before) >= HOT_CHECKS
    }

    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= 3 * WINDOW
    }
}

impl Slice {
    /// How many of its units would be in the bucket at `at`, had they never been debited: what
    /// refilled since may have had no place beside them.
    fn still_missed(&self, quota: &Quota, at: Instant) -> u64 {
        // The bucket would have been full after so long. One unit less is on the safe side.
        let room = self.missing.saturating_sub(self.units).saturating_sub(1);
        let full_after = quota.time_to_gain(room);
        let beyond = at.saturating_duration_since(self.since).saturating_sub(full_after);
        let rate = quota.rate();
        let gained = beyond.as_micros().saturating_mul(u128::from(rate.units()));
        let gained = gained.div_ceil(rate.period().as_micros().max(1));
        self.units.saturating_sub(u64::try_from(gained).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> LeaseTerms {
        // 900 in the store, slices of at most 100 for 100 ms.
        LeaseTerms::of(&Quota::new("1000/s".parse().unwrap(), 1_000).unwrap()).unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Asks often enough, and returns the size of the slice that is then wanted.
    fn heat(slices: &Slices, from: Instant) -> u64 {
        let mut wanted = None;
        for step in 0..200 {
            let taken = slices.take("a", &terms(), Cost::ONE, from + ms(step));
            assert!(taken.allow.is_none());
            wanted = wanted.or(taken.debit);
        }
        wanted.unwrap()
    }

    #[test]
    fn a_key_with_little_traffic_stays_strict_by_itself() {
        let (slices, start) = (Slices::default(), Instant::now());
        for step in 0..50 {
            let taken = slices.take("a", &terms(), Cost::ONE, start + ms(20 * step));
            assert!(taken.allow.is_none() && taken.debit.is_none());
        }
    }

    #[test]
    fn a_slice_is_spent_by_its_units_and_only_until_it_ends() {
        let (slices, start) = (Slices::default(), Instant::now());
        heat(&slices, start);
        slices.debited("a", 3, Ok(500), start);
        let take = |cost, at| slices.take("a", &terms(), Cost::new(cost), start + at).allow;
        assert_eq!(take(2, ms(1)).unwrap().remaining, 501);
        assert!(take(2, ms(1)).is_none(), "one unit is left");
        assert!(take(1, ms(99)).is_some());
        slices.debited("a", 3, Ok(500), start);
        assert!(take(1, ms(100)).is_none(), "it ended");
    }

    #[test]
    fn one_slice_is_debited_at_a_time_and_small_ones_near_exhaustion() {
        let (slices, start) = (Slices::default(), Instant::now());
        let first = heat(&slices, start);
        assert!((2..=100).contains(&first), "{first}");
        let later = |at| slices.take("a", &terms(), Cost::ONE, start + at).debit;
        assert_eq!(later(ms(200)), None, "one is under way");
        slices.debited("a", first, Ok(20), start + ms(200));
        let mut sizes = Vec::new();
        for step in 0..60 {
            sizes.extend(later(ms(201 + step)));
        }
        assert_eq!(sizes, [5], "a fourth of what is left");
        slices.debited("a", 5, Err(ms(30)), start + ms(300));
        assert_eq!(later(ms(301)), None);
    }

    #[test]
    fn leftovers_are_what_would_still_be_in_the_bucket() {
        let quota = *terms().quota();
        let start = Instant::now();
        let slice = |missing| Slice { units: 50, since: start, missing };
        // The bucket lacked 150 with the slice, 100 without: full after 99 ms.
        assert_eq!(slice(150).still_missed(&quota, start + ms(60)), 50);
        assert_eq!(slice(150).still_missed(&quota, start + ms(119)), 30);
        // It was full before the debit: nothing that refills has a place beside it.
        assert_eq!(slice(50).still_missed(&quota, start + ms(20)), 30);
        assert_eq!(slice(50).still_missed(&quota, start + ms(80)), 0);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_taken_for_giving_back() {
        let (slices, start) = (Slices::default(), Instant::now());
        heat(&slices, start);
        let at = start + ms(450);
        slices.debited("a", 40, Ok(100), at);
        assert_eq!(slices.units(), 40);
        let (leftovers, watched) = slices.leftovers(Some(ms(0)), at);
        let back: Vec<_> = leftovers.iter().map(|one| (&*one.key, one.cost.units())).collect();
        assert_eq!(back, [("a", 40)]);
        assert!(!watched);
        assert_eq!(slices.units(), 0);
    }
}
