//! Going on now or not at all, and not being held up by those who need not wait, on tokio's paused
//! time.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate::{
    AnyStore, Attributes, Charge, Clock, Cost, Decisions, Limiter, Matcher, MemoryStore, Operation,
    Quota, Rule, Store, StoreError, Timestamp, Treatment,
};

/// The paused time of the test's runtime as a limiter's clock.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A store that takes 4 ms to answer, half of it before it decides.
struct Remote(MemoryStore);

impl Store for Remote {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        sleep(ms(2)).await;
        let answer = self.0.decide(operation, charges, now);
        sleep(ms(2)).await;
        answer
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.0.forget(keys);
        Ok(())
    }
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().rules(rules).clock(PausedClock(Instant::now())).build().unwrap()
}

fn limiter_far_away(rule: Rule) -> Limiter {
    let store = AnyStore::new(Remote(MemoryStore::new()));
    let limiter = Limiter::builder().rule(rule).store(store).clock(PausedClock(Instant::now()));
    limiter.build().unwrap()
}

fn bucket(rate: &str, burst: u64) -> Rule {
    Rule::new("all", Quota::new(rate.parse().unwrap(), burst).unwrap())
}

fn leaky(rate: &str, burst: u64) -> Rule {
    Rule::new("even", Quota::leaky_bucket(rate.parse().unwrap(), burst).unwrap())
}

