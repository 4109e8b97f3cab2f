//! Denials that stay true for a while, so that the store need not be asked again.
//!
//! What a bucket denies it goes on denying until the denial's `retry_after`: only a refund, a reset
//! or another quota can end that earlier. Those that this process makes end the memory of it; of
//! those that others make it is unaware for at most [`KEPT_MAX`].
//!
//! A denial is kept with all that the store said to the request, under the key of the first bucket
//! that denied. It answers the same request, and one that asks that bucket for more.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use tollgate_core::{Algorithm, Allow, Charge, Cost, Decision, Decisions, Deny, Quota, Timestamp};

/// How long a denial is kept at most, which is how late what other processes give back is seen.
pub(crate) const KEPT_MAX: Duration = Duration::from_secs(1);

/// StoreParts of the memory, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// The most denials of a part. What finds no place is asked of the store.
const SHARD_LEN_MAX: usize = 1_024;

/// The denials that are kept, at most 16,384.
#[derive(Debug)]
pub(crate) struct Denials {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// Whether there may be any, which every check asks.
    any: AtomicBool,
    /// How many checks were denied by what is kept.
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    kept: HashMap<String, Kept, RandomState>,
}

#[derive(Debug)]
struct Kept {
    charges: Vec<(String, Quota, Cost, bool)>,
    decisions: Decisions,
    since: Timestamp,
    until: Timestamp,
}

impl Default for Denials {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        let (any, hits) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { shards, hasher: RandomState::default(), any, hits }
    }
}

