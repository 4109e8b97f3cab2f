//! The limiter on the in-memory store and a clock that stands still.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::time::Duration;

use tollgate::{
    AnyStore, Attributes, Cost, Limiter, ManualClock, MemoryStore, Missing, Mode, Quota, Rule,
    RuleSet,
};

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

fn alice() -> Attributes {
    Attributes::from([("path", "/login"), ("ip", "203.0.113.7")])
}

#[tokio::test]
async fn a_request_that_no_rule_applies_to_is_unlimited() {
    let (limiter, _) = limiter([Rule::new("per-account", quota("1/s", 1)).with_key(["account"])]);
    for _ in 0..3 {
        let verdict = limiter.check(&alice()).await.unwrap();
        assert!(verdict.is_allowed());
        assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Unlimited, None));
        assert!(verdict.rules().is_empty());
    }
}

#[tokio::test]
async fn requests_without_the_key_attribute_share_a_bucket_if_told_to() {
    let rule = Rule::new("per-account", quota("1/s", 1)).with_key(["account"]);
    let (limiter, _) = limiter([rule.with_missing(Missing::Share)]);
    assert!(limiter.check(&alice()).await.unwrap().is_allowed());
    let bob = Attributes::from([("ip", "203.0.113.8")]);
    assert!(!limiter.check(&bob).await.unwrap().is_allowed());
    let named = alice().with("account", "acme");
    assert!(limiter.check(&named).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_rule_of_another_domain_does_not_apply() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/s", 1)).with_domain("shop")]);
    assert_eq!(limiter.check(&alice()).await.unwrap().mode(), Mode::Unlimited);
    let in_shop = alice().with_domain("shop");
    assert_eq!(limiter.check(&in_shop).await.unwrap().remaining(), Some(0));
}

#[tokio::test]
async fn g7_a_denied_rule_leaves_the_others_unspent() {
    let (limiter, _) = limiter([
        Rule::new("per-ip", quota("1/min", 1)).with_key(["ip"]),
        Rule::new("everyone", quota("100/min", 100)),
    ]);
    assert!(limiter.check(&alice()).await.unwrap().is_allowed());
    for _ in 0..5 {
        let denied = limiter.check(&alice()).await.unwrap();
        assert!(!denied.is_allowed());
        assert_eq!(denied.rule().unwrap().name(), "per-ip");
        let said: Vec<_> = denied
            .rules()
            .iter()
            .map(|rule| (rule.rule().name(), rule.decision().is_allow()))
            .collect();
        assert_eq!(said, [("everyone", true), ("per-ip", false)]);
        assert_eq!(denied.rules()[0].decision().remaining(), 99);
    }
}

#[tokio::test]
async fn the_denial_with_the_longest_wait_speaks_for_the_request() {
    let (limiter, _) =
        limiter([Rule::new("second", quota("1/s", 1)), Rule::new("minute", quota("1/min", 1))]);
    let allowed = limiter.check(&alice()).await.unwrap();
    assert_eq!(allowed.rule().unwrap().name(), "minute");
    let denied = limiter.check(&alice()).await.unwrap();
    assert_eq!(denied.rule().unwrap().name(), "minute");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn a_shadow_rule_is_reported_and_never_denies() {
    let rules = [
        Rule::new("tight", quota("1/min", 1)).with_shadow(true),
        Rule::new("wide", quota("10/min", 10)),
    ];
    let (limiter, _) = limiter(rules);
    for left in (0..10).rev() {
        let verdict = limiter.check(&alice()).await.unwrap();
        assert!(verdict.is_allowed());
        assert_eq!(verdict.remaining(), Some(left));
    }
    let denied = limiter.check(&alice()).await.unwrap();
    assert_eq!(denied.rule().unwrap().name(), "wide");
    let (limiter, _) = self::limiter([Rule::new("tight", quota("1/min", 1)).with_shadow(true)]);
    let _ = limiter.check(&alice()).await.unwrap();
    let second = limiter.check(&alice()).await.unwrap();
    assert!(second.is_allowed() && second.rules()[0].decision().is_deny());
    assert_eq!((second.mode(), second.remaining()), (Mode::Unlimited, None));
}

#[tokio::test]
async fn a_cost_above_the_burst_is_the_callers_mistake_and_spends_nothing() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/s", 5))]);
    let error = limiter.check_n(&alice(), Cost::new(6)).await.unwrap_err();
    assert!(error.is_impossible());
    assert_eq!(error.rule().unwrap().name(), "all");
    assert_eq!(
        error.to_string(),
        "cost 6 can never succeed: rule \"all\" admits at most 5 at once"
    );
    assert_eq!(limiter.peek(&alice()).await.unwrap().remaining(), Some(5));
}

#[tokio::test]
async fn a_shadow_rule_that_could_never_admit_the_cost_is_reported_without_a_wait() {
    let (limiter, _) = limiter([Rule::new("tight", quota("1/s", 1)).with_shadow(true)]);
    let verdict = limiter.check_n(&alice(), Cost::new(2)).await.unwrap();
    assert!(verdict.is_allowed());
    let shadow = &verdict.rules()[0];
    assert!(shadow.decision().is_deny());
    assert_eq!(shadow.retry_after(), None);
}

#[tokio::test]
async fn g3_a_peek_costs_nothing_and_is_never_denied() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/min", 1))]);
    for _ in 0..3 {
        assert_eq!(limiter.peek(&alice()).await.unwrap().remaining(), Some(1));
    }
    assert!(limiter.check(&alice()).await.unwrap().is_allowed());
    let looked = limiter.peek(&alice()).await.unwrap();
    assert!(looked.is_allowed());
    assert_eq!(looked.remaining(), Some(0));
    let would_it = limiter.peek_n(&alice(), Cost::ONE).await.unwrap();
    assert_eq!(would_it.retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn a_refund_gives_back_at_most_the_burst() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/min", 5))]);
    let _ = limiter.check_n(&alice(), Cost::new(4)).await.unwrap();
    assert_eq!(limiter.refund(&alice(), Cost::new(2)).await.unwrap().remaining(), Some(3));
    assert_eq!(limiter.refund(&alice(), Cost::new(99)).await.unwrap().remaining(), Some(5));
    assert_eq!(limiter.peek(&alice()).await.unwrap().remaining(), Some(5));
}

#[tokio::test]
async fn a_reset_fills_the_buckets_of_this_request_only() {
    let (limiter, _) = limiter([Rule::new("per-ip", quota("1/min", 2)).with_key(["ip"])]);
    let bob = Attributes::from([("ip", "203.0.113.8")]);
    for who in [&alice(), &bob] {
        let _ = limiter.check_n(who, Cost::new(2)).await.unwrap();
    }
    assert_eq!(limiter.reset(&alice()).await.unwrap().remaining(), Some(2));
    assert_eq!(limiter.peek(&bob).await.unwrap().remaining(), Some(0));
}

#[tokio::test]
async fn g11_replaced_rules_decide_the_next_check_and_keep_the_units() {
    let (limiter, clock) = limiter([Rule::new("all", quota("1/s", 10))]);
    let _ = limiter.check_n(&alice(), Cost::new(9)).await.unwrap();
    let raised = RuleSet::new([Rule::new("all", quota("1/s", 100))]).unwrap();
    limiter.replace_rules(raised);
    assert_eq!(limiter.check(&alice()).await.unwrap().remaining(), Some(0));
    clock.advance(Duration::from_secs(3));
    assert_eq!(limiter.peek(&alice()).await.unwrap().remaining(), Some(3));
}

#[tokio::test]
async fn clones_share_one_budget() {
    let (limiter, _) = limiter([Rule::new("all", quota("1/min", 1))]);
    assert!(limiter.clone().check(&alice()).await.unwrap().is_allowed());
    assert!(!limiter.check(&alice()).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_store_of_ones_own_decides_as_the_memory_store() {
    struct Wrapped(MemoryStore);
    impl tollgate::Store for Wrapped {
        async fn apply(
            &self,
            operation: tollgate::Operation,
            charges: &[tollgate::Charge<'_>],
            now: tollgate::Timestamp,
        ) -> Result<tollgate::Decisions, tollgate::StoreError> {
            self.0.decide(operation, charges, now)
        }

        async fn reset(&self, keys: &[&str]) -> Result<(), tollgate::StoreError> {
            self.0.forget(keys);
            Ok(())
        }
    }
    let limiter = Limiter::builder()
        .rule(Rule::new("all", quota("1/min", 2)))
        .store(AnyStore::new(Wrapped(MemoryStore::new())))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    assert_eq!(limiter.store().kind(), "custom");
    assert_eq!(limiter.check_n(&alice(), Cost::new(2)).await.unwrap().remaining(), Some(0));
    assert!(!limiter.check(&alice()).await.unwrap().is_allowed());
    assert_eq!(limiter.reset(&alice()).await.unwrap().remaining(), Some(2));
}
