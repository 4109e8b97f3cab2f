//! Denials of the bucket that was denied last, which take no lock.

use super::*;

/// Tells whether a check of `cost` would be denied without the lock.
fn is_posted(store: &MemoryStore, key: &str, quota: &Quota, cost: u64, now: Timestamp) -> bool {
    let charge = Charge::new(key, quota, Cost::new(cost));
    let key = store.key(key);
    let shard = &store.shards[store.shard_of(key.hash)];
    shard.last_denied().deny(key, &charge, store.max_clock_skew, now).is_some()
}

/// A store in which a bucket of two units has none left and was denied twice.
fn denied_twice(quota: &Quota) -> MemoryStore {
    let store = MemoryStore::new();
    assert!(spend(&store, "a", quota, 2, START).unwrap().is_allow());
    for _ in 0..2 {
        assert!(!is_posted(&store, "a", quota, 1, START));
        assert!(spend(&store, "a", quota, 1, START).unwrap().is_deny());
    }
    store
}

#[test]
fn the_third_denial_in_a_row_takes_no_lock() {
    let quota = quota("1/s", 2);
    let store = denied_twice(&quota);
    assert!(is_posted(&store, "a", &quota, 1, START));
    // One of another key of the shard in between, and a row begins anew.
    let [a, b, _] = keys_of_one_shard(&store);
    assert!(spend(&store, &a, &quota, 2, START).unwrap().is_allow());
    assert!(spend(&store, &b, &quota, 2, START).unwrap().is_allow());
    for key in [&a, &b, &a, &b] {
        assert!(spend(&store, key, &quota, 1, START).unwrap().is_deny());
        assert!(!is_posted(&store, key, &quota, 1, START));
    }
    assert!(spend(&store, &b, &quota, 1, START).unwrap().is_deny());
    assert!(is_posted(&store, &b, &quota, 1, START) && !is_posted(&store, &a, &quota, 1, START));
}

#[test]
fn a_denial_without_the_lock_tells_what_one_with_it_would() {
    let quota = quota("2/s", 2);
    let store = denied_twice(&quota);
    let denied = spend(&store, "a", &quota, 2, after(Duration::from_millis(600))).unwrap();
    assert_eq!((denied.is_deny(), denied.remaining()), (true, 1));
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(400)));
    assert_eq!(denied.reset_after(), Duration::from_millis(400));
    // What fits, and what another quota is asked for, is for the lock.
    assert!(is_posted(&store, "a", &quota, 2, after(Duration::from_millis(600))));
    assert!(!is_posted(&store, "a", &quota, 1, after(Duration::from_millis(600))));
    assert!(!is_posted(&store, "a", &super::quota("3/s", 2), 2, START));
    assert!(!is_posted(&store, "a", &super::quota("2/s", 3), 3, START));
    assert!(!is_posted(&store, "b", &quota, 2, START));
    let window = Quota::fixed_window("2/s".parse().unwrap()).unwrap();
    assert!(!is_posted(&store, "a", &window, 2, START));
}

#[test]
fn g4_a_denial_that_repairs_a_clock_step_takes_the_lock() {
    let quota = quota("1/min", 2);
    let store = denied_twice(&quota);
    let before = Timestamp::from_micros(START.as_micros() - 1_000_000);
    assert!(is_posted(&store, "a", &quota, 1, before));
    let before = Timestamp::from_micros(before.as_micros() - 1);
    assert!(!is_posted(&store, "a", &quota, 1, before));
    assert!(spend(&store, "a", &quota, 1, before).unwrap().is_deny());
    assert_eq!(stored_bucket(&store, "a").unwrap().ts, before);
}

