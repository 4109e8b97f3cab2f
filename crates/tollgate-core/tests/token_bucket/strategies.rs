//! Random quotas and timelines, with the edges in reach of chance.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Quota, Rate, Timestamp};

/// Numbers that share no factor with a second, a day or a power of ten.
const PRIMES: [u64; 8] =
    [3, 7, 61, 999_983, 999_999_937, 2_147_483_647, 999_999_999_989, 2_591_999_999_993];

/// How time moves before a step.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    Stay,
    Micro,
    /// So many ticks, and a microsecond less, none or one more.
    Ticks(u64, i8),
    /// So many thousandths of the time that refills one unit.
    Unit(u64),
    /// So many thousandths of the time that fills the bucket.
    Fill(u64),
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
    SetQuota(Quota),
}

/// Numbers from 1 to `most`, all magnitudes alike.
fn magnitudes(most: u64) -> impl Strategy<Value = u64> {
    (0..=most.ilog2()).prop_flat_map(move |bits| {
        let low = 1_u64 << bits;
        low..=low.saturating_mul(2).saturating_sub(1).min(most)
    })
}

fn quota(units: u64, period_us: u64, burst: u64) -> Option<Quota> {
    let rate = Rate::new(units, Duration::from_micros(period_us)).ok()?;
    Quota::new(rate, burst).ok()
}

/// Quotas over the whole range: everyday ones, coarse ticks, primes, and any.
pub fn quotas() -> impl Strategy<Value = Quota> {
    let period_max = u64::try_from(Rate::PERIOD_MAX.as_micros()).unwrap();
    let everyday = (
        1_u64..=1_000,
        prop::sample::select(vec![1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000]),
        1_u64..=50,
    );
    let coarse = (magnitudes(1_000), 1_u64..=48 * 86_400, magnitudes(Quota::BURST_MAX))
        .prop_map(|(units, seconds, burst)| (units, seconds * 1_000_000, burst));
    let primes = (
        prop::sample::select(PRIMES.to_vec()),
        prop::sample::select(PRIMES.to_vec()),
        magnitudes(Quota::BURST_MAX),
    );
    let any = magnitudes(period_max).prop_flat_map(|period_us| {
        (magnitudes(period_us * 1_000), Just(period_us), magnitudes(Quota::BURST_MAX))
    });
    prop_oneof![3 => everyday.boxed(), 2 => coarse.boxed(), 1 => primes.boxed(), 2 => any.boxed()]
        .prop_filter_map("not representable", |(units, period_us, burst)| {
            quota(units, period_us, burst)
        })
}

/// Instants from which timelines start: today, and the ends of time.
pub fn starts() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => Just(Timestamp::from_micros(1_700_000_000_000_000)),
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
        2 => (0_u64..=3, -1_i8..=1).prop_map(|(ticks, edge)| Move::Ticks(ticks, edge)),
        3 => (0_u64..=3_000).prop_map(Move::Unit),
        2 => (0_u64..=2_500).prop_map(Move::Fill),
        3 => (-1_i8..=1).prop_map(Move::ToRetry),
        3 => (-1_i8..=1).prop_map(Move::ToReset),
    ]
}

/// Moves that go back, by less and by more than a second.
pub fn backward() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (1_u64..=1_000_000).prop_map(Move::Back),
        1 => Just(Move::Back(1_000_000)),
        1 => Just(Move::Back(1_000_001)),
        1 => magnitudes(1 << 53).prop_map(Move::Back),
    ]
}

/// Moves in both directions, mostly forward.
pub fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![3 => forward(), 1 => backward()]
}

pub fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        1 => Just(Size::Zero),
        4 => Just(Size::One),
        3 => (0_u64..=1_000).prop_map(Size::Share),
        3 => Just(Size::Remaining),
        3 => Just(Size::RemainingAndOne),
        1 => Just(Size::Burst),
        1 => Just(Size::BurstAndOne),
    ]
}

/// Checks, and now and then a change of the quota.
pub fn checks_and_quotas() -> impl Strategy<Value = Action> {
    prop_oneof![6 => sizes().prop_map(Action::Check), 1 => quotas().prop_map(Action::SetQuota)]
}

/// Checks, and now and then a refund or a change of the quota.
pub fn actions() -> impl Strategy<Value = Action> {
    prop_oneof![6 => checks_and_quotas(), 1 => sizes().prop_map(Action::Refund)]
}

/// Timelines of thirty steps on average: how time moves, then what is done.
pub fn steps<A: std::fmt::Debug>(
    moves: impl Strategy<Value = Move>,
    actions: impl Strategy<Value = A>,
) -> impl Strategy<Value = Vec<(Move, A)>> {
    vec((moves, actions), 1..60)
}
