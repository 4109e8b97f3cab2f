//! Shards on a store that tells which of them are asked.

mod bound;
mod failures;
mod holds;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::{
    Attributes, Charge, Cost, Decisions, HotKeys, Operation, Quota, Rule, Store, StoreError,
    StoreErrorKind, Timestamp,
};
use tollgate_memory::MemoryStore;

use crate::any_store::AnyStore;
use crate::clock::ManualClock;
use crate::limiter::Limiter;
use crate::verdict::{Mode, Verdict};

/// A store that nodes share, and that notes what it is asked for.
#[derive(Clone, Default)]
struct Remote {
    memory: Arc<MemoryStore>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether it fails at the second call of each request from now on, or at each.
    fails_again: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    /// The shard that fails always, if one does.
    lost: Arc<Mutex<Option<&'static str>>>,
}

impl Remote {
    /// The keys of each call since it was last asked that.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Store for Remote {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let keys: Vec<_> = charges.iter().map(|charge| charge.key).collect();
        let mut asked = self.asked.lock().unwrap();
        asked.push(keys.join(" "));
        let is_second = self.fails_again.load(Ordering::SeqCst) && asked.len() > 1;
        let is_lost = self.lost.lock().unwrap().is_some_and(|lost| keys.contains(&lost));
        if is_second || is_lost || self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "away"));
        }
        self.memory.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.memory.forget(keys);
        Ok(())
    }
}

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn sharded(name: &str, quota: Quota, count: u8) -> Rule {
    Rule::new(name, quota).with_hot_keys(HotKeys::Shards(count.try_into().unwrap()))
}

fn limiter(remote: &Remote, rules: &[Rule], clock: &ManualClock) -> Limiter {
    let limiter = Limiter::builder().rules(rules.iter().cloned()).clock(clock.clone());
    limiter.store(AnyStore::new(remote.clone())).shard_seed(7).build().unwrap()
}

async fn check(limiter: &Limiter, cost: u64) -> Verdict {
    limiter.check_n(&Attributes::new(), Cost::new(cost)).await.unwrap()
}

async fn left(limiter: &Limiter) -> Option<u32> {
    limiter.peek(&Attributes::new()).await.unwrap().remaining()
}

#[tokio::test]
async fn a_check_asks_one_shard_and_if_that_denies_exactly_one_other() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("8/day", 8), 4)], &clock);
    let (mut admitted, mut denied) = (0, 0);
    for _ in 0..200 {
        let before = left(&limiter).await.unwrap();
        remote.calls();
        let verdict = check(&limiter, 1).await;
        let calls = remote.calls();
        assert!(calls.iter().all(|key| key.starts_with("default:all:@shard=")), "{calls:?}");
        assert!(calls.len() <= 2 && calls.iter().skip(1).all(|key| *key != calls[0]), "{calls:?}");
        assert_eq!(verdict.decision().unwrap().limit(), 8);
        if verdict.is_allowed() {
            admitted += 1;
            assert!(verdict.remaining().unwrap() < before, "a lower bound of what is left");
        } else {
            denied += 1;
            assert_eq!(left(&limiter).await, Some(before), "G3: a denial is free");
        }
    }
    assert_eq!((admitted, denied, left(&limiter).await), (8, 192, Some(0)));
}

#[tokio::test]
async fn a_denial_says_the_sooner_of_the_two_shards() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("2/s", 2), 2)], &clock);
    assert!(check(&limiter, 1).await.is_allowed());
    clock.advance(Duration::from_millis(300));
    // A unit of each shard, of one 300 ms later than of the other.
    assert!(check(&limiter, 1).await.is_allowed());
    for _ in 0..20 {
        let denied = check(&limiter, 1).await;
        assert_eq!(denied.retry_after(), Some(Duration::from_millis(700)));
        assert_eq!(denied.remaining(), Some(0));
    }
    clock.advance(Duration::from_millis(700));
    assert!(check(&limiter, 1).await.is_allowed());
    assert_eq!(check(&limiter, 1).await.retry_after(), Some(Duration::from_millis(300)));
}

#[tokio::test]
async fn a_shard_that_has_denied_is_not_asked_again_before_it_can_allow() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("2/s", 2), 2)], &clock);
    while check(&limiter, 1).await.is_allowed() {}
    remote.calls();
    for _ in 0..50 {
        assert!(!check(&limiter, 1).await.is_allowed());
    }
    assert_eq!(remote.calls(), [""; 0]);
    clock.advance(Duration::from_secs(1));
    assert!(check(&limiter, 1).await.is_allowed());
}

#[tokio::test]
async fn a_check_that_is_denied_without_asking_counts_once_however_many_shards_are_known() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("8/day", 8), 4)], &clock);
    let hits = || limiter.status().denial_cache_hits;
    let mut unasked = 0;
    for _ in 0..100 {
        remote.calls();
        let verdict = check(&limiter, 1).await;
        assert_eq!(verdict.asked_store(), !remote.calls().is_empty());
        unasked += u64::from(!verdict.asked_store());
    }
    assert_eq!(hits(), unasked, "all four are known by then");
    remote.calls();
    for _ in 0..1_000 {
        assert!(!check(&limiter, 1).await.is_allowed());
    }
    assert_eq!((remote.calls().len(), hits() - unasked), (0, 1_000));
}