#[test]
fn whatever_changes_the_shard_withdraws_what_is_posted() {
    type Change = fn(&MemoryStore, &Quota);
    let changes: [(&str, Change); 7] = [
        ("a refund", |store, quota| {
            let charge = Charge::new("a", quota, Cost::ONE);
            assert!(store.decide_one(Operation::Refund, &charge, START).unwrap().is_allow());
        }),
        ("a reset", |store, _| store.forget(&["a"])),
        ("clearing", |store, _| store.clear()),
        ("eviction", |store, _| assert_eq!(store.evict_full(after(seconds(3))), 2)),
        ("a spending", |store, quota| {
            assert!(spend(store, "a", quota, 1, after(seconds(1))).unwrap().is_allow());
        }),
        ("taking what there is", |store, quota| {
            let charge = Charge::new("a", quota, Cost::ONE);
            let taken = store.decide_one(Operation::Take, &charge, after(seconds(1))).unwrap();
            assert_eq!(taken.remaining(), 0);
        }),
        ("a spending in two", |store, quota| {
            let charges = ["a", "b"].map(|key| Charge::new(key, quota, Cost::ONE));
            let decisions = store.decide(Operation::Spend, &charges, after(seconds(1))).unwrap();
            assert!(decisions.iter().all(Decision::is_allow));
        }),
    ];
    let quota = quota("1/s", 2);
    for (what, change) in changes {
        let store = denied_twice(&quota);
        assert!(spend(&store, "b", &quota, 1, START).unwrap().is_allow());
        // "b" may lie in the same shard, where its spending withdraws what was posted.
        (0..2).for_each(|_| assert!(spend(&store, "a", &quota, 1, START).unwrap().is_deny()));
        assert!(is_posted(&store, "a", &quota, 1, START), "{what}");
        change(&store, &quota);
        assert!(!is_posted(&store, "a", &quota, 1, START), "{what}");
    }
}

#[test]
fn g4_what_a_full_store_moves_back_after_a_clock_step_is_withdrawn() {
    let quota = quota("1/s", 2);
    let store = at_most(1);
    assert!(spend(&store, "a", &quota, 2, START).unwrap().is_allow());
    (0..2).for_each(|_| assert!(spend(&store, "a", &quota, 1, START).unwrap().is_deny()));
    assert!(is_posted(&store, "a", &quota, 1, START));
    let before = Timestamp::from_micros(START.as_micros() - 10_000_000);
    assert!(spend(&store, "b", &quota, 1, before).unwrap_err().is_full());
    assert_eq!(stored_bucket(&store, "a").unwrap().ts, before);
    assert!(!is_posted(&store, "a", &quota, 1, START));
    assert!(spend(&store, "a", &quota, 2, START).unwrap().is_allow());
}

#[test]
fn g1_checks_of_which_most_are_denied_are_decided_as_the_pure_function_decides_them() {
    let quotas = [
        quota("3/h", 4),
        quota("90/d", 3),
        Quota::leaky_bucket("2/h".parse().unwrap(), 3).unwrap(),
    ];
    let store = MemoryStore::new();
    let keys = keys_of_one_shard(&store);
    let mut states = [None, None, None];
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut now, mut denials, mut posted) = (START, 0, 0);
    let mut index = 0;
    for step in 0..50_000 {
        // Mostly one key in a row, and a clock that mostly stands, and at times goes back: less than it
        // takes to fill a bucket, for those that are full may be gone.
        if next(6) == 0 {
            index = next(3) as usize;
        }
        now = match next(40) {
            0 => Timestamp::from_micros(now.as_micros() - next(2_500_000)),
            1..8 => now.saturating_add(Duration::from_secs(next(900))),
            _ => now,
        };
        let quota = &quotas[index];
        let charge = Charge::new(&keys[index], quota, Cost::new(next(4)));
        posted += u32::from(is_posted(&store, &keys[index], quota, charge.cost.units(), now));
        let is_refund = next(30) == 0;
        let (expected, change) = if is_refund {
            charge.refund(states[index].as_ref(), MAX_CLOCK_SKEW_DEFAULT, now)
        } else {
            charge.decide(states[index].as_ref(), MAX_CLOCK_SKEW_DEFAULT, now)
        };
        change.apply(&mut states[index]);
        let operation = if is_refund { Operation::Refund } else { Operation::Spend };
        let decision = store.decide_one(operation, &charge, now).unwrap();
        assert_eq!(decision, expected, "step {step}");
        denials += u32::from(decision.is_deny());
    }
    assert!(denials > 20_000 && posted > 5_000, "{denials} {posted}");
}
