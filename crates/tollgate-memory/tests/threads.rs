//! Many threads on one store.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::num::NonZeroU16;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate_core::{Charge, Cost, Decision, Operation, Quota, Ticket, Timestamp};
use tollgate_memory::MemoryStore;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const THREADS: usize = 8;
const CHECKS: usize = 20_000;

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

/// Runs `work` on `count` threads at once and returns what each returns.
fn on_threads<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(count);
    thread::scope(|scope| {
        let run = |thread| {
            barrier.wait();
            work(thread)
        };
        let threads: Vec<_> = (0..count).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs `work` on all threads at once and adds up what it returns.
fn on_all_threads(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    on_threads(THREADS, work).into_iter().sum()
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

#[test]
fn g6_threads_never_hold_more_slots_than_the_limit_and_leave_none_behind() {
    let store = MemoryStore::new();
    let quota = Quota::concurrency(3, Duration::from_secs(30)).unwrap();
    let held = AtomicI64::new(0);
    let taken = on_all_threads(|thread| {
        let mut taken = 0;
        for check in 0..CHECKS {
            let ticket = Ticket::new((thread * CHECKS + check) as u128);
            let charge = Charge::new("slots", &quota, Cost::ONE).with_ticket(ticket);
            if store.decide_one(Operation::Spend, &charge, NOW).unwrap().is_allow() {
                let others = held.fetch_add(1, Ordering::SeqCst);
                assert!((0..3).contains(&others), "{others} slots were held");
                taken += 1;
                thread::yield_now();
                held.fetch_sub(1, Ordering::SeqCst);
                for _ in 0..2 {
                    let released = store.decide_one(Operation::Release, &charge, NOW).unwrap();
                    assert!(released.is_allow());
                }
            }
        }
        taken
    });
    assert!(taken > 1_000, "{taken}");
    assert!(store.is_empty(), "{store:?}");
}

/// Six buckets of every algorithm, each with fewer units than are asked for in all.
fn mixed_quotas() -> [Quota; 6] {
    [
        quota("1/s", 9_000),
        Quota::fixed_window("7000/hour".parse().unwrap()).unwrap(),
        Quota::sliding_window("8000/hour".parse().unwrap(), NonZeroU16::new(20).unwrap()).unwrap(),
        Quota::sliding_log("6000/hour".parse().unwrap()).unwrap(),
        Quota::leaky_bucket("1/s".parse().unwrap(), 10_000).unwrap(),
        Quota::concurrency(5_000, Duration::from_secs(3_600)).unwrap(),
    ]
}

#[test]
fn g7_what_overlapping_requests_spend_is_what_the_allowed_ones_cost_to_the_unit() {
    const CALLERS: usize = 32;
    const REQUESTS: usize = 500;
    let store = MemoryStore::new();
    let quotas = mixed_quotas();
    let keys = ["bucket", "window", "cells", "log", "queue", "slots"];
    // For each caller what its allowed requests cost in each bucket, and how many were denied.
    let spent: Vec<([u64; 6], usize)> = on_threads(CALLERS, |thread| {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1);
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (mut spent, mut denied) = ([0; 6], 0);
        for request in 0..REQUESTS {
            let ticket = Ticket::new((thread * REQUESTS + request) as u128);
            let mut subset: Vec<usize> = (0..6).filter(|_| next(2) == 0).collect();
            let turns = (next(6) as usize).min(subset.len());
            subset.rotate_left(turns);
            let charges: Vec<_> = subset
                .iter()
                .map(|index| {
                    let cost = Cost::new(1 + next(3));
                    Charge::new(keys[*index], &quotas[*index], cost).with_ticket(ticket)
                })
                .collect();
            let decisions = store.decide(Operation::Spend, &charges, NOW).unwrap();
            if decisions.iter().all(Decision::is_allow) {
                for (index, charge) in subset.iter().zip(&charges) {
                    spent[*index] += charge.cost.units();
                }
            } else {
                denied += 1;
            }
        }
        (spent, denied)
    });
    for (index, quota) in quotas.iter().enumerate() {
        let look = Charge::new(keys[index], quota, Cost::ZERO);
        let left = store.decide_one(Operation::Look, &look, NOW).unwrap().remaining();
        let cost: u64 = spent.iter().map(|(spent, _)| spent[index]).sum();
        assert_eq!(u64::from(quota.burst() - left), cost, "{}", keys[index]);
        assert!(cost > 1_000, "{}: {cost}", keys[index]);
    }
    let denied: usize = spent.iter().map(|(_, denied)| denied).sum();
    assert!((1_000..CALLERS * REQUESTS - 1_000).contains(&denied), "{denied}");
}
