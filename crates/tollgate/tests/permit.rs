//! Permits that are renewed, and permits of a node whose store does not answer.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{
    AnyStore, Attributes, Charge, Clock, Cost, Decisions, Limiter, MemoryStore, Mode, Operation,
    Permit, Quota, Rule, Store, StoreError, StoreErrorKind, Timestamp,
};

/// The paused time of the test's runtime as a limiter's clock.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A store that answers only as long as it is up.
struct Fragile {
    memory: MemoryStore,
    up: Arc<AtomicBool>,
}

impl Store for Fragile {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        if self.up.load(Ordering::SeqCst) {
            return self.memory.decide(operation, charges, now);
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "it is down"))
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.memory.forget(keys);
        Ok(())
    }
}

fn slots(name: &str, count: u64, lease_s: u64) -> Rule {
    Rule::new(name, Quota::concurrency(count, Duration::from_secs(lease_s)).unwrap())
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, Arc<AtomicBool>) {
    let up = Arc::new(AtomicBool::new(true));
    let store = Fragile { memory: MemoryStore::new(), up: Arc::clone(&up) };
    let limiter = Limiter::builder().rules(rules).store(AnyStore::new(store));
    (limiter.clock(PausedClock(Instant::now())).build().unwrap(), up)
}

async fn permit(limiter: &Limiter) -> Permit {
    limiter.enter(&Attributes::new(), Cost::ONE).await.unwrap().into_permit().unwrap()
}

async fn remaining(limiter: &Limiter) -> u32 {
    limiter.given_back().await;
    limiter.peek(&Attributes::new()).await.unwrap().remaining().unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_renewed_is_held_for_as_long_as_it_lives() {
    let (limiter, _) = limiter([slots("exports", 1, 30)]);
    let permit = permit(&limiter).await.renewing();
    sleep(seconds(1_000)).await;
    assert_eq!(remaining(&limiter).await, 0);
    drop(permit);
    assert_eq!(remaining(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn renewals_end_with_the_permit_whatever_becomes_of_it() {
    let (limiter, _) = limiter([slots("exports", 1, 30)]);
    let held = permit(&limiter).await.renewing().into_hold();
    sleep(seconds(29)).await;
    assert_eq!(remaining(&limiter).await, 0, "a hold is held to the end of its lease");
    sleep(seconds(1)).await;
    assert_eq!(remaining(&limiter).await, 1);
    assert!(limiter.renew(&held).await.unwrap_err().is_not_held());

    permit(&limiter).await.renewing().release().await.unwrap();
    assert_eq!(remaining(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_before_the_lease_ends() {
    let (limiter, up) = limiter([slots("exports", 1, 30)]);
    let permit = permit(&limiter).await.renewing();
    sleep(seconds(5)).await;
    up.store(false, Ordering::SeqCst);
    sleep(seconds(10)).await;
    up.store(true, Ordering::SeqCst);
    sleep(seconds(20)).await;
    assert_eq!(remaining(&limiter).await, 0, "the renewal of 20 s came before the end at 30 s");
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_permit_is_the_shortest_of_its_rules() {
    let bucket = Rule::new("all", Quota::new("1/s".parse().unwrap(), 9).unwrap());
    let (limiter, _) = limiter([slots("long", 5, 60), bucket, slots("short", 5, 20)]);
    let permit = permit(&limiter).await.renewing();
    assert_eq!(permit.lease(), seconds(20));
    sleep(seconds(1_000)).await;
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [4, 9, 4]);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_rule_without_a_slot_does_not_keep_a_permit_from_being_renewed() {
    let (limiter, _) = limiter([slots("trial", 1, 30).with_shadow(true), slots("exports", 2, 30)]);
    let (first, second) = (permit(&limiter).await, permit(&limiter).await);
    first.renew().await.unwrap();
    second.renew().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g10_slots_that_this_node_granted_without_its_store_are_released_and_renewed_here() {
    let (limiter, up) = limiter([slots("exports", 1, 30)]);
    up.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        let got = limiter.enter(&Attributes::new(), Cost::ONE).await.unwrap();
        assert_eq!((got.is_granted(), got.verdict().mode()), (true, Mode::Local));
        let permit = got.into_permit().unwrap();
        assert!(!limiter.enter(&Attributes::new(), Cost::ONE).await.unwrap().is_granted());
        sleep(seconds(20)).await;
        permit.renew().await.unwrap();
        sleep(seconds(20)).await;
        assert_eq!(remaining(&limiter).await, 0);
        drop(permit);
        assert_eq!(remaining(&limiter).await, 1);
    }

    let hold = permit(&limiter).await.into_hold();
    limiter.renew(&hold).await.unwrap();
    limiter.release(&hold).await.unwrap();
    assert_eq!(remaining(&limiter).await, 1, "what was held here is released");
    assert!(limiter.renew(&hold).await.unwrap_err().is_store_failure(), "it may be held there");
    assert!(limiter.release(&hold).await.unwrap_err().is_store_failure());
    up.store(true, Ordering::SeqCst);
    // The breaker is open by now; a probe closes it.
    sleep(seconds(1)).await;
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
    limiter.release(&hold).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn g1_what_a_caller_gives_back_after_an_outage_does_not_fill_the_store() {
    let quota = Quota::leaky_bucket("1/min".parse().unwrap(), 5).unwrap();
    let (limiter, up) = limiter([Rule::new("even", quota)]);
    let _ = limiter.check_n(&Attributes::new(), Cost::new(3)).await.unwrap();
    up.store(false, Ordering::SeqCst);
    let _ = limiter.enter(&Attributes::new(), Cost::new(2)).await.unwrap();
    {
        let request = Attributes::new();
        let waits = limiter.enter(&request, Cost::new(2));
        assert!(tokio::time::timeout(Duration::from_millis(1), waits).await.is_err());
    }
    up.store(true, Ordering::SeqCst);
    assert_eq!(remaining(&limiter).await, 2, "3 of 5 were spent in the store, 2 elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_one_lease_ended_extends_none() {
    let (limiter, _) = limiter([slots("long", 5, 20), slots("short", 5, 1)]);
    let hold = permit(&limiter).await.into_hold();
    sleep(Duration::from_millis(1_500)).await;
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
    sleep(Duration::from_millis(18_500)).await;
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.rules()[0].decision().remaining(), 5, "the long one ended when it was to end");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_shadow_rules_alone_is_held_until_it_is_released() {
    let (limiter, _) = limiter([slots("trial", 1, 30).with_shadow(true)]);
    let hold = permit(&limiter).await.into_hold();
    limiter.renew(&hold).await.unwrap();
    limiter.release(&hold).await.unwrap();
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
}

#[tokio::test(start_paused = true)]
async fn g10_slots_that_were_granted_here_are_renewed_here_when_the_store_is_back() {
    let (limiter, up) = limiter([slots("exports", 1, 30)]);
    up.store(false, Ordering::SeqCst);
    let hold = permit(&limiter).await.into_hold();
    up.store(true, Ordering::SeqCst);
    limiter.renew(&hold).await.unwrap();
    limiter.release(&hold).await.unwrap();
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
}

#[tokio::test(start_paused = true)]
async fn slots_of_rules_that_are_never_decided_here_are_released_in_the_store() {
    let open = slots("exports", 1, 30).with_failure_policy(tollgate::FailurePolicy::Open);
    let (limiter, _) = limiter([open]);
    let hold = permit(&limiter).await.into_hold();
    limiter.renew(&hold).await.unwrap();
    limiter.release(&hold).await.unwrap();
    assert_eq!(remaining(&limiter).await, 1);
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
}
