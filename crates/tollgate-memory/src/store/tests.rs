use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Algorithm, Bucket, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, State, Ticket};

use super::*;

mod algorithms;
mod bounded_work;
mod denials;
mod records;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn after(duration: Duration) -> Timestamp {
    START.saturating_add(duration)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

fn at_most(keys_max: usize) -> MemoryStore {
    MemoryStore::builder().keys_max(keys_max).build()
}

fn spend(
    store: &MemoryStore,
    key: &str,
    quota: &Quota,
    cost: u64,
    now: Timestamp,
) -> Result<Decision, StoreError> {
    store.decide_one(Operation::Spend, &Charge::new(key, quota, Cost::new(cost)), now)
}

/// The stored state of a bucket, whether it is full by now or not.
fn stored(store: &MemoryStore, key: &str) -> Option<State> {
    let key = store.key(key);
    let shard = store.shards[store.shard_of(key.hash)].lock();
    let slot = shard.find(key)?;
    shard.bucket_state(slot).or_else(|| shard.exact_state(slot).cloned())
}

/// The stored state of a token bucket, whether it is full by now or not.
fn stored_bucket(store: &MemoryStore, key: &str) -> Option<Bucket> {
    match stored(store, key) {
        Some(State::Bucket(bucket)) => Some(bucket),
        _ => None,
    }
}

/// Three keys that are under the same lock.
fn keys_of_one_shard(store: &MemoryStore) -> [String; 3] {
    let key = |index: usize| format!("near {index}");
    let shard = |index| store.shard_of(store.key(&key(index)).hash);
    let mut others = (1..).filter(|other| shard(*other) == shard(0));
    [key(0), key(others.next().unwrap()), key(others.next().unwrap())]
}

#[test]
fn g3_a_denied_check_leaves_the_state_unchanged() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    assert_eq!(spend(&store, "a", &quota, 4, START).unwrap().remaining(), 1);
    let before = stored_bucket(&store, "a");
    let denied = spend(&store, "a", &quota, 3, after(seconds(1))).unwrap();
    assert_eq!(denied.retry_after(), Some(seconds(1)));
    assert_eq!(stored_bucket(&store, "a"), before);
    assert_eq!(spend(&store, "a", &quota, 3, after(seconds(2))).unwrap().remaining(), 0);
}

#[test]
fn g3_looks_and_denials_of_unknown_keys_store_nothing() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let look = Charge::new("a", &quota, Cost::new(5));
    let decision = store.decide_one(Operation::Look, &look, START).unwrap();
    assert_eq!((decision.is_allow(), decision.remaining()), (true, 5));
    assert!(spend(&store, "a", &quota, 6, START).unwrap().is_deny());
    assert!(spend(&store, "a", &quota, 0, START).unwrap().is_allow());
    assert_eq!((stored_bucket(&store, "a"), store.len()), (None, 0));
}

#[test]
fn g4_a_denial_repairs_a_clock_step_and_nothing_else() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    assert!(spend(&store, "a", &quota, 5, after(seconds(3_600))).unwrap().is_allow());
    let denied = spend(&store, "a", &quota, 1, START).unwrap();
    assert_eq!(denied.retry_after(), Some(seconds(1)));
    let bucket = stored_bucket(&store, "a").unwrap();
    assert_eq!((bucket.level, bucket.ts), (0, START));
    assert_eq!(spend(&store, "a", &quota, 1, after(seconds(1))).unwrap().remaining(), 0);
}

#[test]
fn g5_a_refund_that_fills_a_bucket_removes_it() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    assert!(spend(&store, "a", &quota, 3, START).unwrap().is_allow());
    let refund = |units| Charge::new("a", &quota, Cost::new(units));
    let decision = store.decide_one(Operation::Refund, &refund(1), START).unwrap();
    assert_eq!((decision.remaining(), store.len()), (3, 1));
    let decision = store.decide_one(Operation::Refund, &refund(9), START).unwrap();
    assert_eq!((decision.remaining(), store.len(), store.evicted()), (5, 0, 0));
}

