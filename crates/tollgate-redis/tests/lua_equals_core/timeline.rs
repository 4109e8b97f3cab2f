//! Random timelines.

use std::num::NonZeroU16;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Charge, Cost, Decisions, Operation, Quota, Rate, Ticket, Timestamp,
};

use crate::random::Random;
use crate::twins::{Charged, Twin, Twins};

pub(crate) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

const BUCKET_RATES: [&str; 14] = [
    "1/s",
    "3/s",
    "100/s",
    "700/min",
    "5000/hour",
    "1/day",
    "5/7us",
    "1/30day",
    "1/366day",
    "999999937/s",
    "1000000000/s",
    "2591999999999937/30day",
    "1/2591999999999us",
    "1000003/1000033us",
];

const BURSTS: [u64; 8] = [1, 2, 5, 100, 3_474, 1_000_003, 123_456_789, Quota::BURST_MAX];

const WINDOW_RATES: [&str; 10] = [
    "1/s",
    "5/s",
    "10/s",
    "20/min",
    "3/7us",
    "100/hour",
    "2147483647/day",
    "50/366day",
    "7/1000003us",
    "12/90s",
];

const LOG_RATES: [&str; 8] =
    ["1/s", "5/s", "7/s", "3/7us", "20/min", "10000/day", "50/366day", "7/1000003us"];

const CELLS: [u16; 6] = [1, 2, 7, 10, 20, 100];

const LEASES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_micros(1_234_567),
    Duration::from_secs(1),
    Duration::from_secs(30),
    Quota::LEASE_TTL_MAX,
];

const SLOTS: [u64; 6] = [1, 2, 3, 5, 10, 100];

/// Algorithms that share a form of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Buckets,
    Windows,
    Cells,
    Slots,
    /// Any of them, and another one when the quota changes.
    Mixed,
}

pub(crate) fn random_quota(random: &mut Random, family: Family) -> Quota {
    loop {
        let quota = match family {
            Family::Buckets => {
                let make = random.of(&[Quota::new, Quota::leaky_bucket]);
                make(random.of(&BUCKET_RATES).parse().unwrap(), random.of(&BURSTS))
            }
            Family::Windows => Quota::fixed_window(random.of(&WINDOW_RATES).parse().unwrap()),
            Family::Cells if random.below(2) == 0 => {
                Quota::sliding_log(random.of(&LOG_RATES).parse().unwrap())
            }
            Family::Cells => {
                let cells = NonZeroU16::new(random.of(&CELLS)).unwrap();
                Quota::sliding_window(random.of(&WINDOW_RATES).parse().unwrap(), cells)
            }
            Family::Slots => Quota::concurrency(random.of(&SLOTS), random.of(&LEASES)),
            Family::Mixed => {
                let families = [Family::Buckets, Family::Windows, Family::Cells, Family::Slots];
                let family = random.of(&families);
                return random_quota(random, family);
            }
        };
        // More cells than microseconds, a burst that cannot be counted: not every pair is a quota.
        if let Ok(quota) = quota {
            return quota;
        }
    }
}

fn random_cost(random: &mut Random, twin: &Twin, now: Timestamp) -> Cost {
    let burst = u64::from(twin.quota.burst());
    let look = Charge::new(&twin.key, &twin.quota, Cost::ZERO);
    let left = look.decide(twin.state.as_ref(), Duration::ZERO, now).0.remaining();
    let is_log = twin.quota.algorithm() == Algorithm::SlidingLog;
    let in_flight = matches!(twin.quota.algorithm(), Algorithm::Concurrency { .. });
    Cost::new(match random.below(12) {
        0 => 0,
        1..=4 => 1,
        5 => u64::from(left),
        6 => u64::from(left) + 1,
        7 => burst,
        8 => burst + 1,
        9 => random.of(&[(1 << 53) - 1, 1 << 40, burst * 2]),
        _ if in_flight => random.up_to(burst.min(40)),
        _ if is_log => random.up_to(burst.min(4)),
        _ => random.up_to(burst),
    })
}

