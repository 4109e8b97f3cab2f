//! Random quotas of every algorithm and random timelines, with the edges in reach of chance.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Algorithm, Operation, Quota, Rate, Ticket, Timestamp};

/// How time moves before a step.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    Stay,
    Micro,
    /// So many thousandths of the time after which nothing counts.
    Fill(u64),
    /// To the next multiple of a cell, and a microsecond less, none or one more.
    ToCell(i8),
    /// The `retry_after` of the last denial, and a microsecond less, none or one more.
    ToRetry(i8),
    /// The `reset_after` of the last answer, and a microsecond less, none or one more.
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
    Apply(Operation, Option<Ticket>, Size),
    SetQuota(Quota),
}

/// Numbers from 1 to `most`, all magnitudes alike.
fn magnitudes(most: u64) -> impl Strategy<Value = u64> {
    (0..=most.ilog2()).prop_flat_map(move |bits| {
        let low = 1_u64 << bits;
        low..=low.saturating_mul(2).saturating_sub(1).min(most)
    })
}

/// Rates of everyday, few units in an odd period, and any.
fn rates() -> impl Strategy<Value = Rate> {
    let period_max = u64::try_from(Rate::PERIOD_MAX.as_micros()).unwrap();
    let everyday = (
        1_u64..=50,
        prop::sample::select(vec![1_000, 1_000_000, 10_000_000, 60_000_000, 86_400_000_000]),
    );
    let odd = (1_u64..=9, magnitudes(5_000_000));
    let any = magnitudes(period_max)
        .prop_flat_map(|period_us| (magnitudes(period_us * 1_000), Just(period_us)));
    prop_oneof![4 => everyday.boxed(), 2 => odd.boxed(), 1 => any.boxed()]
        .prop_filter_map("not a rate", |(units, period_us)| {
            Rate::new(units, Duration::from_micros(period_us)).ok()
        })
}

fn bursts() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1_u64..=50, 1 => magnitudes(Quota::BURST_MAX)]
}

fn cells() -> impl Strategy<Value = NonZeroU16> {
    prop_oneof![
        Just(Algorithm::CELLS_DEFAULT),
        (1..=Quota::CELLS_MAX)
            .prop_map(|cells| { NonZeroU16::new(cells).unwrap_or(NonZeroU16::MIN) })
    ]
}

fn leases() -> impl Strategy<Value = Quota> {
    let ttl_us = prop_oneof![
        Just(30_000_000),
        1_000_u64..=5_000_000,
        magnitudes(86_399_999_000).prop_map(|us| us + 1_000),
    ];
    let slots = prop_oneof![4 => 1_u64..=8, 1 => magnitudes(Quota::SLOTS_MAX)];
    (slots, ttl_us).prop_filter_map("not a lease", |(slots, ttl_us)| {
        Quota::concurrency(slots, Duration::from_micros(ttl_us)).ok()
    })
}

/// Quotas of one algorithm, as the configuration names it.
pub fn quotas_of(algorithm: &'static str) -> BoxedStrategy<Quota> {
    let made = match algorithm {
        "token_bucket" => {
            (rates(), bursts()).prop_map(|(rate, burst)| Quota::new(rate, burst)).boxed()
        }
        "leaky_bucket" => {
            (rates(), bursts()).prop_map(|(rate, burst)| Quota::leaky_bucket(rate, burst)).boxed()
        }
        "fixed_window" => rates().prop_map(Quota::fixed_window).boxed(),
        "sliding_window" => {
            (rates(), cells()).prop_map(|(rate, cells)| Quota::sliding_window(rate, cells)).boxed()
        }
        "sliding_log" => rates().prop_map(Quota::sliding_log).boxed(),
        "concurrency" => leases().prop_map(Ok).boxed(),
        other => panic!("no quotas of {other}"),
    };
    made.prop_filter_map("not representable", Result::ok).boxed()
}

/// Quotas of any algorithm.
fn quotas() -> impl Strategy<Value = Quota> {
    prop::sample::select(super::ALGORITHMS.to_vec()).prop_flat_map(quotas_of)
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

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => Just(Move::Stay),
        2 => Just(Move::Micro),
        5 => (0_u64..=300).prop_map(Move::Fill),
        1 => (0_u64..=2_500).prop_map(Move::Fill),
        2 => (-1_i8..=1).prop_map(Move::ToCell),
        3 => (-1_i8..=1).prop_map(Move::ToRetry),
        2 => (-1_i8..=1).prop_map(Move::ToReset),
        1 => (1_u64..=1_000_000).prop_map(Move::Back),
        1 => prop::sample::select(vec![1_000_000, 1_000_001]).prop_map(Move::Back),
        1 => magnitudes(1 << 53).prop_map(Move::Back),
    ]
}

fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        1 => Just(Size::Zero),
        4 => Just(Size::One),
        3 => (0_u64..=1_000).prop_map(Size::Share),
        2 => Just(Size::Remaining),
        2 => Just(Size::RemainingAndOne),
        1 => Just(Size::Burst),
        1 => Just(Size::BurstAndOne),
    ]
}

fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => Just(Operation::Spend),
        1 => Just(Operation::Look),
        2 => Just(Operation::Refund),
        1 => Just(Operation::Renew),
        2 => Just(Operation::Release),
        1 => magnitudes(10_000_000)
            .prop_map(|us| Operation::Reserve { ttl: Duration::from_micros(us) }),
        1 => Just(Operation::Settle),
    ]
}

/// Applied operations, under few tickets so that they meet, and now and then a change of the quota:
/// mostly to one of the same algorithm.
fn actions(algorithm: &'static str) -> impl Strategy<Value = Action> {
    let ticket = prop::option::weighted(0.8, (0_u128..4).prop_map(Ticket::new));
    prop_oneof![
        20 => (operations(), ticket, sizes())
            .prop_map(|(operation, ticket, size)| Action::Apply(operation, ticket, size)),
        2 => quotas_of(algorithm).prop_map(Action::SetQuota),
        1 => quotas().prop_map(Action::SetQuota),
    ]
}

/// Timelines of forty steps on average: how time moves, then what is done.
pub fn steps(algorithm: &'static str) -> impl Strategy<Value = Vec<(Move, Action)>> {
    vec((moves(), actions(algorithm)), 1..80)
}
