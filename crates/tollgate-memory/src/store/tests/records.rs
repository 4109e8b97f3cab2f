//! Records of reservations and refunds: they take room, and are what a settlement finds.

use super::*;

const RESERVE: Operation = Operation::Reserve { ttl: seconds(10) };

fn held<'a>(key: &'a str, quota: &'a Quota, cost: u64) -> Charge<'a> {
    Charge::new(key, quota, Cost::new(cost)).with_ticket(Ticket::new(7))
}

/// Returns how many buckets and how many records are stored.
fn stored_in(store: &MemoryStore) -> (usize, usize) {
    (store.len(), store.records())
}

#[test]
fn a_reservation_takes_the_room_of_a_bucket_and_that_of_a_record() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    let reserved = store.decide_one(RESERVE, &held("a", &slow, 4), START).unwrap();
    assert_eq!((reserved.remaining(), stored_in(&store)), (1, (1, 1)));
    let other = held("a", &slow, 1).with_ticket(Ticket::new(8));
    assert!(store.decide_one(RESERVE, &other, START).unwrap_err().is_full());
    let settled = store.decide_one(Operation::Settle, &held("a", &slow, 3), START).unwrap();
    assert_eq!((settled.remaining(), stored_in(&store)), (2, (1, 0)));
    assert!(store.decide_one(RESERVE, &other, START).unwrap().is_allow());
}

#[test]
fn g9_however_many_reservations_a_caller_makes_there_is_room_for_buckets() {
    let (store, slow) = (at_most(10), quota("1/hour", 1_000));
    let reserve = |ticket| {
        let charge = held("a", &slow, 1).with_ticket(Ticket::new(ticket));
        store.decide_one(RESERVE, &charge, START)
    };
    assert_eq!((0..1_000).filter(|ticket| reserve(*ticket).is_ok()).count(), 10);
    let refund = held("a", &slow, 1).with_ticket(Ticket::new(5_000));
    assert!(store.decide_one(Operation::Refund, &refund, START).unwrap_err().is_full());
    assert_eq!(stored_in(&store), (1, 10));
    for key in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert!(spend(&store, key, &slow, 1, START).unwrap().is_allow(), "{key}");
    }
    assert_eq!(spend(&store, "a", &slow, 1, START).unwrap().remaining(), 989);
    assert_eq!(
        spend(&store, "k", &slow, 1, START).unwrap_err().to_string(),
        "no room for 1 new key: 10 of at most 10 buckets are stored, and none of them is full \
         again; raise keys_max"
    );
    assert_eq!(stored_in(&store), (10, 10));
}

#[test]
fn g3_a_reservation_without_room_for_its_record_spends_nothing() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    assert!(store.decide_one(RESERVE, &held("a", &slow, 1), START).unwrap().is_allow());
    let other = held("a", &slow, 3).with_ticket(Ticket::new(8));
    let error = store.decide_one(RESERVE, &other, START).unwrap_err();
    assert!(error.is_full());
    assert_eq!(
        error.to_string(),
        "no room to remember another reservation or refund: 1 of at most 1 records are stored, and \
         none of them has ended; settle reservations sooner, or raise keys_max"
    );
    assert_eq!(spend(&store, "a", &slow, 0, START).unwrap().remaining(), 4);
}

#[test]
fn g3_a_reservation_without_room_for_its_bucket_leaves_no_record() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    assert!(spend(&store, "a", &slow, 1, START).unwrap().is_allow());
    assert!(store.decide_one(RESERVE, &held("b", &slow, 1), START).unwrap_err().is_full());
    assert_eq!(stored_in(&store), (1, 0));
    assert!(store.decide_one(RESERVE, &held("a", &slow, 1), START).unwrap().is_allow());
}

#[test]
fn g7_a_reservation_in_two_buckets_without_room_for_all_its_records_spends_in_none() {
    let (store, slow) = (at_most(3), quota("1/hour", 5));
    let charges = ["a", "b"].map(|key| held(key, &slow, 2));
    for ticket in [1, 2] {
        let first = held("a", &slow, 1).with_ticket(Ticket::new(ticket));
        assert!(store.decide_one(RESERVE, &first, START).unwrap().is_allow());
    }
    assert!(store.decide(RESERVE, &charges, START).unwrap_err().is_full());
    assert_eq!((stored_in(&store), stored(&store, "b")), ((1, 2), None));
    assert_eq!(spend(&store, "a", &slow, 0, START).unwrap().remaining(), 3);
}

#[test]
fn a_settlement_needs_no_room_but_that_of_its_bucket() {
    let (store, quota) = (at_most(1), quota("1/s", 5));
    let reserved = store.decide_one(RESERVE, &held("a", &quota, 1), START).unwrap();
    assert_eq!((reserved.remaining(), stored_in(&store)), (4, (1, 1)));
    // The bucket is full again and leaves; the record stays.
    assert!(spend(&store, "b", &quota, 1, after(seconds(2))).unwrap().is_allow());
    assert_eq!((stored(&store, "a"), stored_in(&store)), (None, (1, 1)));
    let settle = held("a", &quota, 4);
    let settled = store.decide_one(Operation::Settle, &settle, after(seconds(3))).unwrap();
    assert_eq!((settled.is_allow(), settled.remaining(), stored_in(&store)), (true, 2, (1, 0)));
}

