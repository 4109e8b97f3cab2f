//! Buckets in shards: never more than the whole (G1), and how much less.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::num::NonZeroU8;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Rate, ShardTerms, State, Timestamp,
};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A generator that gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 32) as u32
    }

    fn below(&mut self, end: u64) -> u64 {
        (u64::from(self.draw()) * end) >> 32
    }
}

/// A bucket in shards, of which a check asks one, and another one if `again` and that denies.
struct Sharded {
    terms: ShardTerms,
    states: Vec<Option<State>>,
    random: Random,
    again: bool,
}

impl Sharded {
    fn new(whole: &Quota, count: u8, again: bool) -> Self {
        let terms = ShardTerms::of(whole, NonZeroU8::new(count).unwrap()).unwrap();
        Self { terms, states: vec![None; usize::from(count)], random: Random(2), again }
    }

    fn asks(&mut self, shard: usize, cost: Cost, now: Timestamp) -> bool {
        let (quota, state) = (self.terms.quota(shard), &mut self.states[shard]);
        is_admitted(quota, state, cost, now)
    }

    fn check(&mut self, cost: Cost, now: Timestamp) -> bool {
        let Some(first) = self.terms.first(cost, self.random.draw()) else { return false };
        if self.asks(first, cost, now) {
            return true;
        }
        let second = self.terms.second(first, cost, self.random.draw());
        second.filter(|_| self.again).is_some_and(|second| self.asks(second, cost, now))
    }
}

fn is_admitted(quota: &Quota, state: &mut Option<State>, cost: Cost, now: Timestamp) -> bool {
    let charge = Charge::new("key", quota, cost);
    let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
    change.apply(state);
    decision.is_allow()
}

#[test]
fn g1_any_interval_of_all_shards_holds_at_most_what_the_whole_admits() {
    let mut total = 0;
    for count in 1..=16 {
        let burst = 16 + 2 * u64::from(count) + 3;
        let window = Rate::new(burst, Duration::from_secs(1)).unwrap();
        for whole in [
            Quota::new("37/s".parse().unwrap(), burst).unwrap(),
            Quota::fixed_window(window).unwrap(),
            Quota::sliding_window(window, Algorithm::CELLS_DEFAULT).unwrap(),
            Quota::sliding_log(window).unwrap(),
        ] {
            for seed in 0..6 {
                let mut random = Random(seed * 1_000 + u64::from(count));
                let mut sharded = Sharded::new(&whole, count, true);
                let (mut now, mut admitted) = (START, Vec::new());
                for _ in 0..300 {
                    let pause_us = match random.below(6) {
                        0..=2 => 0,
                        3 => random.below(3_000),
                        4 => random.below(60_000),
                        _ => random.below(1_500_000),
                    };
                    now = now.saturating_add(Duration::from_micros(pause_us));
                    let cost = 1 + random.below(3);
                    if sharded.check(Cost::new(cost), now) {
                        admitted.push((now, cost));
                    }
                }
                assert_bound(&whole, &admitted);
                total += admitted.len();
            }
        }
    }
    assert!(total > 20_000, "{total}");
}

fn assert_bound(whole: &Quota, admitted: &[(Timestamp, u64)]) {
    let period_us = whole.rate().period().as_micros();
    let (units, burst) = (u128::from(whole.rate().units()), u128::from(whole.burst()));
    for (from, (start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (end, cost) in &admitted[from..] {
            sum += u128::from(*cost);
            let width_us = end.saturating_since(*start).as_micros();
            let window = |at: &Timestamp| u128::from(at.as_micros()) / period_us;
            let is_within = match whole.algorithm() {
                Algorithm::TokenBucket => sum * period_us <= burst * period_us + units * width_us,
                Algorithm::FixedWindow => window(start) != window(end) || sum <= burst,
                _ => width_us >= period_us || sum <= burst,
            };
            assert!(is_within, "{whole}: {sum} within {width_us} us");
        }
    }
}

/// What is admitted within a minute less than by a whole bucket of 1,000/s, in thousandths, with and
/// without a second shard.
fn less(burst: u64, offered: u64, dear: u64, count: u8) -> [u64; 2] {
    let whole = Quota::new("1000/s".parse().unwrap(), burst).unwrap();
    let mut random = Random(1);
    let per_second = offered * 10 / (9 + dear);
    let mut requests: Vec<_> = (0..60 * per_second)
        .map(|_| {
            let at = Duration::from_micros(random.below(60_000_000));
            let cost = if random.below(10) == 0 { dear } else { 1 };
            (START.saturating_add(at), Cost::new(cost))
        })
        .collect();
    requests.sort_by_key(|(at, _)| *at);
    let sum = |admits: &mut dyn FnMut(Cost, Timestamp) -> bool| -> u64 {
        let admitted = requests.iter().filter(|(at, cost)| admits(*cost, *at));
        admitted.map(|(_, cost)| cost.units()).sum()
    };
    let mut state = None;
    let exact = sum(&mut |cost, now| is_admitted(&whole, &mut state, cost, now));
    [true, false].map(|again| {
        let mut sharded = Sharded::new(&whole, count, again);
        let admitted = sum(&mut |cost, now| sharded.check(cost, now));
        exact.saturating_sub(admitted) * 1_000 / exact
    })
}

#[test]
fn what_shards_leave_unspent_is_what_the_table_says() {
    for count in [2, 4, 16] {
        for offered in [2_000, 4_000] {
            assert!(less(100, offered, 1, count)[0] <= 1, "{offered}/s in {count} shards");
        }
        assert!(less(1_000, 1_000, 1, count)[0] <= 1);
    }
    let [with, without] = less(100, 1_000, 1, 16);
    assert!((20..=40).contains(&with) && (60..=100).contains(&without), "{with} {without}");
    let [with, without] = less(100, 1_000, 5, 16);
    assert!((100..=180).contains(&with) && without > with, "{with} {without}");
    assert!(less(1_000, 1_000, 5, 16)[0] <= 10);
}