impl Denials {
    /// Keeps what the store said at `since` or later, if it denied.
    pub(crate) fn keep(&self, charges: &[Charge<'_>], decisions: &Decisions, since: Timestamp) {
        let denying = || charges.iter().zip(decisions).filter(|(one, said)| denies(one, said));
        // Slots are released at any time.
        let ends = |quota: &Quota| matches!(quota.algorithm(), Algorithm::Concurrency { .. });
        let Some((first, _)) = denying().next() else { return };
        // And shadow rules count what others deny.
        if denying().any(|(one, _)| ends(one.quota) || !one.quota.admits(one.cost))
            || charges.iter().any(|one| one.shadow)
        {
            return;
        }
        // From then on one of them may say something else.
        let soonest = denying().filter_map(|(_, said)| said.retry_after()).min();
        let until = since.saturating_add(soonest.unwrap_or_default().min(KEPT_MAX));
        let mut shard = self.shard(first.key);
        if shard.kept.len() >= SHARD_LEN_MAX {
            shard.kept.retain(|_, kept| kept.until > since && kept.since <= since);
        }
        if shard.kept.len() < SHARD_LEN_MAX {
            let owned = |one: &Charge<'_>| (one.key.to_owned(), *one.quota, one.cost, one.shadow);
            let charges = charges.iter().map(owned).collect();
            let kept = Kept { charges, decisions: decisions.clone(), since, until };
            shard.kept.insert(first.key.to_owned(), kept);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Returns what the store would say to a request at `now`, if that is known and a denial.
    pub(crate) fn find(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Decisions> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        charges.iter().filter(|one| !one.shadow).find_map(|one| {
            let mut shard = self.shard(one.key);
            let kept = shard.kept.get(one.key)?;
            // A clock that went back tells nothing about how long ago it was.
            if now >= kept.until || now < kept.since {
                shard.kept.remove(one.key);
                return None;
            }
            kept.said(charges, now)
        })
    }

    /// Counts a check that was denied by what is kept. One check may have found several denials.
    pub(crate) fn note_hit(&self) {
        // Ordering: a counter that guards no other memory.
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many checks were denied by what is kept.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Forgets the denials of a bucket.
    pub(crate) fn forget(&self, key: &str) {
        self.shard(key).kept.remove(key);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).kept.clear();
        }
        // What is kept meanwhile is not found until the next is; that asks the store once more.
        self.any.store(false, Ordering::Release);
    }

    fn shard(&self, key: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(key);
        let index = hash as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// What was said, some time later.
    fn said(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Decisions> {
        if charges.len() != self.charges.len() {
            return None;
        }
        let elapsed = now.saturating_since(self.since);
        let parts = charges.iter().zip(&self.charges).zip(&self.decisions);
        parts
            .map(|((one, (key, quota, cost, shadow)), said)| {
                let is_same = one.key == key && one.quota == quota && one.shadow == *shadow;
                let more = one.cost.units().checked_sub(cost.units()).filter(|_| is_same)?;
                match *said {
                    _ if more == 0 => Some(later(*said, Duration::ZERO, elapsed)),
                    // What is missing besides comes at the bucket's rate; when windows free it is not
                    // known.
                    Decision::Deny(_) if is_bucket(quota) && quota.admits(one.cost) => {
                        Some(later(*said, quota.time_to_gain(more), elapsed))
                    }
                    _ => None,
                }
            })
            .collect()
    }
}

fn denies(one: &Charge<'_>, said: &Decision) -> bool {
    !one.shadow && said.is_deny()
}

fn is_bucket(quota: &Quota) -> bool {
    matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// A decision after so much time, for a cost that fits so much later.
fn later(said: Decision, more: Duration, elapsed: Duration) -> Decision {
    match said {
        Decision::Allow(allow) => Decision::Allow(Allow {
            reset_after: allow.reset_after.saturating_sub(elapsed),
            delay: allow.delay.saturating_sub(elapsed),
            ..allow
        }),
        Decision::Deny(deny) => Decision::Deny(Deny {
            reset_after: deny.reset_after.saturating_sub(elapsed),
            retry_after: (deny.retry_after + more).saturating_sub(elapsed),
            ..deny
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn after(us: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_micros(us))
    }

    fn deny(retry_after_us: u64) -> Decision {
        Decision::Deny(Deny {
            limit: 10,
            remaining: 0,
            reset_after: Duration::from_secs(9),
            retry_after: Duration::from_micros(retry_after_us),
        })
    }

    fn allow() -> Decision {
        let reset_after = Duration::from_secs(1);
        Decision::Allow(Allow { limit: 10, remaining: 4, reset_after, delay: Duration::ZERO })
    }

    fn quota(rate: &str) -> Quota {
        Quota::new(rate.parse().unwrap(), 10).unwrap()
    }

    fn retry_us(decisions: Option<Decisions>) -> Option<u128> {
        Some(decisions?.last()?.retry_after()?.as_micros())
    }

    #[test]
    fn g2_a_denial_is_kept_to_the_microsecond_at_which_it_ends() {
        let (denials, quota) = (Denials::default(), quota("10/s"));
        let charges = [Charge::new("a", &quota, Cost::ONE)];
        denials.keep(&charges, &Decisions::from_iter([deny(100_000)]), NOW);
        assert_eq!(retry_us(denials.find(&charges, NOW)), Some(100_000));
        assert_eq!(retry_us(denials.find(&charges, after(99_999))), Some(1));
        assert_eq!(denials.find(&charges, after(100_000)), None);
        assert_eq!(denials.find(&charges, NOW), None, "it is forgotten when it has ended");
    }

    #[test]
    fn a_denial_is_kept_for_no_more_than_a_second_and_not_across_a_clock_step() {
        let (denials, quota) = (Denials::default(), quota("1/hour"));
        let charges = [Charge::new("a", &quota, Cost::ONE)];
        let said = Decisions::from_iter([deny(3_600_000_000)]);
        denials.keep(&charges, &said, NOW);
        assert_eq!(retry_us(denials.find(&charges, after(999_999))), Some(3_599_000_001));
        assert_eq!(denials.find(&charges, after(1_000_000)), None);
        denials.keep(&charges, &said, NOW);
        assert_eq!(denials.find(&charges, NOW.saturating_sub(Duration::from_micros(1))), None);
    }

    #[test]
    fn a_larger_cost_waits_for_the_units_it_wants_more_and_a_smaller_one_is_not_known() {
        let (denials, quota) = (Denials::default(), quota("10/s"));
        let charge = |cost| [Charge::new("a", &quota, Cost::new(cost))];
        denials.keep(&charge(3), &Decisions::from_iter([deny(50_000)]), NOW);
        assert_eq!(retry_us(denials.find(&charge(5), NOW)), Some(250_000));
        assert_eq!(denials.find(&charge(2), NOW), None);
        assert_eq!(denials.find(&charge(11), NOW), None, "it can never succeed");
        let window = Quota::fixed_window("10/s".parse().unwrap()).unwrap();
        let charge = |cost| [Charge::new("b", &window, Cost::new(cost))];
        denials.keep(&charge(3), &Decisions::from_iter([deny(50_000)]), NOW);
        assert_eq!(retry_us(denials.find(&charge(3), NOW)), Some(50_000));
        assert_eq!(denials.find(&charge(4), NOW), None);
    }

    #[test]
    fn of_several_rules_the_whole_request_must_be_the_same() {
        let (denials, quota) = (Denials::default(), quota("10/s"));
        let charges = |ip: &'static str| {
            [Charge::new("all", &quota, Cost::ONE), Charge::new(ip, &quota, Cost::ONE)]
        };
        denials.keep(&charges("x"), &Decisions::from_iter([allow(), deny(70_000)]), NOW);
        let said = denials.find(&charges("x"), after(10_000)).unwrap();
        assert_eq!(said[0].reset_after(), Duration::from_millis(990));
        assert_eq!(said[1].retry_after(), Some(Duration::from_millis(60)));
        assert_eq!(denials.find(&charges("y"), NOW), None);
        assert_eq!(denials.find(&charges("x")[1..], NOW), None);
        denials.forget("x");
        assert_eq!(denials.find(&charges("x"), NOW), None);
    }

    #[test]
    fn what_may_change_at_any_time_or_denies_nothing_is_not_kept() {
        let denials = Denials::default();
        let slots = Quota::concurrency(1, Duration::from_secs(1)).unwrap();
        let bucket = quota("10/s");
        for charge in [
            Charge::new("slots", &slots, Cost::ONE),
            Charge::new("shadow", &bucket, Cost::ONE).with_shadow(true),
        ] {
            denials.keep(&[charge], &Decisions::from_iter([deny(9)]), NOW);
            assert_eq!(denials.find(&[charge], NOW), None);
        }
        let allowed = [Charge::new("a", &bucket, Cost::ONE)];
        denials.keep(&allowed, &Decisions::from_iter([allow()]), NOW);
        assert_eq!(denials.find(&allowed, NOW), None);
    }

    #[test]
    fn g9_no_more_denials_are_kept_than_there_is_room_for() {
        let (denials, quota) = (Denials::default(), quota("10/s"));
        let keys: Vec<_> = (0..40_000).map(|number| number.to_string()).collect();
        let len = || -> usize {
            (0..SHARDS).map(|at| denials.shards[at].lock().unwrap().kept.len()).sum()
        };
        let keep = |now| {
            for key in &keys {
                let charges = [Charge::new(key, &quota, Cost::ONE)];
                denials.keep(&charges, &Decisions::from_iter([deny(100_000)]), now);
            }
        };
        keep(NOW);
        assert_eq!(len(), SHARDS * SHARD_LEN_MAX);
        // Those that have ended make room.
        keep(after(100_000));
        let charges = [Charge::new(&keys[0], &quota, Cost::ONE)];
        assert_eq!(retry_us(denials.find(&charges, after(100_000))), Some(100_000));
        denials.clear();
        assert_eq!(len(), 0);
    }
}
