use super::*;
use crate::charge::Charge;
use crate::state::State;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn quota(rate: &str, burst: u64) -> Quota {
    Quota::new(rate.parse().unwrap(), burst).unwrap()
}

/// A bucket with its state, driven along a timeline.
struct Timeline {
    quota: Quota,
    state: Option<State>,
}

impl Timeline {
    fn new(rate: &str, burst: u64) -> Self {
        Self { quota: quota(rate, burst), state: None }
    }

    fn at(&mut self, micros: u64, cost: u64) -> Decision {
        let now = START.saturating_add(Duration::from_micros(micros));
        let (decision, change) = decide(&self.quota, self.state.as_ref(), cost, now);
        change.apply(&mut self.state);
        decision
    }
}

fn decide(quota: &Quota, state: Option<&State>, cost: u64, now: Timestamp) -> (Decision, Change) {
    Charge::new("key", quota, Cost::new(cost)).decide(state, MAX_CLOCK_SKEW_DEFAULT, now)
}

fn refund(quota: &Quota, state: Option<&State>, cost: u64, now: Timestamp) -> (Decision, Change) {
    Charge::new("key", quota, Cost::new(cost)).refund(state, MAX_CLOCK_SKEW_DEFAULT, now)
}

#[test]
fn a_burst_of_one_denies_the_second() {
    let mut bucket = Timeline::new("1/hour", 1);
    assert!(bucket.at(0, 1).is_allow());
    assert!(bucket.at(0, 1).is_deny());
    assert!(bucket.at(3_599_999_999, 1).is_deny());
    assert!(bucket.at(3_600_000_000, 1).is_allow());
}

#[test]
fn three_per_second_gives_exactly_thirty_in_ten_seconds() {
    let mut bucket = Timeline::new("3/s", 1);
    let allowed = (0..10_000_000_u64).step_by(37).filter(|at| bucket.at(*at, 1).is_allow()).count();
    assert_eq!(allowed, 30);
}

#[test]
fn three_million_per_second_admits_three_each_microsecond() {
    let mut bucket = Timeline::new("3000000/s", 3);
    for at in 0..1_000 {
        assert!(bucket.at(at, 3).is_allow());
        assert!(bucket.at(at, 1).is_deny());
    }
}

#[test]
fn g3_denied_check_leaves_state_unchanged() {
    let mut bucket = Timeline::new("1/s", 10);
    let _ = bucket.at(0, 7);
    let before = bucket.state.clone();
    assert!(bucket.at(900_000, 4).is_deny());
    assert_eq!(bucket.at(900_000, 0).remaining(), 3);
    assert_eq!(bucket.state, before);
}

#[test]
fn denied_polling_neither_starves_nor_mints() {
    let mut bucket = Timeline::new("2/s", 2);
    assert!(bucket.at(0, 2).is_allow());
    let allowed: Vec<_> =
        (1..20_000).map(|step| step * 100).filter(|at| bucket.at(*at, 1).is_allow()).collect();
    assert_eq!(allowed, [500_000, 1_000_000, 1_500_000]);
}

#[test]
fn after_any_idle_time_at_most_the_burst_passes() {
    for idle_ms in (0..40_000_u64).step_by(100) {
        let mut bucket = Timeline::new("1/s", 10);
        assert!(bucket.at(0, 10).is_allow());
        let mut passed = 0;
        loop {
            let decision = bucket.at(idle_ms * 1_000, 1);
            assert!(decision.remaining() <= decision.limit());
            if decision.is_deny() {
                break;
            }
            passed += 1;
        }
        assert_eq!(passed, (idle_ms / 1_000).min(10), "after {idle_ms} ms");
    }
}

#[test]
fn g4_a_step_back_within_the_skew_keeps_the_stored_time() {
    let mut bucket = Timeline::new("10/s", 4);
    let _ = bucket.at(10_000_000, 4);
    let before = bucket.state.clone();
    let decision = bucket.at(9_000_000, 1);
    assert_eq!(decision.retry_after(), Some(Duration::from_micros(1_100_000)));
    assert_eq!(bucket.state, before);
}

#[test]
fn g4_a_step_back_beyond_the_skew_moves_the_stored_time_and_keeps_the_units() {
    let mut bucket = Timeline::new("10/s", 4);
    let _ = bucket.at(10_000_000, 3);
    let decision = bucket.at(8_999_999, 0);
    assert_eq!(decision.remaining(), 1);
    let Some(State::Bucket(moved)) = &bucket.state else { panic!("no bucket is stored") };
    assert_eq!(moved.ts, START.saturating_add(Duration::from_micros(8_999_999)));
    assert_eq!(bucket.at(9_299_999, 4).remaining(), 0);
}

#[test]
fn g4_the_ends_of_time_neither_panic_nor_mint() {
    let quota = quota("1000000000/s", Quota::BURST_MAX);
    let empty_at = |ts| Some(State::Bucket(Bucket { level: 0, scale: quota.scale(), ts }));
    let future = empty_at(Timestamp::MAX);
    assert!(decide(&quota, future.as_ref(), 1, Timestamp::EPOCH).0.is_deny());
    assert!(decide(&quota, future.as_ref(), 1, Timestamp::MAX).0.is_deny());
    let old = empty_at(Timestamp::EPOCH);
    let (decision, _) = decide(&quota, old.as_ref(), 1, Timestamp::MAX);
    assert_eq!(decision.remaining(), quota.burst() - 1);
}

