//! What is noted of the calls of a store, and who asked it at all.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate::{
    AnyStore, Attributes, Charge, Cost, Decisions, FailurePolicy, Limiter, MemoryStore, Operation,
    Quota, Rule, Store, StoreCall, StoreCallEnd, StoreCalls, StoreError, StoreErrorKind, Timestamp,
};

/// How a store answers.
#[derive(Clone, Copy)]
enum Answers {
    Late,
    Never,
    Failing,
}

/// A store that is reached over a distance.
struct Distant {
    memory: MemoryStore,
    answers: Answers,
}

const DISTANCE: Duration = Duration::from_millis(3);

impl Store for Distant {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        match self.answers {
            Answers::Late => tokio::time::sleep(DISTANCE).await,
            Answers::Never => std::future::pending().await,
            Answers::Failing => return Err(StoreError::new(StoreErrorKind::Unavailable, "away")),
        }
        self.memory.apply(operation, charges, now).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.memory.reset(keys).await
    }
}

fn limiter(store: impl Into<AnyStore>) -> Limiter {
    let rule = Rule::new("one", Quota::from_rate("1/day".parse().unwrap()).unwrap());
    let rule = rule.with_failure_policy(FailurePolicy::Open);
    Limiter::builder().store(store.into()).rule(rule).build().unwrap()
}

fn distant(answers: Answers) -> Limiter {
    limiter(AnyStore::new(Distant { memory: MemoryStore::new(), answers }))
}

fn ends(calls: &[StoreCall]) -> Vec<(&'static str, StoreCallEnd)> {
    calls.iter().map(|call| (call.operation, call.end)).collect()
}

#[tokio::test]
async fn the_calls_that_work_waits_for_are_noted_with_their_time() {
    let (limiter, calls, request) = (distant(Answers::Late), StoreCalls::new(), Attributes::new());
    let work = async {
        let _ = limiter.peek(&request).await.unwrap();
        limiter.check(&request).await.unwrap()
    };
    assert!(calls.observe(work).await.is_allowed());
    let noted = calls.take();
    let answered = StoreCallEnd::Answered;
    assert_eq!(ends(&noted), [("look", answered), ("spend", answered)]);
    assert!(noted.iter().all(|call| call.took >= DISTANCE), "{noted:?}");
    assert!(noted[0].started + noted[0].took <= noted[1].started);
    assert_eq!(calls.take(), []);
    let _ = limiter.refund(&request, Cost::ONE).await.unwrap();
    assert_eq!(calls.take(), [], "nobody observes that");
}

#[tokio::test]
async fn a_call_that_acquire_leaves_to_a_task_is_noted_too() {
    let (limiter, calls, request) = (distant(Answers::Late), StoreCalls::new(), Attributes::new());
    let acquiring = limiter.acquire(&request, Cost::ONE, Duration::ZERO);
    assert!(calls.observe(acquiring).await.unwrap().is_granted());
    assert_eq!(ends(&calls.take()), [("spend", StoreCallEnd::Answered)]);
}

#[tokio::test]
async fn failures_and_calls_that_were_given_up_say_so() {
    let (calls, request) = (StoreCalls::new(), Attributes::new());
    let failing = distant(Answers::Failing);
    assert!(calls.observe(failing.check(&request)).await.unwrap().asked_store());
    let unavailable = StoreCallEnd::Failed(StoreErrorKind::Unavailable);
    assert_eq!(ends(&calls.take()), [("spend", unavailable)]);
    let silent = distant(Answers::Never);
    let given_up = calls.observe(silent.check(&request));
    assert!(tokio::time::timeout(Duration::from_millis(5), given_up).await.is_err());
    assert_eq!(ends(&calls.take()), [("spend", StoreCallEnd::GivenUp)]);
}

#[tokio::test]
async fn g9_no_more_than_thirty_two_calls_are_noted() {
    let (limiter, calls, request) = (distant(Answers::Late), StoreCalls::new(), Attributes::new());
    let work = async {
        for _ in 0..40 {
            let _ = limiter.peek(&request).await.unwrap();
        }
    };
    calls.observe(work).await;
    assert_eq!(calls.take().len(), 32);
}

#[tokio::test]
async fn a_verdict_says_whether_the_store_was_asked() {
    let (distant, near, request) =
        (distant(Answers::Late), limiter(MemoryStore::new()), Attributes::new());
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(distant.check(&request).await.unwrap().asked_store());
    }
    assert_eq!(asked, [true, true, false], "the second denial is known");
    assert_eq!(distant.status().denial_cache_hits, 1);
    for _ in 0..3 {
        assert!(near.check(&request).await.unwrap().asked_store());
    }
    let without_rules = Limiter::builder().build().unwrap();
    assert!(!without_rules.check(&request).await.unwrap().asked_store());
}