#[tokio::test]
async fn a_known_denial_is_no_hit_if_another_shard_was_asked_in_vain() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("2/day", 2), 2)], &clock);
    let half = quota("1/day", 1);
    let charge = [Charge::new("default:all:@shard=0", &half, Cost::ONE)];
    assert!(remote.memory.decide(Operation::Spend, &charge, limiter.now()).unwrap()[0].is_allow());
    *remote.lost.lock().unwrap() = Some("default:all:@shard=1");
    let mut denied = 0;
    for _ in 0..8 {
        let verdict = check(&limiter, 1).await;
        assert!(verdict.asked_store());
        denied += u32::from(verdict.mode() == Mode::Exact);
    }
    assert!(denied >= 2, "{denied}: the second of these was known");
    assert_eq!(limiter.status().denial_cache_hits, 0);
    assert_eq!(remote.calls().iter().filter(|keys| *keys == charge[0].key).count(), 1);
}

#[tokio::test]
async fn a_cost_that_only_some_shards_can_hold_is_asked_of_those() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("10/day", 10), 4)], &clock);
    // Bursts of 3, 3, 2 and 2.
    assert!(check(&limiter, 3).await.is_allowed());
    assert!(check(&limiter, 3).await.is_allowed());
    let denied = check(&limiter, 3).await;
    assert_eq!((denied.is_allowed(), denied.retry_after().is_some()), (false, true));
    let mut asked = remote.calls();
    asked.sort();
    asked.dedup();
    assert_eq!(asked, ["default:all:@shard=0", "default:all:@shard=1"]);
    let error = limiter.check_n(&Attributes::new(), Cost::new(4)).await.unwrap_err();
    assert!(error.is_impossible());
    assert_eq!(
        error.to_string(),
        "cost 4 can never succeed: rule \"all\" admits at most 3 at once"
    );
    assert_eq!(left(&limiter).await, Some(4));
}

#[tokio::test]
async fn a_look_sees_all_shards_and_a_reset_fills_them() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("7/day", 7), 4)], &clock);
    let look = async |cost| limiter.peek_n(&Attributes::new(), Cost::new(cost)).await.unwrap();
    assert_eq!(look(0).await.remaining(), Some(7));
    assert_eq!(remote.calls().len(), 1, "all in one call");
    for spent in 1..=6 {
        while !check(&limiter, 1).await.is_allowed() {}
        let looked = look(1).await;
        assert_eq!((looked.is_allowed(), looked.remaining()), (true, Some(7 - spent)));
        assert_eq!(looked.decision().unwrap().limit(), 7);
    }
    while !check(&limiter, 1).await.is_allowed() {}
    let looked = look(1).await;
    assert_eq!((looked.is_allowed(), looked.remaining()), (false, Some(0)));
    // A shard gains a unit in 4/7 of a day.
    assert_eq!(looked.retry_after(), Some(Duration::from_micros(49_371_428_572)));
    let reset = limiter.reset(&Attributes::new()).await.unwrap();
    assert_eq!((reset.remaining(), look(1).await.is_allowed()), (Some(7), true));
    for _ in 0..50 {
        let _ = check(&limiter, 1).await;
    }
    assert_eq!(left(&limiter).await, Some(0), "denials from before are forgotten");
}

#[tokio::test]
async fn g7_a_request_spends_in_all_rules_or_in_none_on_whatever_shards() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let each = Rule::new("each", quota("1/day", 3)).with_key(["account"]);
    let rules = [sharded("all", quota("20/day", 20), 8), each];
    let limiter = limiter(&remote, &rules, &clock);
    let (mut admitted, mut random) = (0_u32, 1_u64);
    for _ in 0..600 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let account = ((random >> 33) % 12).to_string();
        let request = Attributes::from([("account", account.as_str())]);
        let before = limiter.peek(&request).await.unwrap();
        remote.calls();
        let verdict = limiter.check(&request).await.unwrap();
        let calls = remote.calls().len();
        admitted += u32::from(verdict.is_allowed());
        let after = limiter.peek(&request).await.unwrap();
        let spent = |of: usize| {
            let remaining = |look: &Verdict| look.rules()[of].decision().remaining();
            remaining(&before) - remaining(&after)
        };
        let unit = u32::from(verdict.is_allowed());
        assert_eq!((spent(0), spent(1)), (unit, unit));
        if before.rules()[1].decision().remaining() == 0 {
            assert!(!verdict.is_allowed());
            assert!(calls <= 1, "another shard does not help");
        }
    }
    assert_eq!(admitted, 20);
}

