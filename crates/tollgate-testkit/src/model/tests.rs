use tollgate_core::Ticket;

use super::*;
use crate::timeline::{self, Step};

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + micros)
}

#[test]
fn the_model_gives_the_answers_of_the_worked_timelines() {
    for timeline in timeline::ALL.into_iter().flat_map(|text| timeline::parse(text).unwrap()) {
        let mut model = Model::default();
        let mut quota = *timeline.quota().unwrap();
        for (index, step) in timeline.steps().iter().enumerate() {
            match *step {
                Step::SetQuota(changed) => quota = changed,
                Step::Request { at, operation, ticket, cost, expect } => {
                    let charge = Charge { ticket, ..Charge::new("", &quota, cost) };
                    let now = timeline.start().saturating_add(at);
                    let got = model.apply(operation, &charge, now);
                    assert_eq!(got, expect, "{} step {index}", timeline.name());
                }
            }
        }
    }
}

#[test]
fn a_refund_fills_the_bucket_and_no_more() {
    let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
    let mut bucket = Model::default();
    let _ = bucket.check(&quota, Cost::new(3), at(0));
    let four = bucket.refund(&quota, Cost::new(2), at(0));
    assert_eq!(four.to_string(), "allow, remaining 4, reset_after_us 1000000, delay_us 0");
    let full = bucket.refund(&quota, Cost::new(u64::MAX), at(0));
    assert_eq!(full.to_string(), "allow, remaining 5, reset_after_us 0, delay_us 0");
    assert!(bucket.stored.is_none());
}

#[test]
fn tokens_of_another_quota_are_rounded_down_to_what_the_new_one_can_tell_apart() {
    let (sevenths, halves) = (
        Quota::new("1/7us".parse().unwrap(), 3).unwrap(),
        Quota::new("1/2us".parse().unwrap(), 3).unwrap(),
    );
    let mut bucket = Model::default();
    let _ = bucket.check(&sevenths, Cost::new(3), at(0));
    let _ = bucket.check(&sevenths, Cost::ONE, at(13));
    let _ = bucket.check(&sevenths, Cost::ONE, at(13));
    let peek = bucket.check(&sevenths, Cost::ZERO, at(13));
    // 6/7 of a token is 1/2 in halves: 5 more of them, of 1 us each, make it full.
    assert_eq!(peek.to_string(), "allow, remaining 0, reset_after_us 15, delay_us 0");
    let carried = bucket.check(&halves, Cost::ZERO, at(13));
    assert_eq!(carried.to_string(), "allow, remaining 0, reset_after_us 5, delay_us 0");
}

#[test]
fn units_of_another_cell_width_count_from_the_end_of_their_cell() {
    let window = |rate: &str, cells: u16| {
        Quota::sliding_window(rate.parse().unwrap(), cells.try_into().unwrap()).unwrap()
    };
    let (wide, narrow) = (window("9/s", 1), window("9/s", 10));
    let mut model = Model::default();
    let _ = model.check(&wide, Cost::new(2), at(100_000));
    let _ = model.check(&wide, Cost::new(2), at(1_300_000));
    // The first two may have been spent until 999,999 us, the others until 1,300,000 us.
    let free = |model: &mut Model, cost| model.check(&narrow, Cost::new(cost), at(1_400_000));
    assert_eq!(
        free(&mut model, 6).to_string(),
        "deny, remaining 5, reset_after_us 1000000, retry_after_us 600000"
    );
}

#[test]
fn spendings_move_to_now_when_the_clock_goes_back_too_far() {
    let quota = Quota::sliding_log("3/s".parse().unwrap()).unwrap();
    let mut model = Model::default();
    let _ = model.check(&quota, Cost::ONE, at(9_300_000));
    let _ = model.check(&quota, Cost::ONE, at(10_000_000));
    let held = model.check(&quota, Cost::new(2), at(9_000_000));
    assert_eq!(
        held.to_string(),
        "deny, remaining 1, reset_after_us 2000000, retry_after_us 1300000"
    );
    let moved = model.check(&quota, Cost::new(2), at(8_999_999));
    assert_eq!(
        moved.to_string(),
        "deny, remaining 1, reset_after_us 1000000, retry_after_us 1000000"
    );
}

#[test]
fn a_reservation_is_spent_once_and_settled_once() {
    let quota = Quota::new("1/s".parse().unwrap(), 10).unwrap();
    let charge = |cost| Charge::new("", &quota, Cost::new(cost)).with_ticket(Ticket::new(1));
    let reserve = Operation::Reserve { ttl: Duration::from_secs(1) };
    let mut model = Model::default();
    let mut remaining = |operation, cost, now| match model.apply(operation, &charge(cost), now) {
        Answer::Allow { remaining, .. } => Some(remaining),
        _ => None,
    };
    assert_eq!(remaining(reserve, 6, at(0)), Some(4));
    assert_eq!(remaining(reserve, 6, at(0)), Some(4));
    assert_eq!(remaining(Operation::Settle, 2, at(0)), Some(8));
    assert_eq!(remaining(Operation::Settle, 2, at(0)), None);
    assert_eq!(remaining(reserve, 1, at(0)), Some(7));
    assert_eq!(remaining(Operation::Settle, 50, at(0)), Some(0));
    // A reservation that was not settled in time stays spent.
    assert_eq!(remaining(reserve, 5, at(5_000_000)), Some(0));
    assert_eq!(remaining(Operation::Settle, 0, at(6_000_000)), None);
}
