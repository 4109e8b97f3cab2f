//! The conformance runner on the stores of Tollgate, and on stores that are wrong.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

use std::sync::Mutex;
use std::time::Duration;

use tollgate_core::{
    Charge, Decision, Decisions, Operation, Store, StoreError, StoreErrorKind, Timestamp,
};
use tollgate_memory::MemoryStore;
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;
use tollgate_testkit::conformance::{Difference, Failure, replay};
use tollgate_testkit::redis_server::Reply;
use tollgate_testkit::timeline::{self, Timeline};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn token_buckets() -> Vec<Timeline> {
    timeline::parse(timeline::TOKEN_BUCKET).unwrap()
}

fn all() -> Vec<Timeline> {
    timeline::ALL.into_iter().flat_map(|file| timeline::parse(file).unwrap()).collect()
}

fn first_failure(store: &impl Store) -> (String, Failure) {
    block_on(async {
        for timeline in token_buckets() {
            if let Err(failure) = replay(store, &timeline).await {
                return (timeline.name().to_owned(), failure);
            }
        }
        panic!("every timeline passed on a broken store")
    })
}

/// A store that is wrong in one way, or that watches how it is used.
struct Broken {
    inner: MemoryStore,
    fault: Fault,
    calls: Mutex<Vec<(Operation, String, u64)>>,
    resets: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    DropsSpends,
    RoundsToMilliseconds,
    AnswersNothing,
    FailsAtCall(usize),
    FailsReset,
}

impl Broken {
    fn with(fault: Fault) -> Self {
        Self { inner: MemoryStore::new(), fault, calls: Mutex::default(), resets: Mutex::default() }
    }
}

impl Store for Broken {
    async fn apply(
        &self,
        mut operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            for charge in charges {
                let gives_back = operation == Operation::Refund;
                let is_possible = charge.quota.admits(charge.cost);
                assert!(is_possible || gives_back, "an impossible cost reached the store");
                calls.push((operation, charge.key.to_owned(), charge.cost.units()));
            }
            calls.len()
        };
        match self.fault {
            Fault::DropsSpends => operation = Operation::Look,
            Fault::AnswersNothing => return Ok(Decisions::new()),
            Fault::FailsAtCall(failing) if call == failing => {
                return Err(StoreError::new(StoreErrorKind::Unavailable, "the cable is cut"));
            }
            _ => {}
        }
        let mut decisions = self.inner.apply(operation, charges, now).await?;
        for decision in &mut decisions {
            if let Decision::Deny(deny) = decision
                && self.fault == Fault::RoundsToMilliseconds
            {
                let millis = deny.retry_after.as_micros().div_ceil(1_000);
                deny.retry_after = Duration::from_millis(u64::try_from(millis).unwrap());
            }
        }
        Ok(decisions)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.resets.lock().unwrap().extend(keys.iter().map(|key| (*key).to_owned()));
        if self.fault == Fault::FailsReset {
            return Err(StoreError::new(StoreErrorKind::Refused, "no permission"));
        }
        self.inner.reset(keys).await
    }
}

#[test]
fn g8_the_memory_store_reproduces_every_timeline() {
    let store = MemoryStore::new();
    block_on(async {
        for timeline in all() {
            let outcome = replay(&store, &timeline).await;
            assert!(outcome.is_ok(), "{}: {}", timeline.name(), outcome.unwrap_err());
        }
    });
    assert!(store.is_empty());
}

#[test]
fn g8_the_redis_store_reproduces_every_timeline_and_leaves_no_key() {
    let server = RedisServer::start().unwrap();
    block_on(async {
        let store = RedisStore::builder(server.url())
            .time_source(TimeSource::Client)
            .timeout(Duration::from_secs(10))
            .connect()
            .await
            .unwrap();
        for timeline in all() {
            let outcome = replay(&store, &timeline).await;
            assert!(outcome.is_ok(), "{}: {}", timeline.name(), outcome.unwrap_err());
        }
    });
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));
}

#[test]
fn a_store_that_drops_spends_differs_at_the_first_spend() {
    let (name, failure) = first_failure(&Broken::with(Fault::DropsSpends));
    assert_eq!(name, "classic-burst-5-at-1-per-second");
    assert_eq!(failure.to_string(), "step 1 at 0us: remaining expected 4, got 5");
    let Failure::Difference(difference) = failure else { panic!("{failure:?}") };
    assert_eq!(
        difference,
        Difference {
            step: 1,
            at: Duration::ZERO,
            field: "remaining",
            expected: "4".to_owned(),
            got: "5".to_owned(),
        }
    );
}

#[test]
fn a_store_that_ignores_now_differs_at_the_first_refill() {
    struct Stopped(MemoryStore);
    impl Store for Stopped {
        async fn apply(
            &self,
            operation: Operation,
            charges: &[Charge<'_>],
            _now: Timestamp,
        ) -> Result<Decisions, StoreError> {
            self.0.apply(operation, charges, Timestamp::from_micros(1_700_000_000_000_000)).await
        }

        async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
            self.0.reset(keys).await
        }
    }
    let (_, failure) = first_failure(&Stopped(MemoryStore::new()));
    assert_eq!(failure.to_string(), "step 7 at 3000000us: outcome expected allow, got deny");
}

