//! Waiting for units and slots, on tokio's paused time.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{
    AnyStore, Attributes, Charge, Clock, Cost, Decisions, Limiter, MemoryStore, Operation, Quota,
    Rule, Store, StoreError, Timestamp,
};

/// The paused time of the test's runtime as a limiter's clock.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A store that others have too, which notes when one process spends there.
struct Shared {
    buckets: Arc<MemoryStore>,
    start: Instant,
    spent: Arc<Mutex<Vec<u128>>>,
}

impl Store for Shared {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        if operation == Operation::Spend {
            self.spent.lock().unwrap().push(self.start.elapsed().as_millis());
        }
        self.buckets.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.buckets.forget(keys);
        Ok(())
    }
}

/// Two processes that share one slot, and when the second asked for it, in milliseconds.
fn two_processes() -> ([Limiter; 2], Arc<Mutex<Vec<u128>>>) {
    let (buckets, start) = (Arc::new(MemoryStore::new()), Instant::now());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let limiter = |spent| {
        let quota = Quota::concurrency(1, Duration::from_secs(30)).unwrap();
        let store = AnyStore::new(Shared { buckets: Arc::clone(&buckets), start, spent });
        let limiter = Limiter::builder().rule(Rule::new("exports", quota)).store(store);
        limiter.clock(PausedClock(start)).build().unwrap()
    };
    ([limiter(Arc::default()), limiter(Arc::clone(&asked))], asked)
}

fn limiter(rule: Rule) -> Limiter {
    Limiter::builder().rule(rule).clock(PausedClock(Instant::now())).build().unwrap()
}

