//! Many threads on one store.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
use tollgate_memory::MemoryStore;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const THREADS: usize = 8;
const CHECKS: usize = 20_000;

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

/// Runs `work` on all threads at once and adds up what it returns.
fn on_all_threads(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let run = |thread| {
            barrier.wait();
            work(thread)
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn g6_threads_that_spend_from_one_bucket_admit_exactly_the_burst() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 100_000));
    let admitted = on_all_threads(|_| {
        let charge = Charge::new("hot", &quota, Cost::ONE);
        let spend =
            |_: &usize| store.decide_one(Operation::Spend, &charge, NOW).unwrap().is_allow();
        (0..CHECKS).filter(spend).count() as u64
    });
    assert_eq!(admitted, 100_000);
}

#[test]
fn g7_threads_that_spend_in_two_buckets_spend_as_often_in_each() {
    let store = MemoryStore::new();
    let (wide, narrow) = (quota("1/s", 100_000), quota("1/s", 90_000));
    let admitted = on_all_threads(|thread| {
        let mut charges =
            [Charge::new("wide", &wide, Cost::ONE), Charge::new("narrow", &narrow, Cost::ONE)];
        if thread % 2 == 0 {
            charges.reverse();
        }
        let spend = |_: &usize| {
            let decisions = store.decide(Operation::Spend, &charges, NOW).unwrap();
            decisions.iter().all(|decision| decision.is_allow())
        };
        (0..CHECKS).filter(spend).count() as u64
    });
    assert_eq!(admitted, 90_000);
    let look = |key, quota| {
        let charge = Charge::new(key, quota, Cost::ZERO);
        store.decide_one(Operation::Look, &charge, NOW).unwrap().remaining()
    };
    assert_eq!((look("wide", &wide), look("narrow", &narrow)), (10_000, 0));
}

#[test]
fn g9_threads_that_send_new_keys_never_store_more_than_the_cap() {
    let keys_max = 1_000;
    let store = MemoryStore::builder().keys_max(keys_max).build();
    let quota = quota("1000/s", 1);
    let stored = on_all_threads(|thread| {
        let mut stored = 0;
        for check in 0..CHECKS {
            let key = format!("{thread}:{check}");
            let now = NOW.saturating_add(Duration::from_micros(check as u64 * 7));
            let charge = Charge::new(&key, &quota, Cost::ONE);
            match store.decide_one(Operation::Spend, &charge, now) {
                Ok(decision) => stored += u64::from(decision.is_allow()),
                Err(error) => assert!(error.is_full(), "{error}"),
            }
            assert!(store.len() <= keys_max);
        }
        stored
    });
    assert_eq!(stored, store.len() as u64 + store.evicted());
    assert!(stored > keys_max as u64, "nothing was evicted");
    store.evict_full(NOW.saturating_add(Duration::from_secs(60)));
    assert_eq!((store.len(), store.evicted()), (0, stored));
}
