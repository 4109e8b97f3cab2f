//! A verdict as one line of a log.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::time::Duration;

use tollgate::{
    AnyStore, Attributes, Charge, Cost, Decisions, FailurePolicy, Limiter, ManualClock, Matcher,
    Operation, Quota, Rule, Store, StoreError, StoreErrorKind, Timestamp, Treatment,
};

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().rules(rules).clock(ManualClock::new()).build().unwrap()
}

fn rule(name: &str, rate: &str, burst: u64) -> Rule {
    Rule::new(name, Quota::new(rate.parse().unwrap(), burst).unwrap())
}

async fn said(limiter: &Limiter, cost: u64) -> String {
    let request = Attributes::from([("account", "a line\nof its own".to_owned())]);
    limiter.check_n(&request, Cost::new(cost)).await.unwrap().to_string()
}

#[tokio::test]
async fn an_allowed_and_a_denied_request_name_the_most_restrictive_rule() {
    let limiter =
        limiter([rule("all", "1/s", 100), rule("few", "20/min", 2).with_key(["account"])]);
    assert_eq!(said(&limiter, 2).await, "allowed by few, 0 of 2 left");
    assert_eq!(said(&limiter, 1).await, "denied by few, 0 of 2 left, retry after 3s");
}

#[tokio::test]
async fn a_blocked_request_has_no_time_to_retry() {
    let evil = Matcher::new().with("account", ["*"]);
    let limiter = limiter([rule("gate", "1/s", 5).with_exception(evil, Treatment::Blocked)]);
    assert_eq!(said(&limiter, 1).await, "denied by gate, which blocks it");
}

#[tokio::test]
async fn an_unlimited_request_says_that_no_rule_applies() {
    let elsewhere = rule("shop", "1/s", 5).with_domain("shop");
    assert_eq!(said(&limiter([elsewhere]), 1).await, "allowed, no enforced rule applies");
}

#[tokio::test]
async fn a_shadow_rule_speaks_only_where_it_would_deny() {
    let limiter = limiter([rule("all", "1/s", 3), rule("trial", "1/s", 1).with_shadow(true)]);
    assert_eq!(said(&limiter, 1).await, "allowed by all, 2 of 3 left");
    assert_eq!(said(&limiter, 1).await, "allowed by all, 1 of 3 left, shadow trial would deny");
    let alone = self::limiter([rule("trial", "1/s", 1).with_shadow(true)]);
    assert_eq!(said(&alone, 1).await, "allowed, no enforced rule applies");
    assert_eq!(said(&alone, 1).await, "allowed, no enforced rule applies, shadow trial would deny");
}

#[tokio::test]
async fn queues_and_slots_are_counted_as_what_is_taken() {
    let queue = Quota::leaky_bucket("10/s".parse().unwrap(), 2).unwrap();
    let queue = limiter([Rule::new("sms", queue)]);
    assert_eq!(said(&queue, 1).await, "allowed by sms, 1 of 2 in the queue");
    assert_eq!(said(&queue, 1).await, "allowed by sms, 2 of 2 in the queue, go on after 100ms");
    assert_eq!(said(&queue, 1).await, "denied by sms, 2 of 2 in the queue, retry after 100ms");

    let slots = Quota::concurrency(2, Duration::from_secs(30)).unwrap();
    let slots = limiter([Rule::new("exports", slots)]);
    let _held = slots.enter(&Attributes::new(), Cost::ONE).await.unwrap();
    let seen = said(&slots, 2).await;
    assert_eq!(seen, "denied by exports, 1 of 2 in flight, retry after 30s");
}

struct Dead;

impl Store for Dead {
    async fn apply(
        &self,
        _: Operation,
        _: &[Charge<'_>],
        _: Timestamp,
    ) -> Result<Decisions, StoreError> {
        Err(StoreError::new(StoreErrorKind::Timeout, "no answer from secret-host"))
    }

    async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_store_that_failed_is_told_with_what_decided_in_its_place() {
    let limiter = Limiter::builder()
        .rule(rule("all", "1/s", 4))
        .rule(rule("some", "1/s", 9).with_failure_policy(FailurePolicy::Open))
        .store(AnyStore::new(Dead))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let seen = said(&limiter, 1).await;
    assert_eq!(seen, "allowed by all, 3 of 4 left (store: timeout, mode: local)");
}
