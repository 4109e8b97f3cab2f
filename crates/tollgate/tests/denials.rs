//! Denials that are known without asking the store, on a store that counts how often it is asked.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollgate::{
    AnyStore, Attributes, Charge, Cost, Decisions, Limiter, ManualClock, MemoryStore, Operation,
    Quota, Rule, RuleSet, Store, StoreError, Timestamp,
};

/// A store that others share, and that is asked over a network for all that the limiter knows.
#[derive(Clone, Default)]
struct Counting {
    memory: Arc<MemoryStore>,
    asked: Arc<AtomicU32>,
}

impl Store for Counting {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.memory.forget(keys);
        Ok(())
    }
}

struct Node {
    limiter: Limiter,
    clock: ManualClock,
    store: Counting,
}

impl Node {
    fn new(store: &Counting, clock: &ManualClock, rule: Rule) -> Self {
        let limiter = Limiter::builder().rule(rule).store(AnyStore::new(store.clone()));
        let limiter = limiter.clock(clock.clone()).build().unwrap();
        Self { limiter, clock: clock.clone(), store: store.clone() }
    }

    fn alone() -> Self {
        Self::new(&Counting::default(), &ManualClock::new(), all("10/s"))
    }

    async fn check(&self) -> Option<Duration> {
        self.limiter.check(&Attributes::new()).await.unwrap().retry_after()
    }

    async fn exhaust(&self) {
        while self.check().await.is_none() {}
    }

    /// Checks, and tells whether the store was asked.
    async fn asks(&self) -> bool {
        let before = self.store.asked.load(Ordering::SeqCst);
        let _ = self.check().await;
        self.store.asked.load(Ordering::SeqCst) > before
    }
}

fn all(rate: &str) -> Rule {
    Rule::new("all", Quota::new(rate.parse().unwrap(), 10).unwrap())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test]
async fn g2_a_denied_key_asks_the_store_again_at_its_retry_after_and_not_before() {
    let node = Node::alone();
    node.exhaust().await;
    assert!(!node.asks().await);
    node.clock.advance(ms(100) - Duration::from_micros(1));
    assert_eq!(node.check().await, Some(Duration::from_micros(1)));
    assert!(!node.asks().await);
    node.clock.advance(Duration::from_micros(1));
    assert_eq!(node.check().await, None, "it is allowed to the microsecond");
}

#[tokio::test]
async fn what_this_process_gives_back_or_changes_is_seen_at_once() {
    let node = Node::alone();
    let request = Attributes::new();
    node.exhaust().await;
    let _ = node.limiter.refund(&request, Cost::ONE).await.unwrap();
    assert_eq!(node.check().await, None);
    node.exhaust().await;
    let _ = node.limiter.reset(&request).await.unwrap();
    assert_eq!(node.check().await, None);
    node.exhaust().await;
    node.limiter.replace_rules(RuleSet::new([all("1000/s")]).unwrap());
    node.clock.advance(ms(1));
    assert_eq!(node.check().await, None, "the new rate holds for what was denied under the old");

    let hold = node.limiter.reserve(&request, Cost::ONE, ms(60_000));
    assert!(!hold.await.unwrap().verdict().is_allowed());
}

#[tokio::test]
async fn what_others_give_back_is_seen_within_a_second() {
    let (store, clock) = (Counting::default(), ManualClock::new());
    let [one, two] = [(); 2].map(|()| Node::new(&store, &clock, all("10/day")));
    one.exhaust().await;
    let _ = two.limiter.refund(&Attributes::new(), Cost::ONE).await.unwrap();
    clock.advance(ms(1_000) - Duration::from_micros(1));
    assert!(one.check().await.is_some());
    clock.advance(Duration::from_micros(1));
    assert_eq!(one.check().await, None);
}

#[tokio::test]
async fn a_shadow_rule_counts_every_request_that_others_deny() {
    let (store, clock) = (Counting::default(), ManualClock::new());
    let limiter = Limiter::builder()
        .rule(all("10/day"))
        .rule(
            Rule::new("trial", Quota::from_rate("1000/day".parse().unwrap()).unwrap())
                .with_shadow(true),
        )
        .store(AnyStore::new(store))
        .clock(clock)
        .build()
        .unwrap();
    for _ in 0..30 {
        let _ = limiter.check(&Attributes::new()).await.unwrap();
    }
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.rules()[1].decision().remaining(), 970);
}
