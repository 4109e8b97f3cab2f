//! The store under every schedule of its threads, by the model checker loom.
//!
//! Loom replaces the locks and the atomics, which needs a cfg of its own and so a target directory
//! of its own:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p tollgate-memory --test loom --release --target-dir target/loom
//! ```
//!
//! `cargo xtask loom` does the same. Without the cfg this file is empty. The model has two shards, and
//! a seed that is always the same, since every run must lock the same shards. A deadlock shows as an
//! abort with `panic in a destructor during cleanup`.
#![cfg(loom)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use loom::sync::Arc;
use loom::thread;
use tollgate_core::{Charge, Cost, Decisions, Operation, Quota, StoreError, Ticket, Timestamp};
use tollgate_memory::MemoryStore;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn spend(
    store: &MemoryStore,
    keys: &[&str],
    burst: u64,
    now: Timestamp,
) -> Result<Decisions, StoreError> {
    let quota = quota("1/hour", burst);
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    store.decide(Operation::Spend, &charges, now)
}

fn is_allowed(decisions: Result<Decisions, StoreError>) -> bool {
    decisions.unwrap().iter().all(|decision| decision.is_allow())
}

/// Runs `one` and `other` at the same time and returns what they return.
fn both<T: 'static, U>(
    store: &Arc<MemoryStore>,
    one: impl FnOnce(&MemoryStore) -> T + 'static,
    other: impl FnOnce(&MemoryStore) -> U,
) -> (T, U) {
    let shared = Arc::clone(store);
    let thread = thread::spawn(move || one(&shared));
    let other = other(store);
    (thread.join().unwrap(), other)
}

/// Keys in different shards: those of one shard are under one lock, which no order can confuse.
fn keys_of_two_shards(store: &MemoryStore) -> (&'static str, &'static str) {
    let mut others = ["b", "c", "d", "e", "f", "g", "h", "i"].into_iter();
    ("a", others.find(|other| !store.is_same_shard("a", other)).unwrap())
}

fn store(keys_max: usize) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::builder().keys_max(keys_max).build())
}

#[test]
fn g6_two_threads_that_want_the_last_unit_get_it_once() {
    loom::model(|| {
        let store = store(10);
        assert!(is_allowed(spend(&store, &["a"], 2, NOW)));
        let take = |store: &MemoryStore| is_allowed(spend(store, &["a"], 2, NOW));
        let (one, other) = both(&store, take, take);
        assert!(one != other, "{one} {other}");
    });
}

#[test]
fn g6_two_threads_that_settle_one_reservation_give_its_units_back_once() {
    loom::model(|| {
        let store = store(10);
        let quota = quota("1/hour", 9);
        let charge = |cost| Charge::new("a", &quota, Cost::new(cost)).with_ticket(Ticket::new(7));
        let reserve = Operation::Reserve { ttl: Duration::from_secs(60) };
        assert!(store.decide_one(reserve, &charge(4), NOW).unwrap().is_allow());
        assert!(is_allowed(spend(&store, &["a"], 9, NOW)));
        let cancel = move |store: &MemoryStore| {
            let charge = Charge::new("a", &quota, Cost::ZERO).with_ticket(Ticket::new(7));
            store.decide_one(Operation::Settle, &charge, NOW).unwrap().is_allow()
        };
        let (one, other) = both(&store, cancel, cancel);
        assert!(one != other, "{one} {other}");
        let look = Charge::new("a", &quota, Cost::ZERO);
        assert_eq!(store.decide_one(Operation::Look, &look, NOW).unwrap().remaining(), 8);
        assert_eq!((store.len(), store.records()), (1, 0));
    });
}

#[test]
fn g9_a_reservation_and_a_new_key_and_room_for_one_of_them() {
    loom::model(|| {
        let store = store(2);
        let (a, b) = keys_of_two_shards(&store);
        assert!(is_allowed(spend(&store, &["z"], 1, NOW)));
        let quota = quota("1/hour", 1);
        let reserve = move |store: &MemoryStore| {
            let charge = [Charge::new(a, &quota, Cost::ONE).with_ticket(Ticket::new(7))];
            store.decide(Operation::Reserve { ttl: Duration::from_secs(60) }, &charge, NOW)
        };
        let add = move |store: &MemoryStore| spend(store, &[b], 1, NOW);
        let reserved = the_one_that_found_room(both(&store, reserve, add)) == 0;
        assert_eq!((store.len(), store.records()), (2, usize::from(reserved)));
        let stored = if reserved { a } else { b };
        assert!(!is_allowed(spend(&store, &[stored], 1, NOW)));
    });
}

