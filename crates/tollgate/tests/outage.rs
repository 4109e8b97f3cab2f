//! A store that fails, is not asked for a while, and comes back.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{
    AnyStore, Attributes, BreakerSettings, Charge, Clock, Cost, Decisions, FailurePolicy, Limiter,
    LimiterBuilder, MemoryStore, Mode, Operation, Quota, Rule, Store, StoreError, StoreErrorKind,
    Timestamp, Verdict,
};

/// The clock of a runtime whose time is paused.
#[derive(Clone, Copy)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A store in memory that fails or hangs when told to, and counts its calls.
#[derive(Clone, Default)]
struct Remote(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: MemoryStore,
    fails: AtomicBool,
    hangs: AtomicBool,
    probe_is_foreign: AtomicBool,
    calls: AtomicU64,
}

impl Remote {
    fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
    }

    fn hang(&self, hangs: bool) {
        self.0.hangs.store(hangs, Ordering::SeqCst);
    }

    fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    async fn outcome(&self) -> Result<(), StoreError> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        if self.0.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        match self.0.fails.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "told by a test")),
            false => Ok(()),
        }
    }
}

impl Store for Remote {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        self.outcome().await?;
        if self.0.probe_is_foreign.load(Ordering::SeqCst)
            && charges.iter().any(|charge| charge.key.starts_with("!probe"))
        {
            return Err(StoreError::new(StoreErrorKind::Corrupt, "somebody else's"));
        }
        self.0.memory.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.outcome().await?;
        self.0.memory.forget(keys);
        Ok(())
    }
}

fn all(rate: &str, burst: u64) -> Rule {
    Rule::new("all", Quota::new(rate.parse().unwrap(), burst).unwrap())
}

fn builder(remote: &Remote, rule: Rule) -> LimiterBuilder {
    Limiter::builder()
        .rule(rule)
        .store(AnyStore::new(remote.clone()))
        .clock(RuntimeClock(Instant::now()))
}

async fn check(limiter: &Limiter) -> Verdict {
    limiter.check(&Attributes::new()).await.unwrap()
}

/// Spends all that is allowed now, and tells how much that was.
async fn exhaust(limiter: &Limiter) -> u64 {
    let mut admitted = 0;
    while check(limiter).await.is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Has the breaker opened.
async fn lose(remote: &Remote, limiter: &Limiter) {
    remote.fail(true);
    for _ in 0..10 {
        let _ = limiter.peek(&Attributes::new()).await.unwrap();
    }
    assert!(limiter.status().open_for.is_some());
}

/// Has the store back and waits for the probe, which comes within 150 ms.
async fn regain(remote: &Remote, limiter: &Limiter) {
    remote.fail(false);
    sleep(Duration::from_millis(151)).await;
    assert_eq!((limiter.status().failure, limiter.status().open_for), (None, None));
}

#[tokio::test(start_paused = true)]
async fn g10_a_store_that_hangs_delays_ten_requests_by_the_deadline_and_no_more() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1000/s", 1_000)).build().unwrap();
    remote.hang(true);
    for _ in 0..10 {
        let start = Instant::now();
        assert_eq!(check(&limiter).await.mode(), Mode::Local);
        assert_eq!(start.elapsed(), Duration::from_millis(50));
    }
    let calls = remote.calls();
    let start = Instant::now();
    for _ in 0..100 {
        let verdict = check(&limiter).await;
        assert_eq!(verdict.mode(), Mode::Local);
        assert_eq!(verdict.store_failure(), Some(StoreErrorKind::Timeout));
    }
    assert_eq!((start.elapsed(), remote.calls()), (Duration::ZERO, calls));
}