#[test]
fn g9_a_record_makes_room_when_it_has_ended_and_not_a_microsecond_before() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    assert!(store.decide_one(RESERVE, &held("a", &slow, 2), START).unwrap().is_allow());
    let other = held("a", &slow, 1).with_ticket(Ticket::new(8));
    let just_before = after(Duration::from_micros(9_999_999));
    assert!(store.decide_one(RESERVE, &other, just_before).unwrap_err().is_full());
    assert!(store.decide_one(RESERVE, &other, after(seconds(10))).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((1, 1), 1));
    let settle = held("a", &slow, 0);
    let late = store.decide_one(Operation::Settle, &settle, after(seconds(10))).unwrap();
    assert_eq!((late.is_deny(), late.remaining()), (true, 2));
}

#[test]
fn writes_evict_records_that_have_ended_for_every_clock_within_the_skew() {
    let (store, slow) = (MemoryStore::new(), quota("1/hour", 5));
    let near = keys_of_one_shard(&store);
    assert!(store.decide_one(RESERVE, &held(&near[0], &slow, 4), START).unwrap().is_allow());
    assert!(spend(&store, &near[1], &slow, 1, after(seconds(10))).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((2, 1), 0));
    let ended = after(seconds(10) + MAX_CLOCK_SKEW_DEFAULT);
    assert!(spend(&store, &near[1], &slow, 1, ended).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((2, 1), 0));
    // A write to a key that is not known evicts at once, one to a key that is 10 s later.
    assert!(spend(&store, &near[2], &slow, 1, ended).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((3, 0), 1));
}

#[test]
fn writes_to_known_keys_evict_what_has_ended_ten_seconds_earlier() {
    let (store, slow) = (MemoryStore::new(), quota("1/hour", 5));
    let near = keys_of_one_shard(&store);
    assert!(store.decide_one(RESERVE, &held(&near[0], &slow, 4), START).unwrap().is_allow());
    assert!(spend(&store, &near[1], &slow, 1, START).unwrap().is_allow());
    let ended = after(seconds(20) + MAX_CLOCK_SKEW_DEFAULT);
    let just_before = ended.saturating_sub(Duration::from_micros(1));
    assert!(spend(&store, &near[1], &slow, 1, just_before).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((2, 1), 0));
    assert!(spend(&store, &near[1], &slow, 1, ended).unwrap().is_allow());
    assert_eq!((stored_in(&store), store.evicted()), ((2, 0), 1));
}

#[test]
fn a_refund_is_made_once_under_a_ticket_and_its_record_takes_room() {
    let (store, slow) = (at_most(1), quota("1/hour", 9));
    assert!(spend(&store, "a", &slow, 9, START).unwrap().is_allow());
    for _ in 0..2 {
        let refunded = store.decide_one(Operation::Refund, &held("a", &slow, 4), START).unwrap();
        assert_eq!((refunded.remaining(), stored_in(&store)), (4, (1, 1)));
    }
    // A full bucket needs no room, but the record of its refund does.
    let refund = store.decide_one(Operation::Refund, &held("b", &slow, 1), START);
    assert!(refund.unwrap_err().is_full());
    let bare = Charge::new("b", &slow, Cost::ONE);
    assert_eq!(store.decide_one(Operation::Refund, &bare, START).unwrap().remaining(), 9);
}

#[test]
fn records_of_one_ticket_are_apart_in_each_bucket() {
    let (store, slow) = (MemoryStore::new(), quota("1/hour", 9));
    let charges = [held("a", &slow, 2), held("b", &slow, 5)];
    assert_eq!(store.decide(RESERVE, &charges, START).unwrap().len(), 2);
    assert_eq!(stored_in(&store), (2, 2));
    let settled = store.decide_one(Operation::Settle, &held("b", &slow, 0), START).unwrap();
    assert_eq!((settled.remaining(), stored_in(&store)), (9, (1, 1)));
    let settled = store.decide_one(Operation::Settle, &held("a", &slow, 1), START).unwrap();
    assert_eq!((settled.remaining(), stored_in(&store)), (8, (1, 0)));
}

#[test]
fn g8_reservations_and_refunds_made_once_outlive_a_reset() {
    let (store, slow) = (MemoryStore::new(), quota("1/hour", 5));
    assert!(store.decide_one(RESERVE, &held("a", &slow, 4), START).unwrap().is_allow());
    let other = held("a", &slow, 1).with_ticket(Ticket::new(99));
    assert_eq!(store.decide_one(Operation::Refund, &other, START).unwrap().remaining(), 2);
    store.forget(&["a", "unknown"]);
    assert_eq!((stored_in(&store), store.evicted()), ((0, 2), 0));
    assert!(spend(&store, "a", &slow, 5, START).unwrap().is_allow());
    assert_eq!(store.decide_one(Operation::Refund, &other, START).unwrap().remaining(), 0);
    let settled = store.decide_one(Operation::Settle, &held("a", &slow, 3), START).unwrap();
    assert_eq!((settled.is_allow(), settled.remaining()), (true, 1));
    store.clear();
    assert!(store.is_empty());
}

#[test]
fn g4_after_a_clock_step_a_record_makes_room_when_any_made_now_would_have_ended() {
    let (store, slow) = (at_most(1), quota("1/hour", 5));
    let ahead = after(seconds(3_600));
    assert!(store.decide_one(RESERVE, &held("a", &slow, 2), ahead).unwrap().is_allow());
    let other = held("a", &slow, 1).with_ticket(Ticket::new(8));
    assert!(store.decide_one(RESERVE, &other, START).unwrap_err().is_full());
    let ended = after(seconds(10) + MAX_CLOCK_SKEW_DEFAULT);
    let just_before = ended.saturating_sub(Duration::from_micros(1));
    assert!(store.decide_one(RESERVE, &other, just_before).unwrap_err().is_full());
    assert!(store.decide_one(RESERVE, &other, ended).unwrap().is_allow());
}
