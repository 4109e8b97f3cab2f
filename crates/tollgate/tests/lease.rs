//! Slices of hot keys, on tokio's paused time and a store that counts how often it is asked.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::{Instant, advance};
use tollgate::{
    AnyStore, Attributes, Charge, Clock, Cost, Decisions, HotKeys, LeaseTerms, Limiter,
    MemoryStore, Mode, Operation, Quota, Rule, RuleSet, Store, StoreError, Timestamp,
};

/// The paused time of the test's runtime as a limiter's clock.
#[derive(Clone)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A store that nodes share, a millisecond away.
#[derive(Clone, Default)]
struct Remote {
    memory: Arc<MemoryStore>,
    asked: Arc<AtomicU32>,
}

impl Store for Remote {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.memory.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.memory.forget(keys);
        Ok(())
    }
}

fn leased(name: &str, rate: &str, burst: u64) -> Rule {
    let quota = Quota::new(rate.parse().unwrap(), burst).unwrap();
    Rule::new(name, quota).with_hot_keys(HotKeys::Lease)
}

fn node(remote: &Remote, rules: &[Rule], clock: &PausedClock) -> Limiter {
    let limiter = Limiter::builder().rules(rules.iter().cloned());
    limiter.store(AnyStore::new(remote.clone())).clock(clock.clone()).build().unwrap()
}

/// A generator that gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

#[tokio::test(start_paused = true)]
async fn g1_slices_of_several_nodes_admit_no_more_than_one_bucket_in_any_interval() {
    const RATE: u64 = 2_000;
    const BURST: u64 = 2_000;
    let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
    let rules = [leased("all", "2000/s", BURST)];
    let mut nodes: Vec<_> = (0..3).map(|_| node(&remote, &rules, &clock)).collect();
    let (mut random, mut admitted, mut by_slice) = (Random(7), Vec::new(), 0);
    for round in 0..40_u64 {
        if round % 7 == 6 {
            // One crashes and takes its slices along.
            nodes[random.below(3) as usize] = node(&remote, &rules, &clock);
        }
        // The nodes get hot, pause while the bucket refills, and then spend all at once.
        let warm_ms = 60 + random.below(60);
        let mut steps = vec![(2_000, 1); warm_ms as usize];
        steps.push((1_000 * random.below(100), 0));
        steps.push((0, 900));
        steps.push((1_000 * random.below(1_200), 0));
        for (pause_us, checks) in steps {
            let asked: Vec<_> = nodes
                .iter()
                .flat_map(|node| std::iter::repeat_n(node, checks))
                .map(|node| {
                    let node = node.clone();
                    tokio::spawn(async move {
                        let verdict = node.check(&Attributes::new()).await.unwrap();
                        (verdict.is_allowed(), verdict.mode() == Mode::Lease)
                    })
                })
                .collect();
            for check in asked {
                let (is_allowed, is_by_slice) = check.await.unwrap();
                if is_allowed {
                    admitted.push(clock.0.elapsed());
                    by_slice += u64::from(is_by_slice);
                }
            }
            advance(Duration::from_micros(pause_us)).await;
        }
    }
    // Of all intervals, the one that holds most beyond what refills within it. What came while a call
    // was under way is noted a millisecond late, at both ends.
    let rate = |at: &Duration| RATE as i128 * at.as_micros() as i128;
    let (mut least, mut most) = (i128::MAX, 0);
    for (number, at) in admitted.iter().enumerate() {
        least = least.min(number as i128 * 1_000_000 - rate(at));
        most = most.max((number as i128 + 1) * 1_000_000 - rate(at) - least);
    }
    let late = rate(&Duration::from_millis(2));
    assert!(most <= BURST as i128 * 1_000_000 + late, "{} units", most / 1_000_000);
    let all = admitted.len() as u64;
    assert!(by_slice * 20 > all, "{by_slice} of {all} by slices");
    assert!(all > 1_000, "{all} were admitted in {:?}", clock.0.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_asks_the_store_seldom_and_gives_back_what_is_left() {
    let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
    // So slow that nothing refills, and a slice may be kept for long.
    let limiter = node(&remote, &[leased("all", "10/day", 100_000)], &clock);
    for _ in 0..20_000 {
        assert!(limiter.check(&Attributes::new()).await.unwrap().is_allowed());
        advance(Duration::from_micros(50)).await;
    }
    let asked = remote.asked.load(Ordering::SeqCst);
    assert!(asked < 500, "asked {asked} times for 20,000 checks");
    let held = limiter.leased_units();
    assert!(held > 0);
    limiter.given_back().await;
    assert_eq!(limiter.leased_units(), 0);
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!((left.mode(), left.remaining()), (Mode::Exact, Some(90_000 - 20_000)));
}

#[tokio::test(start_paused = true)]
async fn a_slice_whose_debit_is_under_way_at_the_end_is_given_back_too() {
    for checks in 300..340 {
        let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
        let limiter = node(&remote, &[leased("all", "10/day", 100_000)], &clock);
        for _ in 0..checks {
            let _ = limiter.check(&Attributes::new()).await.unwrap();
            advance(Duration::from_micros(50)).await;
        }
        limiter.given_back().await;
        assert_eq!(limiter.leased_units(), 0, "after {checks} checks");
        let left = limiter.peek(&Attributes::new()).await.unwrap();
        assert_eq!(left.remaining(), Some(90_000 - checks));
    }
}

#[tokio::test(start_paused = true)]
async fn slices_come_back_by_themselves_when_nobody_asks_any_more() {
    let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
    let limiter = node(&remote, &[leased("all", "10/day", 100_000)], &clock);
    for _ in 0..2_000 {
        let _ = limiter.check(&Attributes::new()).await.unwrap();
        advance(Duration::from_micros(50)).await;
    }
    assert!(limiter.leased_units() > 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(limiter.leased_units(), 0);
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.remaining(), Some(90_000 - 2_000));
}

#[tokio::test(start_paused = true)]
async fn g7_a_request_that_another_rule_denies_takes_nothing_from_a_slice() {
    let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
    let each = Rule::new("each", Quota::new("1/day".parse().unwrap(), 3).unwrap());
    let rules = [leased("all", "10/day", 100_000), each.with_key(["account"])];
    let limiter = node(&remote, &rules, &clock);
    let (mut random, mut admitted) = (Random(3), 0);
    for _ in 0..6_000 {
        let account = random.below(300).to_string();
        let request = Attributes::from([("account", account)]);
        admitted += u32::from(limiter.check(&request).await.unwrap().is_allowed());
        advance(Duration::from_micros(50)).await;
    }
    assert_eq!(admitted, 900);
    limiter.given_back().await;
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.remaining(), Some(90_000 - 900));
}

#[tokio::test(start_paused = true)]
async fn a_reset_takes_the_slices_of_this_node_along() {
    let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
    let limiter = node(&remote, &[leased("all", "10/day", 1_000)], &clock);
    for _ in 0..400 {
        let _ = limiter.check(&Attributes::new()).await.unwrap();
        advance(Duration::from_micros(50)).await;
    }
    let _ = limiter.reset(&Attributes::new()).await.unwrap();
    assert_eq!(limiter.leased_units(), 0);
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(900));
}

