//! Random steps: what is asked of which keys, under which quotas, and when.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tollgate_core::{Algorithm, Operation, Quota};

/// One request, and the time that passes before it.
#[derive(Clone, Debug)]
pub struct Step {
    pub operation: Operation,
    pub charges: Vec<Asked>,
    pub pause_us: i64,
    /// A key that is reset before the request.
    pub reset: Option<usize>,
}

/// What is asked of one key.
#[derive(Clone, Debug)]
pub struct Asked {
    pub key: usize,
    pub quota: Quota,
    pub cost: u64,
    pub shadow: bool,
    pub ticket: Option<u128>,
}

/// Quotas of every algorithm, each of which is the own quota of one key: short and long fill
/// times, a coarse tick, rates that divide nothing, cells of several widths.
pub fn quotas() -> Vec<Quota> {
    let rate = |rate: &str| rate.parse().unwrap();
    let cells = |cells| NonZeroU16::new(cells).unwrap();
    vec![
        Quota::new(rate("1/s"), 3).unwrap(),
        Quota::fixed_window(rate("3/7s")).unwrap(),
        Quota::sliding_window(rate("4/3s"), cells(7)).unwrap(),
        Quota::sliding_log(rate("3/2s")).unwrap(),
        Quota::leaky_bucket(rate("2/s"), 4).unwrap(),
        Quota::concurrency(3, Duration::from_secs(5)).unwrap(),
        Quota::new(rate("1/30day"), 1 << 30).unwrap(),
        Quota::sliding_window(rate("2/hour"), Algorithm::CELLS_DEFAULT).unwrap(),
        Quota::concurrency(2, Duration::from_secs(60)).unwrap(),
        // These belong to no key, but a quota may change to them.
        Quota::new(rate("7/min"), 5).unwrap(),
        Quota::fixed_window(rate("2/min")).unwrap(),
        Quota::sliding_window(rate("4/3s"), cells(2)).unwrap(),
        Quota::sliding_log(rate("2/10s")).unwrap(),
        Quota::leaky_bucket(rate("1/3s"), 2).unwrap(),
        Quota::concurrency(2, Duration::from_millis(500)).unwrap(),
    ]
}

/// How many keys there are.
pub const KEYS: usize = 9;

/// The index of a quota, for the index of a key.
type QuotaOf = BoxedStrategy<Option<usize>>;

/// Each key keeps the quota of its own.
pub fn own_quota() -> QuotaOf {
    Just(None).boxed()
}

/// Each request may come with any quota.
pub fn any_quota() -> QuotaOf {
    prop_oneof![2 => Just(None), 1 => (0..quotas().len()).prop_map(Some)].boxed()
}

pub fn steps(
    quota: QuotaOf,
    pause_us: impl Strategy<Value = i64>,
) -> impl Strategy<Value = Vec<Step>> {
    let ttl = prop::sample::select(vec![1, 700, 3_000, 3_600_000]).prop_map(Duration::from_millis);
    let operation = prop_oneof![
        8 => Just(Operation::Spend),
        1 => Just(Operation::Look),
        2 => Just(Operation::Refund),
        3 => Just(Operation::Renew),
        2 => Just(Operation::Release),
        3 => ttl.prop_map(|ttl| Operation::Reserve { ttl }),
        3 => Just(Operation::Settle),
    ];
    let quotas = quotas();
    let charge = (
        (0..KEYS, quota),
        prop_oneof![4 => Just(1_u64), 1 => 0_u64..6],
        prop::bool::weighted(0.2),
        option::weighted(0.8, 0_u128..2),
    )
        .prop_map(move |((key, quota), cost, shadow, ticket)| {
            let quota = quotas[quota.unwrap_or(key)];
            Asked { key, quota, cost, shadow, ticket }
        });
    let charges = vec(charge, 1..4).prop_map(|mut charges| {
        charges.sort_by_key(|asked| asked.key);
        charges.dedup_by_key(|asked| asked.key);
        charges
    });
    let step = (operation, charges, pause_us, option::weighted(0.05, 0..KEYS)).prop_map(
        |(operation, charges, pause_us, reset)| Step { operation, charges, pause_us, reset },
    );
    vec(step, 1..80)
}

/// The same steps, most of which spend from several of the buckets that are counted by level.
pub fn of_levels(steps: impl Strategy<Value = Vec<Step>>) -> impl Strategy<Value = Vec<Step>> {
    const BY_LEVEL: [usize; 3] = [0, 4, 6];
    let quotas = quotas();
    steps.prop_map(move |mut steps| {
        for step in &mut steps {
            if !matches!(step.operation, Operation::Look | Operation::Refund) {
                step.operation = Operation::Spend;
            }
            for asked in &mut step.charges {
                asked.key = BY_LEVEL[asked.key % BY_LEVEL.len()];
                asked.quota = quotas[asked.key];
            }
            // In any order: the locks have one of their own.
            step.charges.sort_by_key(|asked| (asked.key, asked.cost));
            step.charges.dedup_by_key(|asked| asked.key);
            if step.pause_us % 2 == 0 {
                step.charges.reverse();
            }
        }
        steps
    })
}

/// Time that never goes back.
pub fn forward() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        8 => Just(0_i64),
        8 => 0_i64..1_000_000,
        3 => (0_i64..10).prop_map(|seconds| seconds * 1_000_000),
        1 => 0_i64..8_000_000_000,
    ]
}

/// Time that goes back by at most a second.
pub fn jitter() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![2 => forward(), 1 => -1_000_000_i64..0]
}

/// Time that goes back by any amount, to just within the skew, and to just beyond it.
pub fn far() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        6 => forward(),
        2 => -1_000_000_i64..0,
        1 => -1_000_002_i64..-999_998,
        2 => -20_000_000_i64..0,
        1 => -200_000_000_000_i64..0,
    ]
}