#[test]
fn g7_a_request_without_room_for_all_its_keys_spends_in_none() {
    let (store, slow) = (at_most(2), quota("1/hour", 9));
    assert!(spend(&store, "a", &slow, 1, START).unwrap().is_allow());
    let charges = ["a", "b", "c"].map(|key| Charge::new(key, &slow, Cost::ONE));
    let error = store.decide(Operation::Spend, &charges, START).unwrap_err();
    assert!(error.is_full());
    assert_eq!(
        error.to_string(),
        "no room for 2 new keys: 1 of at most 2 buckets are stored, and none of them is full \
         again; raise keys_max"
    );
    assert_eq!(store.len(), 1);
    let decisions = store.decide(Operation::Spend, &charges[..2], START).unwrap();
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (7, 8));
}

#[test]
fn g9_one_key_has_room_for_another_when_it_is_full_again() {
    let (store, quota) = (at_most(1), quota("1/s", 5));
    assert!(spend(&store, "a", &quota, 2, START).unwrap().is_allow());
    let just_before = after(Duration::from_micros(1_999_999));
    assert!(spend(&store, "b", &quota, 1, just_before).unwrap_err().is_full());
    assert_eq!(spend(&store, "a", &quota, 0, just_before).unwrap().remaining(), 4);
    assert_eq!(spend(&store, "b", &quota, 1, after(seconds(2))).unwrap().remaining(), 4);
    assert_eq!((stored_bucket(&store, "a"), store.len(), store.evicted()), (None, 1, 1));
}

#[test]
fn g9_a_full_store_still_decides_the_keys_it_holds() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    assert!(spend(&store, "a", &slow, 1, START).unwrap().is_allow());
    assert!(spend(&store, "b", &slow, 1, START).unwrap_err().is_full());
    let look = Charge::new("b", &slow, Cost::new(5));
    assert!(store.decide_one(Operation::Look, &look, START).unwrap().is_allow());
    assert_eq!(spend(&store, "a", &slow, 4, START).unwrap().remaining(), 0);
    assert!(spend(&store, "a", &slow, 1, START).unwrap().is_deny());
}

#[test]
fn g9_only_full_buckets_make_room() {
    let (store, quota) = (at_most(3), quota("1/s", 100));
    for (key, cost) in [("a", 30), ("b", 10), ("c", 20)] {
        assert!(spend(&store, key, &quota, cost, START).unwrap().is_allow());
    }
    // A bucket that was spent from again is full later than it first seemed.
    assert!(spend(&store, "b", &quota, 15, START).unwrap().is_allow());
    let (a, b) = (stored_bucket(&store, "a"), stored_bucket(&store, "b"));
    assert!(spend(&store, "d", &quota, 1, after(seconds(15))).unwrap_err().is_full());
    assert!(spend(&store, "d", &quota, 90, after(seconds(20))).unwrap().is_allow());
    assert_eq!(
        (stored_bucket(&store, "a"), stored_bucket(&store, "b"), stored_bucket(&store, "c")),
        (a, b, None)
    );
    assert!(spend(&store, "e", &quota, 90, after(seconds(25))).unwrap().is_allow());
    assert_eq!(
        (stored_bucket(&store, "a"), stored_bucket(&store, "b"), store.evicted()),
        (a, None, 2)
    );
}

#[test]
fn g9_the_cap_is_one_for_all_shards() {
    for keys_max in [1, 2, 10, 63, 64, 65, 1_000] {
        let (store, slow) = (at_most(keys_max), quota("1/hour", 1));
        for index in 0..keys_max {
            let decision = spend(&store, &format!("key {index}"), &slow, 1, START);
            assert!(decision.unwrap().is_allow(), "{index} of {keys_max}");
        }
        assert!(spend(&store, "one more", &slow, 1, START).unwrap_err().is_full());
        assert_eq!(store.len(), keys_max);
    }
    assert_eq!(at_most(0).keys_max(), 1);
}