#[test]
fn g5_a_full_state_decides_as_an_absent_one() {
    let quota = quota("3/s", 5);
    let full = Bucket { level: quota.level_max(), scale: quota.scale(), ts: START };
    let full = Some(State::Bucket(full));
    for offset in [0, 1, 500_000, 90_000_000] {
        let now = START.saturating_add(Duration::from_micros(offset));
        for cost in 0..=6 {
            let decided = decide(&quota, full.as_ref(), cost, now);
            assert_eq!(decided, decide(&quota, None, cost, now));
        }
    }
}

#[test]
fn g11_a_new_quota_keeps_the_tokens_capped_at_the_new_burst() {
    let mut bucket = Timeline::new("1/s", 100);
    assert_eq!(bucket.at(0, 2).remaining(), 98);
    bucket.quota = quota("1/s", 10);
    assert_eq!(bucket.at(0, 1).remaining(), 9);
    bucket.quota = quota("7/min", 200);
    assert_eq!(bucket.at(0, 0).remaining(), 9);
    bucket.quota = quota("1000000000/s", 200);
    assert_eq!(bucket.at(0, 1).remaining(), 8);
}

#[test]
fn a_refund_never_lifts_a_bucket_above_its_burst() {
    let mut timeline = Timeline::new("1/s", 5);
    let _ = timeline.at(0, 3);
    let quota = timeline.quota;

    let (decision, change) = refund(&quota, timeline.state.as_ref(), 2, START);
    assert_eq!((decision.remaining(), decision.reset_after()), (4, Duration::from_secs(1)));
    change.apply(&mut timeline.state);

    let (decision, change) = refund(&quota, timeline.state.as_ref(), u64::MAX, START);
    assert_eq!((decision.remaining(), decision.reset_after()), (5, Duration::ZERO));
    assert_eq!(change, Change::Remove);

    let (decision, change) = refund(&quota, None, 1, START);
    assert_eq!((decision.remaining(), change), (5, Change::Keep));
}

#[test]
fn coarse_ticks_keep_retry_after_exact() {
    let mut bucket = Timeline::new("1/30day", Quota::BURST_MAX);
    assert_eq!(bucket.quota.tick_us(), 1_000_000);
    let _ = bucket.at(250_001, Quota::BURST_MAX);
    let denied = bucket.at(1_000_000, 1);
    let retry_us = 30 * 86_400_000_000 + 250_001 - 1_000_000;
    assert_eq!(denied.retry_after(), Some(Duration::from_micros(retry_us)));
    assert!(bucket.at(1_000_000 + retry_us - 1, 1).is_deny());
    assert!(bucket.at(1_000_000 + retry_us, 1).is_allow());
}

#[test]
fn g1_a_coarse_tick_that_fills_the_bucket_admits_nothing_twice() {
    let mut bucket = Timeline::new("999999937/day", 2_000_000);
    assert_eq!(bucket.quota.tick_us(), 100);
    assert!(bucket.at(0, 2_000_000).is_allow());
    assert!(bucket.at(172_800_099, 1_999_999).is_allow());
    assert_eq!(bucket.at(172_800_100, 0).remaining(), 0);
}

#[test]
fn g8_a_bucket_that_is_changed_in_place_is_decided_as_one_that_is_not() {
    let rate = |rate: &str| rate.parse().unwrap();
    let quotas = [
        Quota::new(rate("1/s"), 5).unwrap(),
        Quota::leaky_bucket(rate("7/min"), 5).unwrap(),
        // Ticks of more than a microsecond.
        Quota::new(rate("1/30day"), Quota::BURST_MAX).unwrap(),
    ];
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    for quota in &quotas {
        let bucket = Bucket { level: 3 * quota.scale(), scale: quota.scale(), ts: start };
        for offset_ms in [-3_600_000_i64, -1_001, -1_000, -1, 0, 1, 999, 1_000, 1_500, 3_600_000] {
            let millis = Duration::from_millis(offset_ms.unsigned_abs());
            let now = if offset_ms < 0 {
                start.saturating_sub(millis)
            } else {
                start.saturating_add(millis)
            };
            for cost in 0..7 {
                let charge = Charge::new("a", quota, Cost::new(cost));
                let mut state = Some(State::Bucket(bucket));
                let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
                change.apply(&mut state);
                let mut in_place = bucket;
                let decided = charge.decide_bucket(&mut in_place, MAX_CLOCK_SKEW_DEFAULT, now);
                let (decided, is_changed) = decided.unwrap();
                assert_eq!(decided.decision(), decision, "{quota} {offset_ms} {cost}");
                assert_eq!(is_changed, change != Change::Keep, "{quota} {offset_ms} {cost}");
                assert_eq!(state, Some(State::Bucket(in_place)), "{quota} {offset_ms} {cost}");
            }
        }
    }
}
