//! What the store keeps of every algorithm, and for how long.

use std::num::NonZeroU16;

use super::*;

/// A quota of five units of every algorithm, and how long after the spending the bucket is full.
fn quotas() -> [(Quota, Duration); 6] {
    let cells = NonZeroU16::new(10).unwrap();
    let rate = "5/5s".parse().unwrap();
    [
        (quota("1/s", 5), seconds(5)),
        (Quota::leaky_bucket(rate, 5).unwrap(), seconds(5)),
        // `START` is the beginning of a window and of a cell.
        (Quota::fixed_window(rate).unwrap(), seconds(5)),
        (Quota::sliding_window(rate, cells).unwrap(), Duration::from_millis(5_500)),
        (Quota::sliding_log(rate).unwrap(), seconds(5)),
        (Quota::concurrency(5, seconds(5)).unwrap(), seconds(5)),
    ]
}

fn all(quota: &Quota, ticket: u128) -> Charge<'_> {
    Charge::new("a", quota, Cost::new(5)).with_ticket(Ticket::new(ticket))
}

#[test]
fn g9_a_bucket_of_any_algorithm_makes_room_when_it_is_full_and_not_a_microsecond_before() {
    for (quota, full_after) in quotas() {
        let store = at_most(1);
        let decision = store.decide_one(Operation::Spend, &all(&quota, 1), START).unwrap();
        assert!(decision.is_allow(), "{quota}");
        assert_eq!(decision.reset_after(), full_after, "{quota}");
        let just_before = after(full_after - Duration::from_micros(1));
        let other = |now| spend(&store, "b", &self::quota("1/hour", 1), 1, now);
        assert!(other(just_before).unwrap_err().is_full(), "{quota}");
        assert!(
            store.decide_one(Operation::Spend, &all(&quota, 2), just_before).unwrap().is_deny()
        );
        assert!(other(after(full_after)).unwrap().is_allow(), "{quota}");
        assert_eq!(stored(&store, "a"), None, "{quota}");
    }
}

#[test]
fn g4_after_a_clock_step_a_full_store_has_room_as_soon_as_any_bucket_can_be_full() {
    for (quota, full_after) in quotas() {
        let store = at_most(1);
        let ahead = after(seconds(3_600));
        assert!(store.decide_one(Operation::Spend, &all(&quota, 1), ahead).unwrap().is_allow());
        let other = |now| spend(&store, "b", &self::quota("1/hour", 1), 1, now);
        assert!(other(START).unwrap_err().is_full(), "{quota}");
        // Windows and slots do not tell when they were written, and stay for the skew in addition.
        let skew = match stored(&store, "a").unwrap() {
            State::Bucket(_) | State::Cells(_) => Duration::ZERO,
            _ => MAX_CLOCK_SKEW_DEFAULT,
        };
        let just_before = after(full_after + skew - Duration::from_micros(1));
        assert!(other(just_before).unwrap_err().is_full(), "{quota}");
        assert!(other(after(full_after + skew)).unwrap().is_allow(), "{quota}");
    }
}

#[test]
fn g4_what_was_spent_before_a_clock_step_stays_spent_in_a_full_store() {
    for (quota, full_after) in quotas() {
        let store = at_most(1);
        let ahead = after(seconds(3_600));
        assert!(store.decide_one(Operation::Spend, &all(&quota, 1), ahead).unwrap().is_allow());
        let slow = self::quota("1/hour", 1);
        assert!(spend(&store, "b", &slow, 1, START).unwrap_err().is_full(), "{quota}");
        let denied = store.decide_one(Operation::Spend, &all(&quota, 2), START).unwrap();
        assert_eq!(denied.retry_after(), Some(full_after), "{quota}");
        let retry = after(full_after);
        assert!(store.decide_one(Operation::Spend, &all(&quota, 2), retry).unwrap().is_allow());
    }
}

#[test]
fn a_changed_algorithm_starts_afresh_in_the_room_of_the_old_one() {
    for (before, _) in quotas() {
        for (after, _) in quotas() {
            let store = at_most(1);
            assert!(
                store.decide_one(Operation::Spend, &all(&before, 1), START).unwrap().is_allow()
            );
            let kind = |quota: &Quota| match quota.algorithm() {
                Algorithm::TokenBucket | Algorithm::LeakyBucket => "bucket",
                Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => "cells",
                algorithm => algorithm.as_str(),
            };
            let decision = store.decide_one(Operation::Spend, &all(&after, 2), START).unwrap();
            assert_eq!(decision.is_allow(), kind(&before) != kind(&after), "{before} {after}");
            assert_eq!(store.len(), 1);
        }
    }
}

#[test]
fn g9_slots_that_come_and_go_take_no_memory() {
    let (store, slots) = (MemoryStore::new(), Quota::concurrency(8, seconds(30)).unwrap());
    let slot = |ticket| Charge::new("a", &slots, Cost::ONE).with_ticket(Ticket::new(ticket));
    let pair = |ticket| {
        assert!(store.decide_one(Operation::Spend, &slot(ticket), START).unwrap().is_allow());
        assert!(store.decide_one(Operation::Release, &slot(ticket), START).unwrap().is_allow());
        assert!(store.is_empty());
    };
    (0..100).for_each(pair);
    let bytes = store.bytes();
    (100..100_000).for_each(pair);
    assert!(store.bytes() <= bytes, "{} {bytes}", store.bytes());
}

#[test]
fn bytes_count_what_a_large_state_holds_until_it_is_gone() {
    let (store, log) = (MemoryStore::new(), Quota::sliding_log("5000/s".parse().unwrap()).unwrap());
    let charge = Charge::new("a", &log, Cost::ONE);
    assert!(store.decide_one(Operation::Spend, &charge, START).unwrap().is_allow());
    let small = store.bytes();
    for at in 1..5_000 {
        let now = after(Duration::from_micros(at));
        assert!(store.decide_one(Operation::Spend, &charge, now).unwrap().is_allow());
    }
    let large = store.bytes() - small;
    assert!((5_000 * 16..5_000 * 40).contains(&large), "{large}");
    store.forget(&["a"]);
    let empty = store.bytes();
    assert!(empty < small, "{empty} {small}");
    assert!(store.decide_one(Operation::Spend, &charge, START).unwrap().is_allow());
    assert_eq!(store.bytes(), small);
    assert_eq!(store.evict_full(after(seconds(3))), 1);
    assert_eq!(store.bytes(), empty);
}

#[test]
fn g7_a_charge_that_changes_its_algorithm_leaves_the_other_buckets_of_its_shard() {
    let store = MemoryStore::new();
    let (buckets, windows) = (quota("1/hour", 9), Quota::fixed_window("9/hour".parse().unwrap()));
    let windows = windows.unwrap();
    let near = keys_of_one_shard(&store);
    let spend_all = |quotas: [&Quota; 3]| {
        let charges = [0, 1, 2].map(|index| Charge::new(&near[index], quotas[index], Cost::ONE));
        let decisions = store.decide(Operation::Spend, &charges, START).unwrap();
        [0, 1, 2].map(|index| decisions[index].remaining())
    };
    assert_eq!(spend_all([&buckets; 3]), [8, 8, 8]);
    assert_eq!(spend_all([&windows, &buckets, &buckets]), [8, 7, 7]);
    assert_eq!(spend_all([&windows, &windows, &buckets]), [7, 8, 6]);
    assert_eq!(spend_all([&buckets, &windows, &buckets]), [8, 7, 5]);
    assert_eq!(spend_all([&buckets, &buckets, &windows]), [7, 8, 8]);
    assert_eq!(store.len(), 3);
}
