//! What slices do, one call after the other.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Cost, LeaseTerms, Quota};

use super::Slices;
use super::held::Slice;

fn terms() -> LeaseTerms {
    // 900 in the store, slices of at most 100 for 100 ms.
    LeaseTerms::of(&Quota::new("1000/s".parse().unwrap(), 1_000).unwrap()).unwrap()
}

fn held() -> Slices {
    Slices::default()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Asks often enough, and returns the size of the slice that is then wanted.
fn heat(slices: &Slices, from: Instant) -> u64 {
    let mut wanted = None;
    for step in 0..200 {
        let taken = slices.take("a", &terms(), Cost::ONE, from + ms(step));
        assert!(taken.allow.is_none());
        wanted = wanted.or(taken.debit);
    }
    wanted.unwrap()
}

#[test]
fn a_key_with_little_traffic_stays_strict_by_itself() {
    let (slices, start) = (held(), Instant::now());
    for step in 0..50 {
        let taken = slices.take("a", &terms(), Cost::ONE, start + ms(20 * step));
        assert!(taken.allow.is_none() && taken.debit.is_none());
    }
}

#[test]
fn what_is_held_is_spent_under_its_quota_only_and_a_lack_is_not_noted() {
    let (slices, start) = (held(), Instant::now());
    let [quota, other] = [1_000, 1_001].map(|burst| Quota::new("1000/s".parse().unwrap(), burst));
    let take = |quota: &Quota, cost, step| {
        let taken = slices.take_held("a", quota, Cost::new(cost), start + ms(step));
        taken.map(|(allow, debit)| (allow.remaining, debit.map(|(_, terms)| terms)))
    };
    let (quota, other) = (quota.unwrap(), other.unwrap());
    // However often it is asked, a key of which nothing is held does not become a hot one.
    (0..200).for_each(|step| assert_eq!(take(&quota, 1, step), None));
    assert!(!slices.leftovers(None, start + ms(200)).1, "nothing is known of it");
    heat(&slices, start);
    slices.debited("a", 3, Ok(500), start + ms(200));
    assert_eq!(take(&other, 1, 201), None);
    assert_eq!(take(&quota, 4, 201), None);
    assert_eq!(take(&quota, 2, 201), Some((501, Some(terms()))), "the next slice is due");
    assert_eq!(take(&quota, 1, 201), Some((500, None)), "its debit is under way");
    assert_eq!(take(&quota, 1, 201), None);
}

#[test]
fn a_slice_is_spent_by_its_units_and_only_until_it_ends() {
    let (slices, start) = (held(), Instant::now());
    heat(&slices, start);
    slices.debited("a", 3, Ok(500), start);
    let take = |cost, at| slices.take("a", &terms(), Cost::new(cost), start + at).allow;
    assert_eq!(take(2, ms(1)).unwrap().0.remaining, 501);
    assert!(take(2, ms(1)).is_none(), "one unit is left");
    assert!(take(1, ms(99)).is_some());
    slices.debited("a", 3, Ok(500), start);
    assert_eq!(slices.units(), 3);
    assert!(take(1, ms(100)).is_none(), "it ended");
}

#[test]
fn one_slice_is_debited_at_a_time_and_small_ones_near_exhaustion() {
    let (slices, start) = (held(), Instant::now());
    let first = heat(&slices, start);
    assert!((2..=100).contains(&first), "{first}");
    let later = |at| slices.take("a", &terms(), Cost::ONE, start + at).debit;
    assert_eq!(later(ms(200)), None, "one is under way");
    slices.debited("a", first, Ok(20), start + ms(200));
    let mut sizes = Vec::new();
    for step in 0..60 {
        sizes.extend(later(ms(201 + step)));
    }
    assert_eq!(sizes, [5], "a fourth of what is left");
    slices.debited("a", 5, Err(ms(30)), start + ms(300));
    assert_eq!(later(ms(301)), None);
}

#[test]
fn leftovers_are_what_would_still_be_in_the_bucket() {
    let quota = *terms().quota();
    let start = Instant::now();
    let slice = |missing| Slice { units: 50, since: start, missing };
    // The bucket lacked 150 with the slice, 100 without: full after 99 ms.
    assert_eq!(slice(150).still_missed(&quota, start + ms(60)), 50);
    assert_eq!(slice(150).still_missed(&quota, start + ms(119)), 30);
    // It was full before the debit: nothing that refills has a place beside it.
    assert_eq!(slice(50).still_missed(&quota, start + ms(20)), 30);
    assert_eq!(slice(50).still_missed(&quota, start + ms(80)), 0);
}

#[test]
fn what_nobody_asks_for_any_more_is_taken_for_giving_back() {
    let (slices, start) = (held(), Instant::now());
    heat(&slices, start);
    let at = start + ms(450);
    slices.debited("a", 40, Ok(100), at);
    assert_eq!(slices.units(), 40);
    let (leftovers, watched) = slices.leftovers(Some(ms(0)), at);
    let back: Vec<_> = leftovers.iter().map(|one| (&*one.key, one.cost.units())).collect();
    assert_eq!(back, [("a", 40)]);
    assert!(!watched);
    assert_eq!(slices.units(), 0);
}

#[test]
fn what_is_put_back_ends_when_it_would_have_ended() {
    let (slices, start) = (held(), Instant::now());
    let first = heat(&slices, start);
    slices.debited("a", 3, Ok(500), start);
    let take = |cost, at| slices.take("a", &terms(), Cost::new(cost), start + at);
    assert_eq!((first > 3, take(1, ms(50)).debit.is_some()), (true, true));
    slices.debited("a", 9, Ok(400), start + ms(50));
    // All of the first and one of the second, of which another three are left behind.
    let (_, parts) = take(3, ms(60)).allow.unwrap();
    let (_, kept) = take(5, ms(60)).allow.unwrap();
    assert_eq!(slices.units(), 3);
    slices.put_back("a", parts);
    assert_eq!(slices.units(), 6);
    assert!(take(5, ms(100)).allow.is_none(), "the first has ended");
    assert!(take(4, ms(100)).allow.is_some());
    slices.forget("a");
    slices.put_back("a", kept);
    assert_eq!(slices.units(), 0);
}
