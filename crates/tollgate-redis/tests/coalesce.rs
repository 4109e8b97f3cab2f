//! Checks that go together in one call are decided as one by one.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tollgate_core::{
    Charge, Cost, Decisions, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, State, Store, StoreError,
    Stored, Timestamp, decide_together,
};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

/// How many checks go in calls of their own beside each other after a while without any.
const SMALL_CALLS: usize = 8;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// One request: a bucket, the number of its quota, its cost, and whether it is in shadow; each.
type Request = Vec<(String, usize, u64, bool)>;

async fn store(server: &RedisServer) -> RedisStore {
    let builder = RedisStore::builder(server.url()).time_source(TimeSource::Client);
    builder.timeout(Duration::from_secs(10)).connect().await.unwrap()
}

fn quotas() -> [Quota; 4] {
    let rate = |text: &str| text.parse().unwrap();
    [
        Quota::new(rate("3/s"), 7).unwrap(),
        Quota::leaky_bucket(rate("700/min"), 40).unwrap(),
        Quota::new(rate("1000/hour"), 100).unwrap(),
        Quota::new(rate("1/366day"), 284_836_042).unwrap(),
    ]
}

fn charges<'a>(request: &'a Request, quotas: &'a [Quota]) -> Vec<Charge<'a>> {
    let charge = |(key, quota, cost, shadow): &'a (String, usize, u64, bool)| {
        Charge::new(key, &quotas[*quota], Cost::new(*cost)).with_shadow(*shadow)
    };
    request.iter().map(charge).collect()
}

/// What core decides on the requests one by one.
fn one_by_one(
    requests: &[Request],
    quotas: &[Quota],
    states: &mut HashMap<String, Option<State>>,
    now: Timestamp,
) -> Vec<Decisions> {
    let decide = |request: &Request| {
        let charges = charges(request, quotas);
        let before: Vec<_> =
            charges.iter().map(|one| states.get(one.key).cloned().flatten()).collect();
        let stored: Vec<_> =
            before.iter().map(|state| Stored { state: state.as_ref(), record: None }).collect();
        let effects =
            decide_together(Operation::Spend, &charges, &stored, MAX_CLOCK_SKEW_DEFAULT, now);
        for ((charge, mut state), change) in charges.iter().zip(before).zip(effects.changes) {
            change.apply(&mut state);
            states.insert(charge.key.to_owned(), state);
        }
        effects.decisions
    };
    requests.iter().map(decide).collect()
}

/// What the store decides on the requests when all come at once.
async fn at_once(
    store: &RedisStore,
    requests: &[Request],
    quotas: &[Quota],
    now: Timestamp,
) -> Vec<Result<Decisions, StoreError>> {
    let ask = async |request: &Request| {
        store.apply(Operation::Spend, &charges(request, quotas), now).await
    };
    join_all(requests.iter().map(ask)).await
}

/// A generator that gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn random_request(random: &mut Random, quotas: &[Quota]) -> Request {
    let name = |number: u64| format!("key={number}");
    let first = random.below(6);
    let several = if random.below(3) == 0 { 1 + random.below(3) } else { 1 };
    (first..first + several)
        .map(|number| {
            let quota = (number % quotas.len() as u64) as usize;
            let burst = u64::from(quotas[quota].burst());
            let cost = match random.below(8) {
                0 => 1 + random.below(burst),
                1 => burst,
                2 => 2,
                _ => 1,
            };
            (name(number), quota, cost, random.below(5) == 0)
        })
        .collect()
}