#[tokio::test]
async fn a_shadow_rule_counts_a_request_once_whatever_the_others_say() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let shadow = sharded("shadow", quota("1000/day", 1_000), 4).with_shadow(true);
    let limiter = limiter(&remote, &[shadow, sharded("all", quota("8/day", 8), 4)], &clock);
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u32::from(check(&limiter, 1).await.is_allowed());
    }
    let looked = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(admitted, 8);
    assert_eq!(looked.rules()[0].decision().remaining(), 900);
    let narrow = sharded("narrow", quota("8/day", 8), 4).with_shadow(true);
    let limiter = super::tests::limiter(&remote, &[narrow], &clock);
    let mut within = 0;
    for _ in 0..100 {
        let verdict = check(&limiter, 1).await;
        assert!(verdict.is_allowed());
        within += u32::from(verdict.rules()[0].decision().is_allow());
    }
    assert_eq!(within, 8);
}

#[tokio::test]
async fn a_blocked_request_looks_at_one_shard_and_spends_nothing() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let blocked = Rule::new("guests", quota("5/day", 5)).with_exception(
        tollgate_core::Matcher::new().with("ip", ["192.0.2.1"]),
        tollgate_core::Treatment::Blocked,
    );
    let limiter = limiter(&remote, &[sharded("all", quota("8/day", 8), 8), blocked], &clock);
    let request = Attributes::from([("ip", "192.0.2.1")]);
    let verdict = limiter.check(&request).await.unwrap();
    assert!(!verdict.is_allowed());
    assert_eq!(remote.calls().concat().matches("@shard").count(), 1);
    assert_eq!(left(&limiter).await, Some(5), "of the narrower rule");
    assert_eq!(
        limiter.peek(&Attributes::new()).await.unwrap().rules()[0].decision().remaining(),
        8
    );
}

#[tokio::test]
async fn an_override_has_its_own_quota_in_the_shards_of_its_bucket() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let rule = sharded("each", quota("4/day", 4), 4).with_key(["account"]).with_exception(
        tollgate_core::Matcher::new().with("account", ["acme"]),
        tollgate_core::Treatment::Quota(quota("12/day", 12)),
    );
    let limiter = limiter(&remote, &[rule], &clock);
    for (account, limit) in [("acme", 12), ("other", 4)] {
        let request = Attributes::from([("account", account)]);
        let mut admitted = 0;
        for _ in 0..200 {
            let verdict = limiter.check(&request).await.unwrap();
            assert_eq!(verdict.decision().unwrap().limit(), limit);
            admitted += u32::from(verdict.is_allowed());
        }
        assert_eq!(admitted, limit);
    }
}

#[tokio::test]
async fn parts_that_a_caller_chooses_are_charged_to_the_same_shards() {
    let (remote, clock) = (Remote::default(), ManualClock::new());
    let limiter = limiter(&remote, &[sharded("all", quota("8/day", 8), 4)], &clock);
    let applied = limiter.rules().charges(&Attributes::new()).next().unwrap();
    let part = crate::Part::new(applied, &Attributes::new(), Cost::ONE).unwrap();
    let parts = [part];
    let mut admitted = 0;
    for step in 0..200 {
        let verdict = match step % 2 {
            0 => limiter.check_parts(&parts, None).await.unwrap(),
            _ => check(&limiter, 1).await,
        };
        admitted += u32::from(verdict.is_allowed());
    }
    assert_eq!(admitted, 8);
    let refunded = limiter.refund_parts(&parts).await.unwrap();
    assert!(refunded.is_allowed());
    let looked = limiter.peek_parts(&parts, None).await.unwrap();
    assert_eq!((looked.remaining(), looked.decision().unwrap().limit()), (Some(1), 8));
    let large = [parts[0].clone().with_cost(Cost::new(3))];
    let verdict = limiter.check_parts(&large, None).await.unwrap();
    assert_eq!((verdict.is_allowed(), verdict.retry_after()), (false, None), "no shard holds 3");
}

#[tokio::test]
async fn in_memory_a_rule_with_shards_is_exact_and_whole() {
    let rule = sharded("all", quota("10/day", 10), 4);
    let limiter = Limiter::builder().rule(rule).clock(ManualClock::new()).build().unwrap();
    let verdict = check(&limiter, 9).await;
    assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Exact, Some(1)));
    assert!(check(&limiter, 1).await.is_allowed() && !check(&limiter, 1).await.is_allowed());
}

#[test]
fn a_rule_that_cannot_be_kept_in_shards_is_refused() {
    let refused = |rule| Limiter::builder().rule(rule).build().unwrap_err().to_string();
    assert_eq!(
        refused(sharded("all", quota("10/s", 15), 16)),
        "rule \"all\": a burst of 15 in 16 shards leaves some of them without a unit: give at most \
         15 shards, or a larger burst"
    );
    let small = tollgate_core::Treatment::Quota(quota("3/s", 3));
    let other = tollgate_core::Matcher::new().with("account", ["a"]);
    let rule = sharded("all", quota("100/s", 100), 4).with_exception(other, small);
    assert!(refused(rule).contains("a burst of 3 in 4 shards"));
}
