//! Measures how much less a bucket in shards admits than a whole one, for `docs/algorithms.md`.
//!
//! `cargo run --release -p tollgate-testkit --example cost_of_shards` prints the table. It draws all
//! times, costs and shards from one seed, so it prints the same in every run.
//!
//! The quota is 1,000/s. Every load is asked of a whole bucket and of one in shards, at the same
//! instants and with the same costs; a figure is by how much the second admits less, in per cent.

#![allow(clippy::print_stdout, reason = "it talks to its user")]

use std::error::Error;
use std::time::Duration;

use tollgate_core::{
    Change, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Rate, ShardTerms, State, Timestamp,
};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// The rate of the quota, in units per second.
const RATE: u64 = 1_000;

/// How long a load lasts, and how much of its start is not counted: the whole bucket begins full as
/// the shards do, and that is no loss.
const SECONDS: u64 = 60;

const SHARDS: [u8; 3] = [2, 4, 16];

/// A load: what is offered in units per second, over all and at its height, and what a request costs.
struct Load {
    name: &'static str,
    offered: u64,
    /// Of each second only the first so many milliseconds have requests.
    busy_ms: u64,
    /// One request in ten costs so much, the others cost 1.
    dear: u64,
}

const LOADS: [Load; 8] = [
    Load { name: "half of the rate", offered: 500, busy_ms: 1_000, dear: 1 },
    Load { name: "nine tenths", offered: 900, busy_ms: 1_000, dear: 1 },
    Load { name: "the rate", offered: 1_000, busy_ms: 1_000, dear: 1 },
    Load { name: "twice the rate", offered: 2_000, busy_ms: 1_000, dear: 1 },
    Load { name: "ten times the rate", offered: 10_000, busy_ms: 1_000, dear: 1 },
    Load {
        name: "the rate, a tenth of the requests cost 5",
        offered: 1_000,
        busy_ms: 1_000,
        dear: 5,
    },
    Load { name: "twice the rate, the same", offered: 2_000, busy_ms: 1_000, dear: 5 },
    Load { name: "the rate, within 200 ms of each second", offered: 1_000, busy_ms: 200, dear: 1 },
];

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

impl Load {
    /// When requests come and what they cost, in order.
    fn requests(&self) -> Vec<(Timestamp, Cost)> {
        let mut random = Random(1);
        let cost_of_ten = 9 + self.dear;
        let count = self.offered * 10 / cost_of_ten;
        let mut requests = Vec::new();
        for second in 0..SECONDS {
            let mut times: Vec<u64> =
                (0..count).map(|_| random.below(self.busy_ms * 1_000)).collect();
            times.sort_unstable();
            for micros in times {
                let is_dear = random.below(10) == 0;
                let at = Duration::from_micros(second * 1_000_000 + micros);
                let cost = if is_dear { self.dear } else { 1 };
                requests.push((START.saturating_add(at), Cost::new(cost)));
            }
        }
        requests
    }
}

/// Asks one bucket.
fn is_admitted(quota: &Quota, state: &mut Option<State>, cost: Cost, now: Timestamp) -> bool {
    let charge = Charge::new("key", quota, cost);
    let (decision, change): (_, Change) =
        charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
    change.apply(state);
    decision.is_allow()
}

/// What a whole bucket admits, in units.
fn whole(quota: &Quota, requests: &[(Timestamp, Cost)]) -> u64 {
    let mut state = None;
    let admitted = requests.iter().filter(|(at, cost)| is_admitted(quota, &mut state, *cost, *at));
    admitted.map(|(_, cost)| cost.units()).sum()
}

/// What a bucket in shards admits, in units, with or without a second shard after a denial.
fn sharded(terms: &ShardTerms, requests: &[(Timestamp, Cost)], again: bool) -> u64 {
    let mut random = Random(2);
    let mut states = vec![None; terms.count()];
    let mut admitted = 0;
    for (at, cost) in requests {
        let Some(first) = terms.first(*cost, random.draw()) else { continue };
        let mut asks =
            |shard: usize| is_admitted(terms.quota(shard), &mut states[shard], *cost, *at);
        let mut is_allowed = asks(first);
        if !is_allowed
            && again
            && let Some(second) = terms.second(first, *cost, random.draw())
        {
            is_allowed = asks(second);
        }
        if is_allowed {
            admitted += cost.units();
        }
    }
    admitted
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("| burst | load | {} |", SHARDS.map(|count| format!("{count} shards")).join(" | "));
    println!("| --- | --- | {} |", SHARDS.map(|_| "---").join(" | "));
    for burst in [100, 1_000] {
        let quota = Quota::new(Rate::per_second(RATE)?, burst)?;
        for load in &LOADS {
            let requests = load.requests();
            let exact = whole(&quota, &requests);
            let mut cells = Vec::new();
            for count in SHARDS {
                let terms = ShardTerms::of(&quota, count.try_into()?)?;
                let less = |again| {
                    let admitted = sharded(&terms, &requests, again);
                    100.0 * (1.0 - admitted as f64 / exact as f64)
                };
                cells.push(format!("{:.1} ({:.1})", less(true), less(false)));
            }
            println!("| {burst} | {} | {} |", load.name, cells.join(" | "));
        }
    }
    println!("\nIn brackets: without the second shard.");
    Ok(())
}
