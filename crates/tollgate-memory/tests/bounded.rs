//! A million random keys against the cap.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
use tollgate_memory::MemoryStore;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// Keys as nobody would choose them: every one differs from the last in all bits.
fn random_keys() -> impl Iterator<Item = String> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("default:login:ip={state:016x}")
    })
}

#[test]
fn g9_a_million_random_keys_never_take_more_than_the_cap() {
    let keys_max = 10_000;
    let store = MemoryStore::builder().keys_max(keys_max).build();
    // Half of the buckets are full again before their room is needed, the others long after.
    let fast = Quota::new("100/s".parse().unwrap(), 1).unwrap();
    let slow = Quota::new("1/hour".parse().unwrap(), 1).unwrap();
    let (mut allowed, mut full, mut bytes_max) = (0_u64, 0_u64, 0);
    for (index, key) in random_keys().take(1_000_000).enumerate() {
        let quota = if index % 2 == 0 { &fast } else { &slow };
        let now = START.saturating_add(Duration::from_micros(index as u64 * 10));
        match store.decide_one(Operation::Spend, &Charge::new(&key, quota, Cost::ONE), now) {
            Ok(decision) => allowed += u64::from(decision.is_allow()),
            Err(error) => {
                assert!(error.is_full(), "{error}");
                full += 1;
            }
        }
        assert!(store.len() <= keys_max);
        if index % 10_000 == 0 {
            bytes_max = bytes_max.max(store.bytes());
        }
    }
    assert_eq!(allowed + full, 1_000_000);
    assert_eq!(allowed, store.len() as u64 + store.evicted());
    assert!(store.evicted() > 1_000 && full > 100_000, "{} {full}", store.evicted());
    assert!(bytes_max < keys_max * 300, "{bytes_max}");
}

#[test]
fn g9_keys_that_refill_in_time_are_never_refused() {
    let keys_max = 10_000;
    let store = MemoryStore::builder().keys_max(keys_max).build();
    // 10,000 keys come in 100 ms, and each is full after 100 ms: none is ever short of room.
    let quota = Quota::new("10/s".parse().unwrap(), 1).unwrap();
    for (index, key) in random_keys().take(200_000).enumerate() {
        let now = START.saturating_add(Duration::from_micros(index as u64 * 10));
        let charge = Charge::new(&key, &quota, Cost::ONE);
        assert!(store.decide_one(Operation::Spend, &charge, now).unwrap().is_allow(), "{index}");
    }
    assert_eq!(store.evicted() + store.len() as u64, 200_000);
}