#[tokio::test]
async fn g8_checks_that_come_at_once_are_decided_as_one_by_one_in_their_order() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let (quotas, mut random) = (quotas(), Random(7));
    let mut states = HashMap::new();
    let mut now = START;
    for round in 0..150 {
        let count = random.of_round(round);
        let requests: Vec<_> = (0..count).map(|_| random_request(&mut random, &quotas)).collect();
        let expected = one_by_one(&requests, &quotas, &mut states, now);
        let decided = at_once(&store, &requests, &quotas, now).await;
        for (index, (decided, expected)) in decided.into_iter().zip(expected).enumerate() {
            assert_eq!(decided.unwrap(), expected, "round {round}: {:?}", requests[index]);
        }
        for (key, state) in &states {
            let level = server.command(&["HGET", &format!("tollgate:{key}"), "level"]).unwrap();
            let expected = state.as_ref().map(|state| match state {
                State::Bucket(bucket) => bucket.level.to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(level.text(), expected.as_deref(), "round {round}: {key}");
        }
        now = match random.below(6) {
            0 => now.saturating_sub(Duration::from_millis(random.below(3_000))),
            1 => now,
            _ => now.saturating_add(Duration::from_micros(random.below(3_000_000))),
        };
    }
}

impl Random {
    /// A few requests, hundreds, or more than one call takes.
    fn of_round(&mut self, round: u64) -> u64 {
        match round % 10 {
            0 => 1_000 + self.below(1_000),
            1 | 2 => self.below(300),
            _ => 1 + self.below(20),
        }
    }
}

#[tokio::test]
async fn g11_a_bucket_that_two_quotas_charge_at_once_is_spent_once() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let quotas = ["3/s", "7/s"].map(|rate| Quota::new(rate.parse().unwrap(), 100).unwrap());
    let requests: Vec<Request> =
        (0..300).map(|number| vec![("a".to_owned(), number % 2, 1, false)]).collect();
    let decided = at_once(&store, &requests, &quotas, START).await;
    let admitted = decided.iter().filter(|decided| decided.as_ref().unwrap()[0].is_allow()).count();
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn a_key_that_is_not_ours_fails_its_own_checks_and_no_others() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let quotas = quotas();
    let _ = server.command(&["SET", "tollgate:theirs", "1"]).unwrap();
    let _ = server.command(&["HSET", "tollgate:other", "x", "1"]).unwrap();
    let keys = ["ours", "theirs", "other"];
    let requests: Vec<Request> =
        (0..30).map(|number| vec![(keys[number % 3].to_owned(), 2, 1, false)]).collect();
    let decided = at_once(&store, &requests, &quotas, START).await;
    for (request, decided) in requests.iter().zip(&decided) {
        match decided {
            Ok(decisions) => assert!(request[0].0 == "ours" && decisions[0].is_allow()),
            Err(error) => assert!(request[0].0 != "ours" && error.is_corrupt(), "{error}"),
        }
    }
    let last = decided[27].as_ref().unwrap()[0].remaining();
    assert_eq!(last, 90);
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_sent_them_again() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let quotas = quotas();
    let requests: Vec<Request> = (0..50).map(|_| vec![("a".to_owned(), 2, 1, false)]).collect();
    for left in [50, 0] {
        let decided = at_once(&store, &requests, &quotas, START).await;
        assert!(decided.iter().all(|decided| decided.as_ref().unwrap()[0].is_allow()));
        assert_eq!(decided[49].as_ref().unwrap()[0].remaining(), left);
        let _ = server.command(&["SCRIPT", "FLUSH"]).unwrap();
    }
}

#[tokio::test]
async fn who_goes_away_before_its_turn_has_spent_nothing() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let quotas = quotas();
    let request = vec![("a".to_owned(), 2, 1, false)];
    let ask = || store.apply(Operation::Spend, charges(&request, &quotas).leak(), START);
    let mut waiting: Vec<_> = (0..40).map(|_| Box::pin(ask())).collect();
    for one in &mut waiting {
        assert!(futures_util::poll!(one.as_mut()).is_pending());
    }
    // The first are on their way; every other one of the rest goes away.
    let kept: Vec<_> = waiting
        .into_iter()
        .enumerate()
        .filter(|(index, _)| *index < SMALL_CALLS || index % 2 == 0)
        .map(|(_, one)| one)
        .collect();
    assert_eq!(kept.len(), 24);
    let decided = join_all(kept).await;
    assert!(decided.iter().all(|decided| decided.as_ref().unwrap()[0].is_allow()));
    assert_eq!(ask().await.unwrap()[0].remaining(), 100 - 25);
}