/// Where time goes next: stands, creeps, jumps to where a denial ends or nothing counts any more, or
/// steps back within the skew, just beyond it, and far.
fn random_time(
    random: &mut Random,
    now: Timestamp,
    last: &Decisions,
    quota: &Quota,
    max_clock_skew: Duration,
) -> Timestamp {
    let micros = Duration::from_micros;
    let forward = |duration| now.saturating_add(duration);
    let back = |duration: Duration| now.saturating_sub(duration);
    let retry_after = last.iter().filter_map(|d| d.retry_after()).max().unwrap_or_default();
    let reset_after = last.iter().map(|d| d.reset_after()).max().unwrap_or_default();
    match random.below(18) {
        0..=2 => now,
        3 => forward(micros(1)),
        4 => forward(micros(random.up_to(2 * u64::from(quota.tick_us())))),
        5 => forward(micros(random.up_to(10_000_000))),
        6 => forward(retry_after),
        7 => forward(retry_after.saturating_sub(micros(1))),
        8 => forward(reset_after),
        9 => forward(reset_after.saturating_sub(micros(1))),
        10 | 11 => forward(quota.fill_time() / u32::try_from(1 + random.below(50)).unwrap()),
        12 => back(micros(1)),
        13 => back(max_clock_skew.min(Duration::from_secs(3_600))),
        14 => back(max_clock_skew.saturating_add(micros(1)).min(Duration::from_secs(3_600))),
        15 => back(micros(random.up_to(2_000_000))),
        16 if random.below(4) == 0 => back(micros(random.up_to(1 << 50))),
        17 if random.below(4) == 0 => random.of(&[Timestamp::EPOCH, START, Timestamp::MAX]),
        _ => forward(quota.fill_time() / 1_000),
    }
}

/// Only who tolerates any skew sees from one end of time to the other, where the end of a window is
/// further away than a double can tell.
fn latest(max_clock_skew: Duration) -> Timestamp {
    let is_far = max_clock_skew == Duration::MAX;
    Timestamp::MAX.saturating_sub(if is_far { 2 * Rate::PERIOD_MAX } else { Duration::ZERO })
}

fn random_operation(random: &mut Random) -> Operation {
    match random.below(17) {
        0 => Operation::Look,
        1 => Operation::Renew,
        2 => Operation::Release,
        3 | 4 => Operation::Refund,
        5 | 6 => Operation::Settle,
        7 | 8 => Operation::Reserve {
            ttl: random.of(&[
                Duration::ZERO,
                Duration::from_nanos(1_500),
                Duration::from_secs(1),
                Duration::from_secs(600),
                Duration::MAX,
            ]),
        },
        9 => Operation::Take,
        _ => Operation::Spend,
    }
}

/// Runs one timeline on buckets of its own, short enough that no key of it expires meanwhile.
pub(crate) async fn run(twins: &mut Twins, family: Family, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut buckets: Vec<Twin> = (0..5)
        .map(|index| {
            let key = format!("{family:?}:{seed}:key={index}");
            Twin::new(key, random_quota(&mut random, family))
        })
        .collect();
    let mut now = START;
    let mut last = Decisions::new();
    for step in 0..steps {
        let changed = random.below(buckets.len());
        if random.below(10) == 0 {
            buckets[changed].quota = random_quota(&mut random, family);
        }
        let quota = buckets[changed].quota;
        now = random_time(&mut random, now, &last, &quota, twins.max_clock_skew)
            .min(latest(twins.max_clock_skew));
        let operation = random_operation(&mut random);
        let first = random.below(buckets.len());
        let charged: Vec<_> = (0..1 + random.below(4))
            .map(|offset| {
                let index = (first + offset) % buckets.len();
                let cost = random_cost(&mut random, &buckets[index], now);
                let ticket = match random.below(5) {
                    0 => None,
                    number => Some(Ticket::new(number as u128)),
                };
                Charged { index, cost, shadow: random.below(4) == 0, ticket }
            })
            .collect();
        let context = format!("{family:?}, seed {seed}, step {step}");
        last = twins.apply(operation, &mut buckets, &charged, now, &context).await;
    }
}