#[test]
fn a_full_store_says_so() {
    let (store, slow) = (at_most(2), quota("1/hour", 1));
    for key in ["a", "b"] {
        assert!(spend(&store, key, &slow, 1, START).unwrap().is_allow());
    }
    assert_eq!(
        spend(&store, "c", &slow, 1, START).unwrap_err().to_string(),
        "no room for 1 new key: 2 of at most 2 buckets are stored, and none of them is full \
         again; raise keys_max"
    );
}

#[test]
fn a_bucket_that_makes_room_may_be_one_of_the_request() {
    let (store, quota) = (at_most(2), quota("1/s", 5));
    for key in ["a", "b"] {
        assert!(spend(&store, key, &quota, 5, START).unwrap().is_allow());
    }
    let charges = ["a", "c"].map(|key| Charge::new(key, &quota, Cost::new(2)));
    let decisions = store.decide(Operation::Spend, &charges, after(seconds(5))).unwrap();
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (3, 3));
    assert_eq!((stored_bucket(&store, "b"), store.len()), (None, 2));
}

#[test]
fn g4_after_a_clock_step_a_full_store_has_room_as_soon_as_its_buckets_refill() {
    let (store, quota) = (at_most(2), quota("1/s", 5));
    let ahead = after(seconds(3_600));
    for key in ["a", "b"] {
        assert!(spend(&store, key, &quota, 5, ahead).unwrap().is_allow());
    }
    assert!(spend(&store, "c", &quota, 1, START).unwrap_err().is_full());
    assert_eq!(
        stored_bucket(&store, "a").map(|bucket| (bucket.level, bucket.ts)),
        Some((0, START))
    );
    let just_before = after(Duration::from_micros(4_999_999));
    assert!(spend(&store, "c", &quota, 1, just_before).unwrap_err().is_full());
    assert!(spend(&store, "c", &quota, 1, after(seconds(5))).unwrap().is_allow());
}

#[test]
fn g4_a_full_store_leaves_the_stored_times_that_are_within_the_skew() {
    let (store, slow) = (at_most(2), quota("1/day", 5));
    let [within, beyond, _] = keys_of_one_shard(&store);
    let skew = after(MAX_CLOCK_SKEW_DEFAULT);
    assert!(spend(&store, &within, &slow, 5, skew).unwrap().is_allow());
    assert!(spend(&store, &beyond, &slow, 5, after(seconds(3_600))).unwrap().is_allow());
    assert!(spend(&store, "c", &slow, 1, START).unwrap_err().is_full());
    let times = [&within, &beyond].map(|key| stored_bucket(&store, key).unwrap().ts);
    assert_eq!(times, [skew, START]);
}

#[test]
fn g5_writes_evict_only_what_is_full_for_every_clock_within_the_skew() {
    let skew = Duration::from_millis(300);
    let quota = quota("1/s", 5);
    let store = MemoryStore::builder().keys_max(2).max_clock_skew(skew).build();
    let near = keys_of_one_shard(&store);
    assert!(spend(&store, &near[0], &quota, 2, START).unwrap().is_allow());
    let full = after(seconds(2));
    let too_early = full.saturating_add(skew - Duration::from_micros(1));
    assert!(spend(&store, &near[1], &quota, 5, too_early).unwrap().is_allow());
    assert_eq!((store.len(), store.evicted()), (2, 0));
    let in_time = full.saturating_add(skew);
    assert!(spend(&store, &near[1], &quota, 0, in_time).unwrap().is_allow());
    assert_eq!(store.evicted(), 0, "a peek evicts nothing");
    let refund = Charge::new(&near[1], &quota, Cost::ONE);
    assert!(store.decide_one(Operation::Refund, &refund, in_time).unwrap().is_allow());
    assert_eq!((store.len(), store.evicted()), (1, 1));
}