#[test]
fn g9_two_reservations_from_one_bucket_and_room_for_one_record() {
    loom::model(|| {
        let store = store(1);
        let quota = quota("1/hour", 2);
        let reserve = move |ticket| {
            move |store: &MemoryStore| {
                let charge = [Charge::new("a", &quota, Cost::ONE).with_ticket(Ticket::new(ticket))];
                store.decide(Operation::Reserve { ttl: Duration::from_secs(60) }, &charge, NOW)
            }
        };
        the_one_that_found_room(both(&store, reserve(7), reserve(8)));
        assert_eq!((store.len(), store.records()), (1, 1));
        // The one that found no room spent nothing.
        assert!(is_allowed(spend(&store, &["a"], 1, NOW)));
        assert!(!is_allowed(spend(&store, &["a"], 1, NOW)));
    });
}

#[test]
fn g7_opposite_orders_of_keys_neither_deadlock_nor_spend_in_part() {
    loom::model(|| {
        let store = store(10);
        let (a, b) = keys_of_two_shards(&store);
        let (one, other) = both(
            &store,
            move |store| is_allowed(spend(store, &[a, b], 1, NOW)),
            move |store| is_allowed(spend(store, &[b, a], 1, NOW)),
        );
        assert!(one != other, "{one} {other}");
        assert!(
            !is_allowed(spend(&store, &[a], 1, NOW)) && !is_allowed(spend(&store, &[b], 1, NOW))
        );
    });
}

#[test]
fn g7_opposite_orders_of_known_keys_neither_deadlock_nor_spend_in_part() {
    loom::model(|| {
        let store = store(10);
        let (a, b) = keys_of_two_shards(&store);
        assert!(is_allowed(spend(&store, &[a, b], 2, NOW)));
        let (one, other) = both(
            &store,
            move |store| is_allowed(spend(store, &[a, b], 2, NOW)),
            move |store| is_allowed(spend(store, &[b, a], 2, NOW)),
        );
        assert!(one != other, "{one} {other}");
        assert!(
            !is_allowed(spend(&store, &[a], 2, NOW)) && !is_allowed(spend(&store, &[b], 2, NOW))
        );
    });
}

/// Denies the bucket of a key twice, so that it can be denied without the lock.
fn deny_twice(store: &MemoryStore, key: &str) {
    for _ in 0..2 {
        assert!(!is_allowed(spend(store, &[key], 1, NOW)));
    }
}

fn refund(store: &MemoryStore, keys: &[&str]) {
    let quota = quota("1/hour", 1);
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    assert!(is_allowed(store.decide(Operation::Refund, &charges, NOW)));
}

#[test]
fn g6_who_gave_a_unit_back_is_not_denied_by_what_was_before() {
    loom::model(|| {
        let store = store(10);
        assert!(is_allowed(spend(&store, &["a"], 1, NOW)));
        deny_twice(&store, "a");
        let (one, other) = both(
            &store,
            |store| {
                refund(store, &["a"]);
                is_allowed(spend(store, &["a"], 1, NOW))
            },
            |store| is_allowed(spend(store, &["a"], 1, NOW)),
        );
        assert!(one != other, "{one} {other}");
    });
}

#[test]
fn g6_two_threads_that_give_back_a_unit_are_not_both_denied_that_of_the_other() {
    loom::model(|| {
        let store = store(10);
        let (a, b) = keys_of_two_shards(&store);
        for key in [a, b] {
            assert!(is_allowed(spend(&store, &[key], 1, NOW)));
            deny_twice(&store, key);
        }
        let give_and_take = |give, take| {
            move |store: &MemoryStore| {
                refund(store, &[give]);
                is_allowed(spend(store, &[take], 1, NOW))
            }
        };
        let (one, other) = both(&store, give_and_take(a, b), give_and_take(b, a));
        assert!(one || other);
    });
}

