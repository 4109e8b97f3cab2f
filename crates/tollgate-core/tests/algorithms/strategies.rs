//! Random quotas and timelines, with the edges in reach of chance.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Quota, Rate, Timestamp};

/// How time moves before a step.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    Stay,
    Micro,
    /// So many thousandths of the period.
    Period(u64),
    /// To where the next of so many parts of an aligned period begins, and a microsecond less, none
    /// or one more.
    ToBoundary(u16, i8),
    /// The `retry_after` of the last denial, and a microsecond less, none or one more.
    ToRetry(i8),
    /// The `reset_after` of the last decision, and a microsecond less, none or one more.
    ToReset(i8),
    /// So many microseconds back.
    Back(u64),
}

/// How many units a step is about.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Zero,
    One,
    /// So many thousandths of the burst.
    Share(u64),
    Remaining,
    RemainingAndOne,
    Burst,
    BurstAndOne,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Check(Size),
    Refund(Size),
    /// Ends what the check so many checks ago holds.
    Release(u32),
    SetQuota(Quota),
}

/// Periods from a microsecond to a year: everyday ones, primes and any.
pub fn periods() -> impl Strategy<Value = Duration> {
    let longest = u64::try_from(Rate::PERIOD_MAX.as_micros()).unwrap();
    prop_oneof![
        3 => prop::sample::select(vec![1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
        1 => prop::sample::select(vec![7, 61, 999_983, 999_999_937, 2_591_999_999_993]),
        2 => 1_u64..=200,
        1 => 1_u64..=longest,
    ]
    .prop_map(Duration::from_micros)
}

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1_u64..=12, 1 => 1_u64..=10_000]
}

/// A rate whose units fit its period.
fn rates() -> impl Strategy<Value = Rate> {
    (units(), periods())
        .prop_filter_map("too high", |(units, period)| Rate::new(units, period).ok())
}

pub fn fixed_windows() -> impl Strategy<Value = Quota> {
    rates().prop_map(|rate| Quota::fixed_window(rate).unwrap())
}

pub fn sliding_windows() -> impl Strategy<Value = Quota> {
    let cells = prop_oneof![1 => Just(1), 1 => Just(20), 2 => 1..=Quota::CELLS_MAX];
    (rates(), cells).prop_filter_map("more cells than microseconds", |(rate, cells)| {
        Quota::sliding_window(rate, NonZeroU16::new(cells)?).ok()
    })
}

pub fn sliding_logs() -> impl Strategy<Value = Quota> {
    rates().prop_map(|rate| Quota::sliding_log(rate).unwrap())
}

/// Windows that slide, in cells or by a log: the two share their state.
pub fn sliding() -> impl Strategy<Value = Quota> {
    prop_oneof![2 => sliding_windows(), 1 => sliding_logs()]
}

pub fn leaky_buckets() -> impl Strategy<Value = Quota> {
    let any_burst = prop_oneof![3 => 1_u64..=30, 1 => 1_u64..=Quota::BURST_MAX];
    (rates(), any_burst)
        .prop_filter_map("not representable", |(rate, burst)| Quota::leaky_bucket(rate, burst).ok())
}

pub fn slots() -> impl Strategy<Value = Quota> {
    let ttl = prop_oneof![1 => Just(30_000_000), 2 => 1_000_u64..=86_400_000_000];
    (1_u64..=12, ttl)
        .prop_map(|(slots, ttl)| Quota::concurrency(slots, Duration::from_micros(ttl)).unwrap())
}

/// Quotas of every algorithm but the token bucket, which has tests of its own.
pub fn quotas() -> impl Strategy<Value = Quota> {
    prop_oneof![
        fixed_windows().boxed(),
        sliding_windows().boxed(),
        sliding_logs().boxed(),
        leaky_buckets().boxed(),
        slots().boxed(),
    ]
}

/// Instants from which timelines start that no lease carries to the end of time.
pub fn todays() -> impl Strategy<Value = Timestamp> {
    (0_u64..10_000_000).prop_map(|micros| Timestamp::from_micros(1_700_000_000_000_000 + micros))
}

/// Instants from which timelines start: today, and the ends of time.
pub fn starts() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => todays(),
        1 => Just(Timestamp::EPOCH),
        1 => (0_u64..10_000_000)
            .prop_map(|micros| Timestamp::from_micros(Timestamp::MAX.as_micros() - micros)),
    ]
}

/// Moves that never go back.
pub fn forward() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => Just(Move::Stay),
        2 => Just(Move::Micro),
        3 => (0_u64..=400).prop_map(Move::Period),
        1 => (0_u64..=2_500).prop_map(Move::Period),
        3 => (1_u16..=Quota::CELLS_MAX, -1_i8..=1)
            .prop_map(|(parts, edge)| Move::ToBoundary(parts, edge)),
        3 => (-1_i8..=1).prop_map(Move::ToRetry),
        2 => (-1_i8..=1).prop_map(Move::ToReset),
    ]
}

/// Moves that go back, by less and by more than a second.
pub fn backward() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (1_u64..=1_000_000).prop_map(Move::Back),
        1 => Just(Move::Back(1_000_000)),
        1 => Just(Move::Back(1_000_001)),
        1 => (1_u64..=200_000_000).prop_map(Move::Back),
        1 => (1_u64..=1 << 53).prop_map(Move::Back),
    ]
}

/// Moves in both directions, mostly forward.
pub fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![3 => forward(), 1 => backward()]
}

pub fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        1 => Just(Size::Zero),
        5 => Just(Size::One),
        2 => (0_u64..=1_000).prop_map(Size::Share),
        2 => Just(Size::Remaining),
        3 => Just(Size::RemainingAndOne),
        1 => Just(Size::Burst),
        1 => Just(Size::BurstAndOne),
    ]
}

/// Checks, releases and refunds.
pub fn requests() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => sizes().prop_map(Action::Check),
        1 => sizes().prop_map(Action::Refund),
        2 => (1_u32..6).prop_map(Action::Release),
    ]
}

/// Requests, and now and then a change of the quota.
pub fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![8 => requests(), 1 => quotas().prop_map(Action::SetQuota)]
}

/// Timelines of thirty steps on average: how time moves, then what is done.
pub fn steps<A: std::fmt::Debug>(
    moves: impl Strategy<Value = Move>,
    actions: impl Strategy<Value = A>,
) -> impl Strategy<Value = Vec<(Move, A)>> {
    vec((moves, actions), 1..60)
}
