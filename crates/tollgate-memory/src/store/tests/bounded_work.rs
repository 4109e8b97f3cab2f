//! How much one check of a full store does at the most.

use super::*;

/// A full store of so many keys, a unit of each of which was spent under a quota.
fn filled(keys_max: usize, quota: &Quota, now: Timestamp) -> MemoryStore {
    let store = at_most(keys_max);
    for index in 0..keys_max {
        assert!(spend(&store, &format!("key {index}"), quota, 1, now).unwrap().is_allow());
    }
    store
}

/// Spends a unit of a key that is not known yet, which is refused, and returns why.
fn refused(store: &MemoryStore, quota: &Quota, now: Timestamp) -> String {
    spend(store, "one more", quota, 1, now).unwrap_err().to_string()
}

#[test]
fn a_check_settles_1024_buckets_that_were_put_off_and_the_next_goes_on() {
    let quota = quota("1/s", 100);
    let store = filled(2_500, &quota, START);
    for index in 0..2_500 {
        assert!(spend(&store, &format!("key {index}"), &quota, 90, START).unwrap().is_allow());
    }
    // Each seemed to be full after a second, and is after 91.
    let now = after(seconds(2));
    let text = |them| {
        format!(
            "no room for 1 new key: 2500 of at most 2500 buckets are stored, and none of {them} is \
             full again; raise keys_max"
        )
    };
    for them in ["the first that were looked at", "the first that were looked at", "them", "them"] {
        assert_eq!(refused(&store, &quota, now), text(them));
    }
    assert!(spend(&store, "one more", &quota, 1, after(seconds(91))).unwrap().is_allow());
}

#[test]
fn a_bucket_that_is_full_is_found_behind_2499_that_were_put_off() {
    let quota = quota("1/s", 100);
    let store = filled(2_500, &quota, START);
    for index in 1..2_500 {
        assert!(spend(&store, &format!("key {index}"), &quota, 90, START).unwrap().is_allow());
    }
    let now = after(seconds(2));
    let attempts = (1..).find(|_| spend(&store, "one more", &quota, 1, now).is_ok()).unwrap();
    assert!((1..=3).contains(&attempts), "{attempts}");
    assert_eq!((stored(&store, "key 0"), store.len(), store.evicted()), (None, 2_500, 1));
}

#[test]
fn g4_a_check_moves_some_4096_buckets_back_after_a_clock_step_and_the_next_goes_on() {
    let quota = quota("1/s", 100);
    let store = filled(20_000, &quota, after(seconds(3_600)));
    let moved = || {
        let is_moved = |index: &usize| {
            stored_bucket(&store, &format!("key {index}")).is_some_and(|bucket| bucket.ts == START)
        };
        (0..20_000).filter(is_moved).count()
    };
    let mut before = 0;
    while before < 20_000 {
        refused(&store, &quota, START);
        // The shards that are begun are moved whole; each has some 310 keys.
        let now_moved = moved();
        assert!(now_moved == 20_000 || now_moved >= before + 4_096, "{before} {now_moved}");
        assert!(now_moved <= before + 4_096 + 500, "{before} {now_moved}");
        before = now_moved;
    }
    refused(&store, &quota, START);
    assert!(spend(&store, "one more", &quota, 1, after(seconds(1))).unwrap().is_allow());
}

#[test]
fn a_store_that_was_cleared_has_forgotten_how_far_its_clock_was() {
    let quota = quota("1/s", 100);
    let store = filled(10, &quota, after(seconds(3_600)));
    store.clear();
    let early = |shard: &ShardLock| !shard.may_be_ahead(START, MAX_CLOCK_SKEW_DEFAULT);
    assert!(store.shards.iter().all(early));
}