fn bucket(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn request() -> Attributes {
    Attributes::new()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_its_cost_fits() {
    let limiter = limiter(Rule::new("all", bucket("10/s", 2)));
    let start = Instant::now();
    for expected in [0, 0, 100, 200, 300] {
        let got = limiter.acquire(&request(), Cost::ONE, ms(1_000)).await.unwrap();
        assert!(got.is_granted());
        assert_eq!(start.elapsed(), ms(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_served_in_time_is_refused_at_once() {
    let limiter = limiter(Rule::new("all", bucket("1/s", 1)));
    let _ = limiter.check(&request()).await.unwrap();
    let start = Instant::now();
    let refused = limiter.acquire(&request(), Cost::ONE, ms(999)).await.unwrap();
    assert!(!refused.is_granted());
    assert_eq!(refused.verdict().retry_after(), Some(ms(1_000)));
    assert_eq!(start.elapsed(), ms(0));
    assert!(limiter.acquire(&request(), Cost::ONE, ms(1_000)).await.unwrap().is_granted());
    assert_eq!(start.elapsed(), ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn those_who_would_come_too_late_behind_others_are_refused_at_once() {
    let limiter = limiter(Rule::new("all", bucket("1/s", 1)));
    let _ = limiter.check(&request()).await.unwrap();
    let start = Instant::now();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let got = limiter.acquire(&request(), Cost::ONE, ms(3_000)).await.unwrap();
                (got.is_granted(), start.elapsed())
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for one in waiting {
        outcomes.push(one.await.unwrap());
    }
    let seconds = |seconds: u64| (true, ms(seconds * 1_000));
    assert_eq!(outcomes[..3], [seconds(1), seconds(2), seconds(3)]);
    assert_eq!(outcomes[3..], [(false, ms(0)), (false, ms(0))]);
}

#[tokio::test(start_paused = true)]
async fn a_zero_wait_never_waits() {
    let limiter = limiter(Rule::new("all", bucket("1/s", 1)));
    let start = Instant::now();
    assert!(limiter.acquire(&request(), Cost::ONE, Duration::ZERO).await.unwrap().is_granted());
    assert!(!limiter.acquire(&request(), Cost::ONE, Duration::ZERO).await.unwrap().is_granted());
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_leaky_bucket_start_evenly_spaced() {
    let quota = Quota::leaky_bucket("10/s".parse().unwrap(), 5).unwrap();
    let limiter = limiter(Rule::new("all", quota));
    let start = Instant::now();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (limiter, starts) = (limiter.clone(), Arc::clone(&starts));
            tokio::spawn(async move {
                if limiter.acquire(&request(), Cost::ONE, ms(2_000)).await.unwrap().is_granted() {
                    starts.lock().unwrap().push(start.elapsed().as_millis());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*starts.lock().unwrap(), [0, 100, 200, 300, 400, 500, 600, 700]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_deadline_is_refused_and_costs_nothing() {
    let quota = Quota::leaky_bucket("1/s".parse().unwrap(), 5).unwrap();
    let limiter = limiter(Rule::new("all", quota));
    assert!(limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
    let refused = limiter.acquire(&request(), Cost::ONE, ms(500)).await.unwrap();
    assert!(!refused.is_granted());
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_during_the_delay_gets_its_units_back() {
    let quota = Quota::leaky_bucket("1/s".parse().unwrap(), 5).unwrap();
    let limiter = limiter(Rule::new("all", quota));
    assert!(limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
    let request = request();
    let waiting = limiter.acquire(&request, Cost::new(3), ms(5_000));
    assert!(tokio::time::timeout(ms(10), waiting).await.is_err());
    let left = limiter.peek(&request).await.unwrap();
    assert_eq!((left.remaining(), left.delay()), (Some(4), ms(990)));
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_waiters_gets_what_the_quota_allows_in_order_and_nothing_for_the_cancelled() {
    let limiter = limiter(Rule::new("all", bucket("100/s", 10)));
    let start = Instant::now();
    let served = Arc::new(Mutex::new(Vec::new()));
    // A generator with a fixed seed: whom it cancels, and when, is the same in every run.
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut tasks = Vec::new();
    let mut cancelled = 0_u64;
    for index in 0..1_000_u32 {
        let gives_up_after = (next() % 2 == 0).then(|| ms(next() % 4_000));
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        let task = tokio::spawn(async move {
            let request = request();
            let acquire = limiter.acquire(&request, Cost::ONE, ms(60_000));
            let got = match gives_up_after {
                Some(patience) => tokio::time::timeout(patience, acquire).await.ok()?,
                None => acquire.await,
            };
            assert!(got.unwrap().is_granted());
            served.lock().unwrap().push((index, start.elapsed()));
            Some(())
        });
        tasks.push(task);
    }
    for task in tasks {
        if task.await.unwrap().is_none() {
            cancelled += 1;
        }
    }
    let served = served.lock().unwrap().clone();
    assert!(cancelled > 300, "{cancelled} were cancelled");
    assert_eq!(served.len() as u64 + cancelled, 1_000);
    assert!(served.is_sorted_by_key(|(index, _)| *index), "first come, first served");
    // Ten at once, then one every 10 ms without a gap: nothing was spent for the cancelled.
    for (place, (_, at)) in served.iter().enumerate() {
        let due = ms(10 * (place as u64 + 1).saturating_sub(10));
        assert_eq!(*at, due, "place {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_its_permit_is_dropped() {
    let quota = Quota::concurrency(2, Duration::from_secs(30)).unwrap();
    let limiter = limiter(Rule::new("exports", quota));
    let first = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let second = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    assert!(first.is_granted() && second.is_granted());
    assert!(!limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
    drop(first);
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(1));
    let permit = second.into_permit().unwrap();
    permit.release().await.unwrap();
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_a_slot_as_soon_as_one_is_released() {
    let quota = Quota::concurrency(1, Duration::from_secs(30)).unwrap();
    let limiter = limiter(Rule::new("exports", quota));
    let first = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let start = Instant::now();
    let waiter = {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let got = limiter.acquire(&request(), Cost::ONE, ms(10_000)).await.unwrap();
            (got.is_granted(), start.elapsed())
        })
    };
    tokio::time::sleep(ms(1_003)).await;
    drop(first);
    assert_eq!(waiter.await.unwrap(), (true, ms(1_003)));
}

#[tokio::test(start_paused = true)]
async fn slots_of_other_processes_are_looked_for_the_more_seldom_the_longer_none_comes_free() {
    let ([other, own], asked) = two_processes();
    let held = other.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let start = Instant::now();
    let waiters: Vec<_> = (0..3).map(|_| spawn_held(&own, ms(10_000), ms(1_000), start)).collect();
    tokio::time::sleep(ms(1_003)).await;
    drop(held);
    // The others are served by this process, at once and in the order of their coming.
    let mut served = Vec::new();
    for waiter in waiters {
        served.push(waiter.await.unwrap());
    }
    assert_eq!(served, [(true, ms(1_150)), (true, ms(2_150)), (true, ms(3_150))]);
    let asked = asked.lock().unwrap();
    let first = [0, 0, 0, 25, 50, 100, 200, 400, 650, 900, 1_150];
    assert_eq!(asked[..first.len()], first);
    // Each who comes first asks anew; a slot had just been taken, so it looks again soon.
    let second = [1_150, 1_175, 1_225, 1_325, 1_525, 1_775, 2_025, 2_150];
    assert_eq!(asked[first.len()..][..second.len()], second);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_ends_when_it_should_however_seldom_it_looks() {
    let ([other, own], asked) = two_processes();
    let _held = other.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let start = Instant::now();
    let refused = own.acquire(&request(), Cost::ONE, ms(1_003)).await.unwrap();
    assert_eq!((refused.is_granted(), start.elapsed()), (false, ms(1_003)));
    assert_eq!(asked.lock().unwrap()[6..], [650, 900, 1_003]);
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_holder_that_crashed_come_back_when_the_lease_ends() {
    let quota = Quota::concurrency(1, Duration::from_secs(30)).unwrap();
    let limiter = limiter(Rule::new("exports", quota));
    let crashed = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    // A hold releases nothing when it is dropped, as a process that is killed.
    drop(crashed.into_permit().unwrap().into_hold());
    tokio::time::advance(ms(29_999)).await;
    assert!(!limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
    tokio::time::advance(ms(1)).await;
    assert!(limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_lasts_from_the_renewal_and_an_ended_one_cannot_be_renewed() {
    let quota = Quota::concurrency(1, Duration::from_secs(30)).unwrap();
    let limiter = limiter(Rule::new("exports", quota));
    let got = limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap();
    let permit = got.into_permit().unwrap();
    tokio::time::advance(ms(20_000)).await;
    permit.renew().await.unwrap();
    tokio::time::advance(ms(20_000)).await;
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(0));
    tokio::time::advance(ms(10_000)).await;
    assert!(permit.renew().await.unwrap_err().is_not_held());
    assert_eq!(limiter.peek(&request()).await.unwrap().remaining(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_hold_can_be_handed_on_as_text() {
    let quota = Quota::concurrency(3, Duration::from_secs(30)).unwrap();
    let limiter = limiter(Rule::new("exports", quota).with_key(["account"]));
    let acme = Attributes::from([("account", "acme: {1}")]);
    let got = limiter.acquire(&acme, Cost::new(2), ms(0)).await.unwrap();
    let text = got.into_permit().unwrap().into_hold().to_string();
    let hold = text.parse().unwrap();
    limiter.renew(&hold).await.unwrap();
    assert_eq!(limiter.peek(&acme).await.unwrap().remaining(), Some(1));
    for _ in 0..2 {
        limiter.release(&hold).await.unwrap();
        assert_eq!(limiter.peek(&acme).await.unwrap().remaining(), Some(3));
    }
    assert!(limiter.renew(&hold).await.unwrap_err().is_not_held());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_pairs_of_acquire_and_release_leave_nothing() {
    let quota = Quota::concurrency(3, Duration::from_secs(30)).unwrap();
    let store = Arc::new(MemoryStore::new());
    let limiter = Limiter::builder()
        .rule(Rule::new("exports", quota))
        .store(Arc::clone(&store))
        .clock(PausedClock(Instant::now()))
        .build()
        .unwrap();
    for _ in 0..100_000 {
        assert!(limiter.acquire(&request(), Cost::ONE, ms(0)).await.unwrap().is_granted());
    }
    assert!(store.is_empty());
}

fn spawn(
    limiter: &Limiter,
    request: Attributes,
    cost: u64,
    wait: Duration,
) -> tokio::task::JoinHandle<(bool, Duration)> {
    let (limiter, start) = (limiter.clone(), Instant::now());
    tokio::spawn(async move {
        let got = limiter.acquire(&request, Cost::new(cost), wait).await.unwrap();
        let granted = got.is_granted();
        drop(got.into_permit().map(tollgate::Permit::into_hold));
        (granted, start.elapsed())
    })
}

/// Waits for a slot and holds it for a while. Tells whether and when it was granted.
fn spawn_held(
    limiter: &Limiter,
    wait: Duration,
    hold: Duration,
    start: Instant,
) -> tokio::task::JoinHandle<(bool, Duration)> {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        let got = limiter.acquire(&request(), Cost::ONE, wait).await.unwrap();
        let at = start.elapsed();
        tokio::time::sleep(hold).await;
        (got.is_granted(), at)
    })
}

async fn settle() {
    tokio::time::sleep(ms(1)).await;
}

fn all(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().rules(rules).clock(PausedClock(Instant::now())).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_rule_does_not_hold_up_those_who_do_not_need_it() {
    let limiter = all([
        Rule::new("slow", bucket("1/min", 1)).with_match("path", ["/slow"]),
        Rule::new("each", bucket("100/s", 100)).with_key(["account"]),
    ]);
    let request = |path: &'static str| Attributes::from([("path", path), ("account", "a")]);
    assert!(limiter.check(&request("/slow")).await.unwrap().is_allowed());
    let slow = spawn(&limiter, request("/slow"), 1, ms(60_000));
    settle().await;
    let fast = limiter.acquire(&request("/fast"), Cost::ONE, Duration::ZERO).await.unwrap();
    assert!(fast.is_granted());
    assert_eq!(slow.await.unwrap(), (true, ms(60_000)));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_rule_refuses_nobody_who_waits_and_is_charged_once_for_each() {
    let slots = Quota::concurrency(1, Duration::from_secs(2)).unwrap();
    let limiter = all([
        Rule::new("slots", slots),
        Rule::new("trial", bucket("2/day", 2)).with_key(["account"]).with_shadow(true),
        Rule::new("count", bucket("1000/day", 1_000)).with_key(["account"]).with_shadow(true),
        Rule::new("held", Quota::concurrency(9, Duration::from_secs(60)).unwrap())
            .with_shadow(true),
    ]);
    let acme = || Attributes::from([("account", "acme")]);
    let tasks: Vec<_> = (0..4).map(|_| spawn(&limiter, acme(), 1, ms(10_000))).collect();
    let mut granted = Vec::new();
    for task in tasks {
        granted.push(task.await.unwrap());
    }
    let seconds = |seconds: u64| (true, ms(2_000 * seconds));
    assert_eq!(granted, [seconds(0), seconds(1), seconds(2), seconds(3)]);
    assert!(!limiter.acquire(&acme(), Cost::ONE, ms(100)).await.unwrap().is_granted());
    limiter.given_back().await;
    let left = limiter.peek(&acme()).await.unwrap();
    let left: Vec<_> =
        left.rules().iter().map(|rule| (rule.rule().name(), rule.decision().remaining())).collect();
    // Five came, and the four that were let in hold a slot of the last.
    assert_eq!(left, [("slots", 0), ("held", 5), ("trial", 0), ("count", 995)]);
}

#[tokio::test(start_paused = true)]
async fn g11_rules_that_change_hold_for_those_who_wait() {
    let with = |burst: u64| Rule::new("all", bucket("1/min", burst));
    let limiter = all([with(3)]);
    assert!(limiter.check_n(&request(), Cost::new(3)).await.unwrap().is_allowed());
    let waiting = spawn(&limiter, request(), 2, ms(200_000));
    settle().await;
    // Its cost can never be admitted any more.
    limiter.replace_rules(tollgate::RuleSet::new([with(1)]).unwrap());
    assert!(waiting.await.unwrap_err().is_panic(), "the cost is impossible, which is an error");

    let free = Rule::new("all", bucket("1000/s", 9));
    let waiting = spawn(&limiter, request(), 1, ms(200_000));
    settle().await;
    limiter.replace_rules(tollgate::RuleSet::new([free]).unwrap());
    let (granted, _) = waiting.await.unwrap();
    assert!(granted);
}

#[tokio::test(start_paused = true)]
async fn g1_who_goes_away_during_a_delay_gets_back_only_what_still_counts() {
    let window = Quota::sliding_log("5/s".parse().unwrap()).unwrap();
    let limiter = all([
        Rule::new("even", Quota::leaky_bucket("1/s".parse().unwrap(), 20).unwrap())
            .with_match("path", ["/slow"]),
        Rule::new("window", window),
    ]);
    let slow = Attributes::from([("path", "/slow")]);
    assert!(limiter.enter(&slow, Cost::new(4)).await.unwrap().is_granted());
    tokio::time::sleep(ms(1_000)).await;
    {
        let waits = limiter.enter(&slow, Cost::new(5));
        assert!(tokio::time::timeout(ms(2_000), waits).await.is_err());
        // Its 5 units were given back after they had left the window: 0 are in it.
    }
    assert!(limiter.check_n(&request(), Cost::new(5)).await.unwrap().is_allowed());
    assert!(!limiter.check(&request()).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_given_up_in_the_middle_of_a_queue_stays_empty() {
    let limiter =
        limiter(Rule::new("all", Quota::leaky_bucket("10/s".parse().unwrap(), 20).unwrap()));
    let tasks: Vec<_> = (0..6).map(|_| spawn(&limiter, request(), 1, ms(5_000))).collect();
    settle().await;
    // The third and the last go away; the last place is there again.
    tasks[2].abort();
    settle().await;
    tasks[5].abort();
    settle().await;
    let late: Vec<_> = (0..2).map(|_| spawn(&limiter, request(), 1, ms(5_000))).collect();
    let mut starts = Vec::new();
    for task in tasks.into_iter().chain(late) {
        if let Ok((true, waited)) = task.await {
            starts.push(waited.as_millis());
        }
    }
    // The late ones came 3 ms after the others, and start at 500 and 600.
    assert_eq!(starts, [0, 100, 300, 400, 497, 597]);
}