#[test]
fn g7_no_bucket_of_a_request_is_evicted_while_it_is_written() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let [one, other, _] = keys_of_one_shard(&store);
    let charges = [&one, &other].map(|key| Charge::new(key, &quota, Cost::ONE));
    for now in [START, after(seconds(60))] {
        let decisions = store.decide(Operation::Spend, &charges, now).unwrap();
        assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (4, 4));
        assert_eq!((store.len(), store.evicted()), (2, 0));
    }
}

#[test]
fn what_is_full_after_the_last_instant_is_never_evicted() {
    let (store, slowest) = (at_most(1), quota("1/30day", Quota::BURST_MAX));
    assert!(spend(&store, "a", &slowest, Quota::BURST_MAX, START).unwrap().is_allow());
    assert_eq!(store.evict_full(Timestamp::MAX), 0);
    assert!(spend(&store, "b", &slowest, 1, Timestamp::MAX).unwrap_err().is_full());
}

#[test]
fn memory_comes_back_when_a_burst_of_keys_is_over() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let empty = store.bytes();
    for index in 0..100_000 {
        let key = format!("default:login:ip=10.0.{index}");
        assert!(spend(&store, &key, &quota, 1, START).unwrap().is_allow());
    }
    let burst = store.bytes();
    assert!(burst > empty + 100_000 * 60, "{burst}");
    // Each new key comes with at most four evictions, so that the store loses at least one.
    for index in 0..130_000 {
        let key = format!("default:login:ip=10.1.{index}");
        assert!(spend(&store, &key, &quota, 1, after(seconds(10 + index))).unwrap().is_allow());
    }
    assert!(store.len() <= 200, "{}", store.len());
    assert!(store.bytes() < empty + burst / 20, "{} of {burst}", store.bytes());
}

#[test]
fn an_idle_store_gives_its_memory_back_when_asked() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    for index in 0..50_000 {
        assert!(spend(&store, &index.to_string(), &quota, 1, START).unwrap().is_allow());
    }
    assert!(spend(&store, "slow", &quota, 5, START).unwrap().is_allow());
    let burst = store.bytes();
    assert_eq!(store.evict_full(after(seconds(2))), 50_000);
    assert_eq!((store.len(), store.evicted()), (1, 50_000));
    assert!(store.bytes() < burst / 20, "{} of {burst}", store.bytes());
}

#[test]
fn g9_a_key_that_comes_and_goes_takes_no_memory() {
    let (store, slow) = (MemoryStore::new(), quota("1/day", 5));
    let cycle = || {
        assert!(spend(&store, "a", &slow, 2, START).unwrap().is_allow());
        for units in [1, 1] {
            let refund = Charge::new("a", &slow, Cost::new(units));
            assert!(store.decide_one(Operation::Refund, &refund, START).unwrap().is_allow());
        }
        assert!(spend(&store, "b", &slow, 1, START).unwrap().is_allow());
        store.forget(&["b"]);
    };
    (0..100).for_each(|_| cycle());
    let bytes = store.bytes();
    (0..10_000).for_each(|_| cycle());
    assert_eq!(store.len(), 0);
    assert!(store.bytes() <= bytes, "{} {bytes}", store.bytes());
}

#[test]
fn g11_a_faster_quota_makes_room_sooner() {
    let (store, slow, fast) = (at_most(1), quota("1/hour", 5), quota("1/s", 5));
    assert!(spend(&store, "a", &slow, 5, START).unwrap().is_allow());
    assert_eq!(spend(&store, "a", &fast, 1, after(seconds(2))).unwrap().remaining(), 1);
    let just_before = after(Duration::from_micros(5_999_999));
    assert!(spend(&store, "b", &fast, 1, just_before).unwrap_err().is_full());
    assert!(spend(&store, "b", &fast, 1, after(seconds(6))).unwrap().is_allow());
}