fn slots(count: u64) -> Rule {
    Rule::new("slots", Quota::concurrency(count, Duration::from_secs(30)).unwrap())
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn request() -> Attributes {
    Attributes::new()
}

#[tokio::test(start_paused = true)]
async fn who_would_have_to_wait_for_a_unit_or_a_slot_is_refused_at_once() {
    for rule in [bucket("1/s", 1), slots(1)] {
        let limiter = limiter([rule]);
        let start = Instant::now();
        let held = limiter.enter(&request(), Cost::ONE).await.unwrap();
        assert!(held.is_granted());
        assert_eq!(held.retry_after(), None);
        let refused = limiter.enter(&request(), Cost::ONE).await.unwrap();
        assert!(!refused.is_granted());
        assert_eq!(refused.retry_after(), refused.verdict().retry_after());
        assert!(refused.into_permit().is_none());
        assert_eq!(start.elapsed(), ms(0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_a_leaky_bucket_is_waited_out_however_long_and_a_full_queue_refuses() {
    let limiter = limiter([leaky("1/min", 3)]);
    let start = Instant::now();
    for expected in [0, 60, 120] {
        assert!(limiter.enter(&request(), Cost::ONE).await.unwrap().is_granted());
        assert_eq!(start.elapsed(), Duration::from_secs(expected));
    }
    let request = request();
    let four = async || limiter.enter(&request, Cost::ONE).await.unwrap();
    let (a, b, c, d) = tokio::join!(four(), four(), four(), four());
    let granted = [a, b, c, d].map(|one| one.is_granted());
    assert_eq!(granted, [true, true, false, false], "one place is taken by the last of before");
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_during_the_delay_gets_units_and_slots_back() {
    let limiter = limiter([leaky("1/s", 5), slots(2)]);
    let first = limiter.enter(&request(), Cost::ONE).await.unwrap();
    assert!(timeout(ms(10), limiter.enter(&request(), Cost::ONE)).await.is_err());
    let left = limiter.peek(&request()).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [4, 1]);
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_gives_nothing_back_where_a_shadow_rule_took_nothing() {
    let limiter = limiter([leaky("1/s", 5), bucket("1/hour", 3).with_shadow(true)]);
    let _ = limiter.check_n(&request(), Cost::new(2)).await.unwrap();
    assert!(timeout(ms(10), limiter.enter(&request(), Cost::new(2))).await.is_err());
    let left = limiter.peek(&request()).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_before_a_remote_store_has_answered_leaves_nothing_taken() {
    let limiter = limiter_far_away(slots(2));
    for patience in [0, 1, 3] {
        assert!(timeout(ms(patience), limiter.enter(&request(), Cost::ONE)).await.is_err());
        limiter.given_back().await;
        assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(2), "{patience} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_in_the_background_can_be_waited_for() {
    let limiter = limiter_far_away(slots(1));
    let held = limiter.enter(&request(), Cost::ONE).await.unwrap();
    let start = Instant::now();
    limiter.given_back().await;
    assert_eq!(start.elapsed(), ms(0), "nothing is being given back yet");
    drop(held);
    limiter.given_back().await;
    assert_eq!(start.elapsed(), ms(4));
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_leaves_no_record_in_the_store() {
    let store = Arc::new(MemoryStore::new());
    let limiter = Limiter::builder().rule(leaky("1/s", 5)).store(Arc::clone(&store));
    let limiter = limiter.clock(PausedClock(Instant::now())).build().unwrap();
    assert!(limiter.enter(&request(), Cost::ONE).await.unwrap().is_granted());
    for round in 0..900 {
        let request = request();
        let gave_up = timeout(Duration::from_micros(1), limiter.enter(&request, Cost::ONE));
        assert!(gave_up.await.is_err(), "{round}");
        // The bucket, and the record of the one that went on.
        assert_eq!((store.len(), store.records()), (1, 1), "{round}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_who_need_not_wait_do_not_wait_for_each_others_answers() {
    let limiter = limiter_far_away(bucket("1/s", 50));
    let start = Instant::now();
    let tasks: Vec<_> = (0..60)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.acquire(&request(), Cost::ONE, Duration::ZERO).await.unwrap().is_granted()
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += u32::from(task.await.unwrap());
    }
    assert_eq!((granted, start.elapsed()), (50, ms(4)));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_out_their_delay_do_not_count_twice_for_those_behind() {
    let limiter = limiter([leaky("10/s", 100)]);
    let start = Instant::now();
    let tasks: Vec<_> = (0..20_u64)
        .map(|place| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let got = limiter.acquire(&request(), Cost::ONE, ms(100 * place)).await.unwrap();
                (got.is_granted(), start.elapsed())
            })
        })
        .collect();
    for (place, task) in (0..).zip(tasks) {
        assert_eq!(task.await.unwrap(), (true, ms(100 * place)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_too_long_says_when_there_is_none() {
    let limiter = limiter([leaky("1/s", 5)]);
    let _ = limiter.check(&request()).await.unwrap();
    let refused = limiter.acquire(&request(), Cost::ONE, ms(400)).await.unwrap();
    assert!(!refused.is_granted());
    assert_eq!(refused.retry_after(), Some(ms(1_000)));
    tokio::time::advance(ms(1_000)).await;
    assert!(limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_units_that_is_too_long_is_refused_at_once_though_slots_are_missing_too() {
    let limiter = limiter([bucket("1/min", 1), slots(1)]);
    let held = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let start = Instant::now();
    let refused = limiter.acquire(&request(), Cost::ONE, ms(59_999)).await.unwrap();
    assert_eq!((refused.is_granted(), start.elapsed()), (false, ms(0)));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn everyone_in_line_for_a_slot_waits_and_the_blocked_do_not() {
    let evil = Matcher::new().with("account", ["evil"]);
    let gate = bucket("100/s", 100).with_exception(evil, Treatment::Blocked);
    let limiter = limiter([gate, slots(1)]);
    let mut held = Some(limiter.enter(&request(), Cost::ONE).await.unwrap());
    let start = Instant::now();
    let wait = |account: &'static str| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let request = Attributes::from([("account", account)]);
            let got = limiter.acquire(&request, Cost::ONE, ms(5_000)).await.unwrap();
            (got.is_granted(), start.elapsed())
        })
    };
    let waiting = [wait("a"), wait("b"), wait("c"), wait("evil")];
    sleep(ms(1_000)).await;
    drop(held.take());
    let mut outcomes = Vec::new();
    for one in waiting {
        outcomes.push(one.await.unwrap());
    }
    assert_eq!(outcomes[..3], [(true, ms(1_000)); 3]);
    assert_eq!(outcomes[3], (false, ms(0)));
}

#[tokio::test]
async fn what_a_rule_says_comes_with_the_quota_that_holds() {
    let acme = Quota::new("1/s".parse().unwrap(), 9).unwrap();
    let rule = bucket("1/s", 2)
        .with_exception(Matcher::new().with("account", ["acme"]), Treatment::Quota(acme))
        .with_exception(Matcher::new().with("account", ["evil"]), Treatment::Blocked);
    let limiter = Limiter::builder().rule(rule).build().unwrap();
    for (account, burst) in [("any", Some(2)), ("acme", Some(9)), ("evil", None)] {
        let verdict = limiter.check(&Attributes::from([("account", account)])).await.unwrap();
        let quota = verdict.most_restrictive().unwrap().quota();
        assert_eq!(quota.map(|quota| quota.burst()), burst, "{account}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_kept_while_a_delay_is_waited_out_and_is_whole_at_its_end() {
    let in_flight = Rule::new("slots", Quota::concurrency(3, Duration::from_secs(1)).unwrap());
    let limiter = limiter([leaky("1/s", 4), in_flight]);
    let (one, two, three) = (Attributes::new(), Attributes::new(), Attributes::new());
    let held = tokio::join!(
        limiter.enter(&one, Cost::ONE),
        limiter.enter(&two, Cost::ONE),
        limiter.enter(&three, Cost::ONE)
    );
    // The third waited for 2 s, which is longer than its lease; the first one's lease has ended.
    let third = held.2.unwrap();
    assert!(third.is_granted());
    let slots = || async { limiter.peek(&one).await.unwrap().rules()[1].decision().remaining() };
    assert_eq!(slots().await, 2);
    sleep(ms(999)).await;
    assert_eq!(slots().await, 2);
    third.into_permit().unwrap().renew().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_loses_its_slot_while_it_waits_is_refused_and_gets_its_units_back() {
    let in_flight = Rule::new("slots", Quota::concurrency(3, Duration::from_secs(9)).unwrap());
    let limiter = limiter([leaky("1/min", 5), in_flight]);
    let request = Attributes::new();
    assert!(limiter.enter(&request, Cost::new(2)).await.unwrap().is_granted());
    let waiting = {
        let (limiter, request) = (limiter.clone(), request.clone());
        tokio::spawn(async move { limiter.enter(&request, Cost::ONE).await })
    };
    sleep(ms(1)).await;
    let _ = limiter.reset(&request).await.unwrap();
    let refused = waiting.await.unwrap().unwrap();
    assert!(!refused.is_granted());
    limiter.given_back().await;
    let left = limiter.peek(&request).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [5, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_of_nothing_holds_no_slot() {
    let limiter = limiter([slots(1)]);
    let entered = limiter.enter(&Attributes::new(), Cost::ZERO).await.unwrap();
    assert!(entered.is_granted());
    assert!(entered.into_permit().is_none());
}