#[tokio::test]
async fn the_first_that_goes_away_does_not_leave_the_others_waiting() {
    let server = RedisServer::start().unwrap();
    let store = store(&server).await;
    let quotas = quotas();
    let request = vec![("a".to_owned(), 2, 1, false)];
    let ask = || store.apply(Operation::Spend, charges(&request, &quotas).leak(), START);
    let mut all: Vec<_> = (0..SMALL_CALLS + 8).map(|_| Box::pin(ask())).collect();
    for one in &mut all {
        assert!(futures_util::poll!(one.as_mut()).is_pending());
    }
    let behind = all.split_off(SMALL_CALLS);
    drop(all);
    assert!(join_all(behind).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn futures_that_nobody_polls_hold_others_up_for_no_longer_than_a_deadline() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let server = RedisServer::start().unwrap();
    let builder = RedisStore::builder(server.url()).time_source(TimeSource::Client);
    let store = builder.timeout(TIMEOUT).connect().await.unwrap();
    let quotas = quotas();
    let request = vec![("a".to_owned(), 2, 1, false)];
    let ask = || store.apply(Operation::Spend, charges(&request, &quotas).leak(), START);
    let mut unpolled: Vec<_> = (0..SMALL_CALLS).map(|_| Box::pin(ask())).collect();
    for one in &mut unpolled {
        assert!(futures_util::poll!(one.as_mut()).is_pending());
    }
    let start = Instant::now();
    assert!(ask().await.unwrap_err().is_timeout());
    assert!(start.elapsed() >= TIMEOUT);
    // From then on they are passed by, whether they are polled again or not.
    for remaining in [91, 90] {
        assert_eq!(ask().await.unwrap()[0].remaining(), remaining);
    }
    let late = join_all(unpolled).await;
    let late: Vec<_> = late.iter().map(|late| late.as_ref().unwrap()[0].remaining()).collect();
    assert_eq!(late, [99, 98, 97, 96, 95, 94, 93, 92]);
    assert_eq!(ask().await.unwrap()[0].remaining(), 89);
}

#[tokio::test]
async fn g10_those_who_wait_for_a_silent_server_are_answered_by_their_deadline() {
    let server = RedisServer::start().unwrap();
    let builder = RedisStore::builder(server.url()).time_source(TimeSource::Client);
    let store = builder.timeout(Duration::from_millis(200)).connect().await.unwrap();
    let quotas = quotas();
    let requests: Vec<Request> = (0..500).map(|_| vec![("a".to_owned(), 2, 1, false)]).collect();
    let _ = server.command(&["CLIENT", "PAUSE", "2000"]).unwrap();
    let start = Instant::now();
    let decided = at_once(&store, &requests, &quotas, START).await;
    assert!(start.elapsed() < Duration::from_millis(1_000), "{:?}", start.elapsed());
    for decided in decided {
        let error = decided.unwrap_err();
        assert!(error.is_timeout() || error.is_unavailable(), "{error}");
    }
}

/// Has a runtime of its own poll futures once.
fn poll_once_in(runtime: &tokio::runtime::Runtime, futures: &mut [impl Future + Unpin]) {
    runtime.block_on(async {
        for one in futures {
            assert!(futures_util::poll!(one).is_pending());
        }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn g10_a_runtime_that_is_stuck_keeps_the_callers_of_no_other_beyond_their_deadline() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let server = RedisServer::start().unwrap();
    let (own, stuck) = (runtime(), runtime());
    let builder = RedisStore::builder(server.url()).time_source(TimeSource::Client);
    let store = own.block_on(builder.timeout(TIMEOUT).connect()).unwrap();
    let quotas = quotas();
    let request = vec![("a".to_owned(), 2, 1, false)];
    let ask = || store.apply(Operation::Spend, charges(&request, &quotas).leak(), START);
    // All but the last take turns, and that waits there; from then on that runtime does nothing.
    let mut there: Vec<_> = (0..=SMALL_CALLS).map(|_| Box::pin(ask())).collect();
    poll_once_in(&stuck, &mut there);
    let start = Instant::now();
    assert!(own.block_on(ask()).unwrap_err().is_timeout());
    let waited = start.elapsed();
    assert!(waited >= TIMEOUT && waited < 5 * TIMEOUT, "{waited:?}");
    let last = there.pop().unwrap();
    assert!(stuck.block_on(last).unwrap_err().is_timeout());
}

#[test]
fn who_waits_beyond_the_end_of_its_runtime_is_told_so() {
    let server = RedisServer::start().unwrap();
    let (own, ends) = (runtime(), runtime());
    let store = own.block_on(store(&server));
    let quotas = quotas();
    let request = vec![("a".to_owned(), 2, 1, false)];
    let ask = || store.apply(Operation::Spend, charges(&request, &quotas).leak(), START);
    let mut first: Vec<_> = (0..SMALL_CALLS).map(|_| Box::pin(ask())).collect();
    poll_once_in(&own, &mut first);
    let (mut there, mut here) = (vec![Box::pin(ask())], vec![Box::pin(ask())]);
    poll_once_in(&ends, &mut there);
    poll_once_in(&own, &mut here);
    drop(ends);
    let told = own.block_on(there.remove(0)).unwrap_err();
    assert!(told.is_unavailable(), "{told}");
    // Who came from elsewhere goes on to wait.
    assert!(own.block_on(join_all(first)).iter().all(Result::is_ok));
    assert_eq!(own.block_on(here.remove(0)).unwrap()[0].remaining(), 91);
}