#[test]
fn two_charges_of_one_key_are_refused_and_nothing_is_spent() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    for operation in [Operation::Spend, Operation::Look, Operation::Refund] {
        let charges = ["a", "b", "a"].map(|key| Charge::new(key, &quota, Cost::ONE));
        let error = store.decide(operation, &charges, START).unwrap_err();
        assert!(error.is_invalid());
    }
    let keys: Vec<String> = (0..65).map(|index| index.to_string()).collect();
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    assert!(store.decide(Operation::Spend, &charges, START).unwrap_err().is_invalid());
    assert_eq!(store.len(), 0);
    assert_eq!(store.decide(Operation::Spend, &charges[..64], START).unwrap().len(), 64);
    assert_eq!(store.len(), 64);
    assert!(store.decide(Operation::Spend, &[], START).unwrap().is_empty());
}

#[test]
fn g9_a_key_over_4096_bytes_is_refused() {
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let longest = "\u{e9}".repeat(2_048);
    assert!(spend(&store, &longest, &quota, 1, START).unwrap().is_allow());
    let too_long = format!("{longest}x");
    let error = spend(&store, &too_long, &quota, 1, START).unwrap_err();
    assert!(error.is_invalid());
    assert_eq!(
        error.to_string(),
        format!(
            "the key \"{}\"... has 4097 bytes: the most is 4096, so shorten or hash its values",
            "\u{e9}".repeat(32)
        )
    );
    let charges = ["a", &too_long].map(|key| Charge::new(key, &quota, Cost::ONE));
    assert!(store.decide(Operation::Look, &charges, START).unwrap_err().is_invalid());
    assert_eq!(store.len(), 1);
}

#[test]
fn forgotten_buckets_are_full() {
    let (store, slow) = (MemoryStore::new(), quota("1/hour", 5));
    for key in ["a", "b", "c"] {
        assert!(spend(&store, key, &slow, 5, START).unwrap().is_allow());
    }
    store.forget(&["a", "unknown", "b", "b"]);
    assert_eq!((store.len(), store.evicted()), (1, 0));
    assert_eq!(spend(&store, "a", &slow, 1, START).unwrap().remaining(), 4);
    assert!(spend(&store, "c", &slow, 1, START).unwrap().is_deny());
    store.clear();
    assert!(store.is_empty());
    assert_eq!(spend(&store, "c", &slow, 1, START).unwrap().remaining(), 4);
}

#[test]
fn keys_spread_over_the_shards_by_a_seed_of_each_store() {
    let stores = [at_most(64), at_most(64)];
    let [first, second] = stores.each_ref().map(|store| {
        let shard = |index| store.shard_of(store.key(&format!("key {index}")).hash);
        (0..64_000).map(shard).collect::<Vec<_>>()
    });
    let mut counts = [0; 64];
    first.iter().for_each(|shard| counts[*shard] += 1);
    // A thousand per shard on average; nine standard deviations are 286.
    assert!(counts.iter().all(|count| (714..=1_286).contains(count)), "{counts:?}");
    let same = first.iter().zip(&second).filter(|(one, other)| one == other).count();
    assert!(same < 2_000, "{same} of 64000 keys are in the same shard of both stores");
}

#[test]
fn the_futures_are_done_when_they_are_first_polled() {
    fn poll<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future pends"),
        }
    }
    let (store, quota) = (MemoryStore::new(), quota("1/s", 5));
    let charges = ["a", "b"].map(|key| Charge::new(key, &quota, Cost::new(4)));
    let decisions = poll(store.apply(Operation::Spend, &charges, START)).unwrap();
    assert_eq!((decisions[0].remaining(), decisions[1].remaining()), (1, 1));
    poll(store.reset(&["a"])).unwrap();
    let decisions = poll(store.apply(Operation::Look, &charges, START)).unwrap();
    assert_eq!((decisions[0].is_allow(), decisions[1].is_allow()), (true, false));
}