#[tokio::test(start_paused = true)]
async fn g10_a_probe_in_the_background_and_no_request_finds_out_that_the_store_is_back() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1000/s", 1_000)).build().unwrap();
    assert_eq!(check(&limiter).await.mode(), Mode::Exact);
    lose(&remote, &limiter).await;
    let calls = remote.calls();
    sleep(Duration::from_secs(60)).await;
    let probes = remote.calls() - calls;
    assert!((400..=1_200).contains(&probes), "{probes} probes in a minute at 100 ms each");
    regain(&remote, &limiter).await;
    assert_eq!(check(&limiter).await.mode(), Mode::Exact);
    assert_eq!(limiter.status().openings, 1);
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_as_it_was_set() {
    let remote = Remote::default();
    let breaker = BreakerSettings {
        failures: NonZeroU32::new(3).unwrap(),
        error_ratio: None,
        probe_interval: Duration::from_millis(10),
        ..BreakerSettings::default()
    };
    let limiter = builder(&remote, all("1000/s", 1_000)).breaker(breaker).build().unwrap();
    remote.fail(true);
    for _ in 0..20 {
        let _ = check(&limiter).await;
    }
    assert_eq!(remote.calls(), 3);
    remote.fail(false);
    sleep(Duration::from_millis(16)).await;
    assert_eq!(check(&limiter).await.mode(), Mode::Exact);
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_every_policy_answers_at_once() {
    let remote = Remote::default();
    let rules = [
        all("1/s", 1).with_match("path", ["/open"]).with_failure_policy(FailurePolicy::Open),
        Rule::new("closed", Quota::new("1/s".parse().unwrap(), 1).unwrap())
            .with_match("path", ["/closed"])
            .with_failure_policy(FailurePolicy::Closed),
    ];
    let limiter = Limiter::builder()
        .rules(rules)
        .store(AnyStore::new(remote.clone()))
        .clock(RuntimeClock(Instant::now()))
        .build()
        .unwrap();
    remote.fail(true);
    let (open, closed) =
        (Attributes::from([("path", "/open")]), Attributes::from([("path", "/closed")]));
    for _ in 0..30 {
        assert_eq!(limiter.check(&open).await.unwrap().mode(), Mode::Open);
        let refused = limiter.check(&closed).await.unwrap_err();
        assert!(refused.is_store_failure());
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    }
    assert_eq!(remote.calls(), 10);
    let error = limiter.refund(&open, Cost::ONE).await.unwrap_err();
    assert!(error.is_store_failure());
    let error = limiter.reset(&open).await.unwrap_err();
    assert!(error.is_store_failure());
    assert_eq!(remote.calls(), 10, "a refund and a reset do not wait for the store either");
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_locally_is_charged_when_the_store_is_back() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1/hour", 10)).build().unwrap();
    lose(&remote, &limiter).await;
    for _ in 0..4 {
        assert!(check(&limiter).await.is_allowed());
    }
    assert_eq!(limiter.status().debts, 1);
    regain(&remote, &limiter).await;
    assert_eq!((limiter.status().debts, limiter.status().debts_charged), (0, 4));
    let verdict = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Exact, Some(6)));
}

#[tokio::test(start_paused = true)]
async fn a_failure_now_and_then_is_charged_without_a_breaker() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1/hour", 10)).build().unwrap();
    for round in 1..=3 {
        remote.fail(true);
        assert_eq!(check(&limiter).await.mode(), Mode::Local);
        remote.fail(false);
        assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().mode(), Mode::Exact);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(10 - round));
    }
}

#[tokio::test(start_paused = true)]
async fn g1_losing_the_store_again_and_again_gives_the_local_burst_once() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1/hour", 10)).build().unwrap();
    let mut admitted = exhaust(&limiter).await;
    assert_eq!(admitted, 10);
    for _ in 0..5 {
        // What the store has denied stays denied for so long.
        sleep(Duration::from_secs(1)).await;
        lose(&remote, &limiter).await;
        admitted += exhaust(&limiter).await;
        regain(&remote, &limiter).await;
        admitted += exhaust(&limiter).await;
    }
    assert_eq!(admitted, 20, "the burst, and once more on this node's own account");
}

#[tokio::test(start_paused = true)]
async fn what_refilled_during_the_outage_is_not_charged() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1/s", 10)).build().unwrap();
    lose(&remote, &limiter).await;
    assert_eq!(exhaust(&limiter).await, 10);
    sleep(Duration::from_secs(60)).await;
    assert!(check(&limiter).await.is_allowed());
    regain(&remote, &limiter).await;
    assert_eq!(limiter.status().debts_charged, 1);
}