#[test]
fn g7_who_has_seen_one_bucket_of_a_refund_sees_the_other_without_the_lock() {
    // Whichever of them is unlocked first.
    for is_swapped in [false, true] {
        loom::model(move || {
            let store = store(10);
            let (a, b) = keys_of_two_shards(&store);
            let (first, second) = if is_swapped { (b, a) } else { (a, b) };
            assert!(is_allowed(spend(&store, &[a, b], 1, NOW)));
            deny_twice(&store, a);
            deny_twice(&store, b);
            let take = |store: &MemoryStore, key| is_allowed(spend(store, &[key], 1, NOW));
            let ((), (first, second)) = both(
                &store,
                move |store| refund(store, &[a, b]),
                move |store| (take(store, first), take(store, second)),
            );
            assert!(second || !first);
        });
    }
}

#[test]
fn g6_who_is_denied_without_the_lock_never_reads_parts_of_two_buckets() {
    // The one that was there, and the one that takes its place.
    for is_new in [false, true] {
        loom::model(move || {
            let store = store(10);
            let b = ["b", "c", "d", "e", "f"].into_iter().find(|b| store.is_same_shard("a", b));
            let b = b.unwrap();
            // The quota of both is the same, but "a" has two units left and "b" none.
            let left = |key, cost| {
                move |store: &MemoryStore| {
                    let (quota, cost) = (quota("1/hour", 3), Cost::new(cost));
                    let charge = Charge::new(key, &quota, cost);
                    store.decide_one(Operation::Spend, &charge, NOW).unwrap().remaining()
                }
            };
            assert_eq!((left("a", 1)(&store), left(b, 3)(&store)), (2, 0));
            (0..2).for_each(|_| assert_eq!(left("a", 3)(&store), 2));
            let post = move |store: &MemoryStore| {
                (0..2).for_each(|_| assert_eq!(left(b, 3)(store), 0));
            };
            let (key, expected) = if is_new { (b, 0) } else { ("a", 2) };
            let ((), seen) = both(&store, post, left(key, 3));
            assert_eq!(seen, expected);
        });
    }
}

/// Tells which of two requests was decided and checks that it was allowed, and the other one refused.
fn the_one_that_found_room(
    results: (Result<Decisions, StoreError>, Result<Decisions, StoreError>),
) -> usize {
    let (index, decided, refused) = match results {
        (Ok(decided), Err(refused)) => (0, decided, refused),
        (Err(refused), Ok(decided)) => (1, decided, refused),
        (one, other) => panic!("{one:?} {other:?}"),
    };
    assert!(refused.is_full() && decided[0].is_allow(), "{refused} {decided:?}");
    index
}

#[test]
fn g9_two_new_keys_of_one_shard_and_room_for_one() {
    loom::model(|| {
        let store = store(1);
        let add = |key| move |store: &MemoryStore| spend(store, &[key], 1, NOW);
        let stored = ["a", "b"][the_one_that_found_room(both(&store, add("a"), add("b")))];
        assert_eq!(store.len(), 1);
        assert!(!is_allowed(spend(&store, &[stored], 1, NOW)));
    });
}

#[test]
fn g9_two_new_keys_of_two_shards_and_room_for_one() {
    loom::model(|| {
        let store = store(2);
        let (a, b) = keys_of_two_shards(&store);
        assert!(is_allowed(spend(&store, &["z"], 1, NOW)));
        let add = |key| move |store: &MemoryStore| spend(store, &[key], 1, NOW);
        let stored = [a, b][the_one_that_found_room(both(&store, add(a), add(b)))];
        assert_eq!(store.len(), 2);
        assert!(!is_allowed(spend(&store, &[stored], 1, NOW)));
    });
}

#[test]
fn g9_two_new_keys_of_two_shards_and_one_full_bucket_to_evict() {
    loom::model(|| {
        let store = store(2);
        let (a, b) = keys_of_two_shards(&store);
        let (full, slow) = (quota("1000/s", 1), quota("1/hour", 1));
        for (key, quota) in [("y", &slow), ("z", &full)] {
            let charge = Charge::new(key, quota, Cost::ONE);
            assert!(store.decide_one(Operation::Spend, &charge, NOW).unwrap().is_allow());
        }
        let later = NOW.saturating_add(Duration::from_millis(1));
        let add = |key| move |store: &MemoryStore| spend(store, &[key], 1, later);
        the_one_that_found_room(both(&store, add(a), add(b)));
        assert_eq!((store.len(), store.evicted()), (2, 1));
        assert!(!is_allowed(spend(&store, &["y"], 1, later)));
    });
}