#[test]
fn an_unknown_algorithm_is_unsupported_and_does_not_reach_the_store() {
    let store = Broken::with(Fault::Nothing);
    let text = r#"[{"name": "n", "why": "w", "algorithm": "gcra", "start_us": 0,
        "quota": {"tau_us": 3}, "steps": [{"at_us": 0, "theta": 1}]}]"#;
    let failure = block_on(replay(&store, &timeline::parse(text).unwrap()[0])).unwrap_err();
    assert_eq!(failure.to_string(), "unsupported (gcra)");
    assert!(matches!(failure, Failure::Unsupported { algorithm } if algorithm == "gcra"));
    assert!(store.calls.lock().unwrap().is_empty());
    assert!(store.resets.lock().unwrap().is_empty());
}

#[test]
fn every_operation_reaches_the_store_under_its_ticket() {
    let store = MemoryStore::new();
    let text = r#"[{"name": "n", "why": "w", "algorithm": "token_bucket", "start_us": 1000000,
        "quota": {"units": 1, "period_us": 1000000, "burst": 10}, "steps": [
        {"at_us": 0, "do": "reserve", "ticket": "a", "ttl_us": 500000, "cost": 6,
         "expect": {"outcome": "allow", "remaining": 4, "reset_after_us": 6000000}},
        {"at_us": 0, "do": "reserve", "ticket": "a", "ttl_us": 500000, "cost": 6,
         "expect": {"outcome": "allow", "remaining": 4, "reset_after_us": 6000000}},
        {"at_us": 0, "do": "reserve", "ticket": "b", "ttl_us": 500000, "cost": 11,
         "expect": {"outcome": "impossible"}},
        {"at_us": 0, "do": "look", "cost": 5, "expect":
         {"outcome": "deny", "remaining": 4, "reset_after_us": 6000000, "retry_after_us": 1000000}},
        {"at_us": 0, "do": "settle", "ticket": "a", "cost": 2,
         "expect": {"outcome": "allow", "remaining": 8, "reset_after_us": 2000000}},
        {"at_us": 0, "do": "settle", "ticket": "a", "cost": 2, "expect":
         {"outcome": "deny", "remaining": 8, "reset_after_us": 2000000, "retry_after_us": 0}},
        {"at_us": 0, "do": "refund", "ticket": "c", "cost": 1,
         "expect": {"outcome": "allow", "remaining": 9, "reset_after_us": 1000000}},
        {"at_us": 0, "do": "refund", "ticket": "c", "cost": 1,
         "expect": {"outcome": "allow", "remaining": 9, "reset_after_us": 1000000}},
        {"at_us": 0, "do": "refund", "cost": 20,
         "expect": {"outcome": "allow", "remaining": 10, "reset_after_us": 0}}
        ]}]"#;
    block_on(replay(&store, &timeline::parse(text).unwrap()[0])).unwrap();
}

#[test]
fn every_run_spends_under_a_key_of_its_own_and_resets_it() {
    let store = Broken::with(Fault::Nothing);
    let timelines = token_buckets();
    for _ in 0..2 {
        for timeline in &timelines {
            block_on(replay(&store, timeline)).unwrap();
        }
    }
    let calls = store.calls.lock().unwrap();
    let mut keys: Vec<_> = calls.iter().map(|(_, key, _)| key.clone()).collect();
    keys.dedup();
    assert_eq!(keys.len(), 24);
    assert_eq!(*store.resets.lock().unwrap(), keys);
    assert!(calls.iter().all(|(operation, ..)| *operation == Operation::Spend));
    // The first timeline asks for 6 of 5 units twice, which no caller may ask the store for.
    let costs: Vec<_> =
        calls.iter().filter(|(_, key, _)| *key == keys[0]).map(|(.., cost)| *cost).collect();
    assert_eq!(costs, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2, 5, 5]);
}

#[test]
fn a_failing_store_is_reported_as_failing_and_not_as_different() {
    let (_, failure) = first_failure(&Broken::with(Fault::FailsAtCall(3)));
    assert_eq!(failure.to_string(), "step 3: the store failed: the cable is cut");
    let Failure::Store { step, source } = failure else { panic!("a store failure") };
    assert_eq!(step, Some(3));
    assert!(source.is_unavailable());

    let (_, failure) = first_failure(&Broken::with(Fault::FailsReset));
    assert_eq!(failure.to_string(), "the reset failed: no permission");

    let (_, failure) = first_failure(&Broken::with(Fault::AnswersNothing));
    assert_eq!(
        failure.to_string(),
        "step 1: the store failed: the store gave 0 decisions on 1 charge: give one for each"
    );
}

#[test]
fn a_store_that_rounds_to_milliseconds_differs_at_the_first_wait_that_is_none() {
    let (name, failure) = first_failure(&Broken::with(Fault::RoundsToMilliseconds));
    assert_eq!(name, "denied-polling-does-not-mint");
    assert_eq!(failure.to_string(), "step 4 at 999999us: retry_after_us expected 1, got 1000");
}