#[tokio::test(start_paused = true)]
async fn nodes_share_a_quota_that_is_smaller_than_their_number() {
    let remote = Remote::default();
    let five = NonZeroU32::new(5).unwrap();
    let nodes: Vec<_> =
        (0..5).map(|_| builder(&remote, all("2/min", 2)).nodes(five).build().unwrap()).collect();
    for node in &nodes {
        lose(&remote, node).await;
    }
    let start = Instant::now();
    let mut admitted = 0;
    for _ in 0..601 {
        for node in &nodes {
            admitted += exhaust(node).await;
        }
        sleep(Duration::from_secs(1)).await;
    }
    let minutes = start.elapsed().as_secs() / 60;
    assert_eq!(minutes, 10);
    assert_eq!(admitted, 5 + 2 * 10, "one unit on each node, and then the rate");
}

#[test]
fn without_a_runtime_requests_find_out_that_the_store_is_back() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1000/s", 1_000)).build().unwrap();
    let check = || {
        // This store never waits.
        let checking = pin!(async { check(&limiter).await.mode() });
        match checking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mode) => mode,
            Poll::Pending => panic!("the check waits"),
        }
    };
    remote.fail(true);
    for _ in 0..20 {
        assert_eq!(check(), Mode::Local);
    }
    assert_eq!(remote.calls(), 20);
    remote.fail(false);
    assert_eq!(check(), Mode::Exact);
    assert_eq!((limiter.status().failure, limiter.status().open_for), (None, None));
}

/// The bound that docs/guarantees.md states, over outages of any length at any time.
#[tokio::test(start_paused = true)]
async fn g10_an_outage_adds_at_most_the_stated_bound() {
    let (rate, burst, count) = (100_u64, 20_u64, 3_u32);
    let mut worst = 0;
    for outage_ms in [0_u64, 30, 150, 400, 1_000, 3_000, 10_000] {
        let remote = Remote::default();
        let nodes: Vec<_> = (0..count)
            .map(|_| {
                let rule = all("100/s", burst);
                builder(&remote, rule).nodes(NonZeroU32::new(count).unwrap()).build().unwrap()
            })
            .collect();
        let start = Instant::now();
        let mut admitted = 0_u64;
        let mut step = 0_u64;
        while start.elapsed() < Duration::from_millis(outage_ms + 3_000) {
            let elapsed = start.elapsed();
            let from = Duration::from_millis(1_000);
            remote.fail(elapsed >= from && elapsed < from + Duration::from_millis(outage_ms));
            // Three times the rate, most of it on one node.
            for _ in 0..3 {
                let node = [0, 0, 0, 1, 2][(step % 5) as usize];
                admitted += u64::from(check(&nodes[node]).await.is_allowed());
                step += 1;
            }
            sleep(Duration::from_millis(10)).await;
        }
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap();
        let without = burst + rate * micros / 1_000_000;
        let excess = admitted.saturating_sub(without);
        // The buckets of the nodes, that of the store, and the rate while only some are back.
        let bound = burst + burst + rate * 150 / 1_000;
        assert!(excess <= bound, "{excess} above {without} after {outage_ms} ms");
        println!("{outage_ms} ms: {excess} units above burst + rate * w");
        worst = worst.max(excess);
    }
    assert!(worst > 0, "an outage that adds nothing tests nothing");
}

#[tokio::test(start_paused = true)]
async fn debts_that_could_not_be_charged_are_charged_later_though_nobody_asks() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("1/hour", 10)).build().unwrap();
    remote.fail(true);
    assert_eq!(check(&limiter).await.mode(), Mode::Local);
    remote.fail(false);
    let _ = limiter.peek(&Attributes::new()).await.unwrap();
    // Lost again before the charge, and back without a request.
    remote.fail(true);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(limiter.status().debts, 1);
    remote.fail(false);
    sleep(Duration::from_secs(3)).await;
    assert_eq!((limiter.status().debts, limiter.status().debts_charged), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_of_this_node_may_come_back_in_a_second() {
    let remote = Remote::default();
    let limiter = builder(&remote, all("100/day", 100)).nodes(2.try_into().unwrap());
    let limiter = limiter.build().unwrap();
    remote.fail(true);
    let denied = limiter.check_n(&Attributes::new(), Cost::new(51)).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.mode()), (false, Mode::Local));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_where_the_store_is_probed_does_not_keep_it_away() {
    let remote = Remote::default();
    remote.0.probe_is_foreign.store(true, Ordering::SeqCst);
    let limiter = builder(&remote, all("1/hour", 10)).build().unwrap();
    lose(&remote, &limiter).await;
    regain(&remote, &limiter).await;
    assert_eq!(check(&limiter).await.mode(), Mode::Exact);
}