/// A store that is a millisecond away on the way back.
struct Late(MemoryStore);

impl Store for Late {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let decided = self.0.decide(operation, charges, now);
        tokio::time::sleep(Duration::from_millis(1)).await;
        decided
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.0.forget(keys);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn g1_what_was_debited_before_a_reset_is_not_spent_after_it() {
    let request = Attributes::new();
    let mut by_slice = 0;
    for checks in 0..30 {
        let clock = PausedClock(Instant::now());
        let limiter = Limiter::builder().rule(leased("all", "10/day", 100)).clock(clock);
        let limiter = limiter.store(AnyStore::new(Late(MemoryStore::default()))).build().unwrap();
        for _ in 0..checks {
            assert!(limiter.check(&request).await.unwrap().is_allowed());
        }
        // The first of them may have a slice debited, the last one knows nothing of the key.
        let (_, reset, _) =
            tokio::join!(limiter.check(&request), limiter.reset(&request), limiter.check(&request));
        assert!(reset.is_ok());
        let mut admitted = 0;
        loop {
            let verdict = limiter.check(&request).await.unwrap();
            if !verdict.is_allowed() {
                break;
            }
            admitted += 1;
            by_slice += u32::from(verdict.mode() == Mode::Lease);
        }
        assert!(admitted <= 90, "{admitted} after {checks} checks and a reset");
    }
    assert!(by_slice > 30, "{by_slice} by slices");
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_is_being_debited_when_a_process_ends_comes_back_too() {
    for checks in 0..30 {
        let (remote, clock) = (Remote::default(), PausedClock(Instant::now()));
        let limiter = node(&remote, &[leased("all", "10/day", 100)], &clock);
        for _ in 0..checks {
            assert!(limiter.check(&Attributes::new()).await.unwrap().is_allowed());
        }
        limiter.given_back().await;
        assert_eq!(limiter.leased_units(), 0);
        let left = limiter.peek(&Attributes::new()).await.unwrap();
        assert_eq!(left.remaining(), Some(90 - checks), "after {checks} checks");
    }
}

#[test]
fn a_rule_that_has_no_slices_cannot_lease_them() {
    let window = Quota::fixed_window("100/s".parse().unwrap()).unwrap();
    let rule = Rule::new("all", window).with_hot_keys(HotKeys::Lease);
    let error = RuleSet::new([rule]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rule \"all\": leases need a token bucket with a burst of at least 10, not fixed_window \
         with 100"
    );
    assert_eq!(LeaseTerms::BURST_MIN, 10);
}

#[tokio::test]
async fn in_memory_a_rule_with_leases_is_exact_and_has_its_whole_burst() {
    let limiter = Limiter::builder().rule(leased("all", "10/day", 100)).build().unwrap();
    let verdict = limiter.check_n(&Attributes::new(), Cost::new(100)).await.unwrap();
    assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Exact, Some(0)));
}
