//! What a check allocates, counted at the allocator.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use tollgate_core::{Algorithm, Charge, Cost, Operation, Quota, Ticket, Timestamp};
use tollgate_memory::MemoryStore;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

/// Counts what a thousand checks of `charges` allocate, one every millisecond.
fn thousand(store: &MemoryStore, operation: Operation, charges: &[Charge<'_>]) -> AllocationInfo {
    measure(|| {
        for millis in 0..1_000 {
            let now = START.saturating_add(Duration::from_millis(millis));
            match charges {
                [charge] => drop(store.decide_one(operation, charge, now).unwrap()),
                charges => drop(store.decide(operation, charges, now).unwrap()),
            }
        }
    })
}

#[test]
fn checks_of_stored_keys_allocate_nothing() {
    let (store, fast, slow) = (MemoryStore::new(), quota("10/s", 1_000), quota("10/s", 1));
    let ample = [Charge::new("a", &fast, Cost::ONE), Charge::new("b", &fast, Cost::ONE)];
    let scarce = [Charge::new("c", &slow, Cost::ONE), Charge::new("d", &slow, Cost::ONE)];
    // A new key is allocated, so the counter counts.
    let first = measure(|| {
        for charge in ample.iter().chain(&scarce) {
            assert!(store.decide_one(Operation::Spend, charge, START).unwrap().is_allow());
        }
    });
    assert!(first.count_total >= 4, "{first:?}");
    for operation in [Operation::Spend, Operation::Look] {
        for charges in [&ample, &scarce] {
            assert_eq!(thousand(&store, operation, &charges[..1]).count_total, 0);
            assert_eq!(thousand(&store, operation, &charges[..]).count_total, 0);
        }
    }
}

#[test]
fn checks_of_stored_windows_and_queues_allocate_nothing() {
    let store = MemoryStore::new();
    let rate = || "600/min".parse().unwrap();
    let window = Quota::fixed_window(rate()).unwrap();
    let queue = Quota::leaky_bucket(rate(), 600).unwrap();
    let charges = [Charge::new("a", &window, Cost::ONE), Charge::new("b", &queue, Cost::ONE)];
    for charge in &charges {
        assert!(store.decide_one(Operation::Spend, charge, START).unwrap().is_allow());
    }
    for operation in [Operation::Spend, Operation::Look] {
        assert_eq!(thousand(&store, operation, &charges).count_total, 0, "{operation:?}");
        for charge in &charges {
            let charge = std::slice::from_ref(charge);
            assert_eq!(thousand(&store, operation, charge).count_total, 0, "{operation:?}");
        }
    }
}

#[test]
fn checks_of_a_stored_log_do_not_copy_it() {
    let (store, log) =
        (MemoryStore::new(), Quota::sliding_log("9000/day".parse().unwrap()).unwrap());
    let charge = [Charge::new("a", &log, Cost::ONE)];
    for second in 0..8 {
        let before = START.saturating_sub(Duration::from_secs(8 - second));
        for micros in 0..1_000 {
            let now = before.saturating_add(Duration::from_micros(micros));
            assert!(store.decide_one(Operation::Spend, &charge[0], now).unwrap().is_allow());
        }
    }
    // A thousand more entries: the queue of them may grow once.
    let spent = thousand(&store, Operation::Spend, &charge);
    assert!(spent.count_total <= 1, "{spent:?}");
    // Those are denied.
    for operation in [Operation::Spend, Operation::Look] {
        assert_eq!(thousand(&store, operation, &charge).count_total, 0);
    }
}

#[test]
fn checks_of_unknown_keys_that_spend_nothing_allocate_nothing() {
    let (store, quota) = (MemoryStore::new(), quota("10/s", 5));
    let look = [Charge::new("a", &quota, Cost::ONE)];
    let denied = [Charge::new("a", &quota, Cost::new(6))];
    assert_eq!(thousand(&store, Operation::Look, &look).count_total, 0);
    assert_eq!(thousand(&store, Operation::Spend, &denied).count_total, 0);
}

#[test]
fn bytes_are_what_the_allocator_counts() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let keys: Vec<String> = (0..20_000).map(|n| format!("default:login:ip=10.0.{n}")).collect();
    let empty = store.bytes();
    let info = measure(|| {
        for key in &keys {
            let charge = Charge::new(key, &quota, Cost::ONE);
            assert!(store.decide_one(Operation::Spend, &charge, START).unwrap().is_allow());
        }
    });
    assert_eq!(i64::try_from(store.bytes() - empty).unwrap(), info.bytes_current);
}

#[test]
fn bytes_of_windows_logs_and_records_are_what_the_allocator_counts() {
    let store = MemoryStore::new();
    let quotas = [
        Quota::fixed_window("100/min".parse().unwrap()).unwrap(),
        Quota::sliding_window("100/s".parse().unwrap(), Algorithm::CELLS_DEFAULT).unwrap(),
        Quota::sliding_log("100/min".parse().unwrap()).unwrap(),
    ];
    let keys: Vec<String> = (0..3_000).map(|n| format!("default:login:ip=10.0.{n}")).collect();
    let empty = store.bytes();
    let info = measure(|| {
        for step in 0..30_000_u64 {
            let index = usize::try_from(step % 3_000).unwrap();
            let now = START.saturating_add(Duration::from_micros(step * 37));
            let charge = Charge::new(&keys[index], &quotas[index % 3], Cost::ONE)
                .with_ticket(Ticket::new(u128::from(step) / 5));
            let operation = match step % 4 {
                0 => Operation::Reserve { ttl: Duration::from_secs(60) },
                1 => Operation::Settle,
                2 => Operation::Refund,
                _ => Operation::Spend,
            };
            let _ = store.decide_one(operation, &charge, now).unwrap();
        }
    });
    assert_eq!(i64::try_from(store.bytes() - empty).unwrap(), info.bytes_current);
    assert!(store.len() + store.records() > 10_000, "{store:?}");
}
