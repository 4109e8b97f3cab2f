//! What the rules answer when the store cannot (G10).

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::{
    AnyStore, Attributes, Charge, Cost, Decisions, FailurePolicy, Fraction, Limiter, LocalShare,
    ManualClock, MemoryStore, Mode, Operation, Quota, Rule, Store, StoreError, StoreErrorKind,
    Timestamp,
};

/// A store that stops to answer when told to.
struct Flaky {
    memory: MemoryStore,
    fails: Arc<AtomicBool>,
}

impl Flaky {
    fn outcome(&self) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Timeout, "no answer from secret-host"));
        }
        Ok(())
    }
}

impl Store for Flaky {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        self.outcome()?;
        self.memory.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.outcome()?;
        self.memory.forget(keys);
        Ok(())
    }
}

struct Setup {
    limiter: Limiter,
    clock: ManualClock,
    fails: Arc<AtomicBool>,
}

fn setup(rules: impl IntoIterator<Item = Rule>) -> Setup {
    let (clock, fails) = (ManualClock::new(), Arc::new(AtomicBool::new(false)));
    let store = Flaky { memory: MemoryStore::new(), fails: Arc::clone(&fails) };
    let limiter = Limiter::builder()
        .rules(rules)
        .store(AnyStore::new(store))
        .clock(clock.clone())
        .build()
        .unwrap();
    Setup { limiter, clock, fails }
}

fn rule(name: &str, burst: u64, policy: FailurePolicy) -> Rule {
    let quota = Quota::new("10/s".parse().unwrap(), burst).unwrap();
    Rule::new(name, quota).with_failure_policy(policy)
}

#[tokio::test]
async fn g10_an_open_rule_allows_and_says_so() {
    let setup = setup([rule("all", 1, FailurePolicy::Open)]);
    setup.fails.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        let verdict = setup.limiter.check(&Attributes::new()).await.unwrap();
        assert!(verdict.is_allowed());
        assert_eq!(verdict.mode(), Mode::Open);
        assert_eq!(verdict.store_failure(), Some(StoreErrorKind::Timeout));
    }
}

#[tokio::test]
async fn g10_a_closed_rule_refuses_and_names_neither_key_nor_server() {
    let setup = setup([rule("all", 1, FailurePolicy::Closed), rule("b", 1, FailurePolicy::Open)]);
    setup.fails.store(true, Ordering::SeqCst);
    let error = setup.limiter.check(&Attributes::new()).await.unwrap_err();
    assert!(error.is_store_failure());
    assert_eq!(error.rule().unwrap().name(), "all");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(
        error.to_string(),
        "the store cannot decide, and rule \"all\" refuses requests until it can"
    );
}

#[tokio::test]
async fn g10_a_local_rule_decides_by_this_nodes_own_bucket() {
    let setup = setup([rule("all", 3, FailurePolicy::Local)]);
    let attributes = Attributes::new();
    assert_eq!(setup.limiter.check(&attributes).await.unwrap().mode(), Mode::Exact);
    setup.fails.store(true, Ordering::SeqCst);
    for left in [2, 1, 0] {
        let verdict = setup.limiter.check(&attributes).await.unwrap();
        assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Local, Some(left)));
    }
    let denied = setup.limiter.check(&attributes).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
    setup.clock.advance(Duration::from_millis(100));
    assert!(setup.limiter.check(&attributes).await.unwrap().is_allowed());
    setup.fails.store(false, Ordering::SeqCst);
    assert_eq!(setup.limiter.check(&attributes).await.unwrap().mode(), Mode::Exact);
}

#[tokio::test]
async fn a_local_share_is_a_fraction_of_rate_and_burst() {
    let share = LocalShare::Fraction(Fraction::parse("0.5").unwrap());
    let setup = setup([rule("all", 5, FailurePolicy::Local).with_local_share(share)]);
    setup.fails.store(true, Ordering::SeqCst);
    let verdict = setup.limiter.check_n(&Attributes::new(), Cost::new(2)).await.unwrap();
    assert_eq!(verdict.decision().unwrap().limit(), 2);
    let denied = setup.limiter.check(&Attributes::new()).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(200)));
}

#[tokio::test]
async fn each_rule_answers_by_its_own_policy() {
    let setup = setup([
        rule("local", 1, FailurePolicy::Local),
        rule("open", 1, FailurePolicy::Open),
        rule("closed-shadow", 1, FailurePolicy::Closed).with_shadow(true),
    ]);
    setup.fails.store(true, Ordering::SeqCst);
    let verdict = setup.limiter.check(&Attributes::new()).await.unwrap();
    let modes: Vec<_> =
        verdict.rules().iter().map(|rule| (rule.rule().name(), rule.mode())).collect();
    assert_eq!(
        modes,
        [("local", Mode::Local), ("open", Mode::Open), ("closed-shadow", Mode::Open)]
    );
    assert!(!setup.limiter.check(&Attributes::new()).await.unwrap().is_allowed());
}

#[tokio::test]
async fn g9_a_full_store_in_memory_refuses_new_keys_and_keeps_no_second_one() {
    let quota = Quota::new("1/hour".parse().unwrap(), 5).unwrap();
    let limiter = Limiter::builder()
        .rule(Rule::new("per-ip", quota).with_key(["ip"]))
        .store(MemoryStore::builder().keys_max(1).build())
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let first = Attributes::from([("ip", "203.0.113.1")]);
    let second = Attributes::from([("ip", "203.0.113.2")]);
    assert!(limiter.check(&first).await.unwrap().is_allowed());
    let error = limiter.check(&second).await.unwrap_err();
    assert_eq!(error.store_failure(), Some(StoreErrorKind::Full));
    assert_eq!(
        error.to_string(),
        "the store has no room for another bucket or record until some have ended, and rule \
         \"per-ip\" refuses requests until it can"
    );
    assert_eq!(limiter.local_keys(), 0);
    assert_eq!(limiter.check(&first).await.unwrap().remaining(), Some(3));
    assert_eq!(limiter.store_failure(), None);
}

#[tokio::test]
async fn a_refund_or_reset_without_the_store_is_an_error_whatever_the_policy() {
    let setup = setup([rule("all", 1, FailurePolicy::Open)]);
    setup.fails.store(true, Ordering::SeqCst);
    let refunded = setup.limiter.refund(&Attributes::new(), Cost::ONE).await;
    assert!(refunded.unwrap_err().is_store_failure());
    let reset = setup.limiter.reset(&Attributes::new()).await;
    assert!(reset.unwrap_err().is_store_failure());
}
