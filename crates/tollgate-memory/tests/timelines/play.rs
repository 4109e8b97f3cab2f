//! A timeline on a store and on the reference.

use std::iter::Sum;
use std::time::Duration;

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::{Algorithm, Charge, Cost, Decision, Operation, Ticket, Timestamp};
use tollgate_memory::MemoryStore;

use crate::reference::Reference;
use crate::steps::{Asked, KEYS, Step};

/// Late enough for every step back.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// How a timeline is played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub keys_max: usize,
    pub max_clock_skew: Duration,
    /// Whether store and reference drop before each step what is full for every clock.
    pub evict_each_step: bool,
}

/// What timelines have reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub full: u64,
    pub evicted: u64,
    pub denied: u64,
    pub settled: u64,
    pub renewed: u64,
    pub repaired: usize,
}

impl Play {
    /// Plays the steps, and compares every answer.
    pub fn run(self, steps: &[Step]) -> Result<Tally, TestCaseError> {
        let keys: Vec<String> = (0..KEYS).map(|index| format!("key {index}")).collect();
        let store = MemoryStore::builder()
            .keys_max(self.keys_max)
            .max_clock_skew(self.max_clock_skew)
            .build();
        let mut reference = Reference::new(self.max_clock_skew);
        let (mut now, mut latest, mut tally) = (START, START, Tally::default());
        for (index, step) in steps.iter().enumerate() {
            now = moved(now, step.pause_us);
            if step.pause_us >= -1_000_000 && !self.evict_each_step {
                // Within the skew of every other clock, not only of the last one.
                now = now.max(latest.saturating_sub(self.max_clock_skew));
            }
            latest = latest.max(now);
            if self.evict_each_step {
                store.evict_full(now);
                reference.evict(now);
            }
            if let Some(key) = step.reset {
                store.forget(&[&keys[key]]);
                reference.reset(&keys[key]);
            }
            let charges = step.charges(&keys);
            let expected = reference.apply(step.operation, &charges, self.keys_max, now);
            let got = match charges.as_slice() {
                // Both doors lead to the same decisions.
                [charge] if index % 2 == 0 => store
                    .decide_one(step.operation, charge, now)
                    .map(|decision| smallvec![decision]),
                charges => store.decide(step.operation, charges, now),
            };
            match (got, expected) {
                (Ok(got), Some(expected)) => {
                    prop_assert_eq!(&got, &expected, "step {}", index);
                    tally.count(step.operation, &charges, &got);
                }
                (Err(error), None) => {
                    prop_assert!(error.is_full(), "step {}: {}", index, error);
                    tally.full += 1;
                }
                (got, expected) => prop_assert!(false, "step {index}: {got:?}, not {expected:?}"),
            }
            prop_assert!(store.len().max(store.records()) <= self.keys_max);
        }
        Ok(Tally { evicted: store.evicted(), repaired: reference.repaired, ..tally })
    }
}

impl Step {
    pub fn charges<'a>(&'a self, keys: &'a [String]) -> Vec<Charge<'a>> {
        let charge = |asked: &'a Asked| Charge {
            ticket: asked.ticket.map(Ticket::new),
            ..Charge::new(&keys[asked.key], &asked.quota, Cost::new(asked.cost))
                .with_shadow(asked.shadow)
        };
        self.charges.iter().map(charge).collect()
    }
}

/// The instant `pause_us` after `now`, or before it.
pub fn moved(now: Timestamp, pause_us: i64) -> Timestamp {
    let pause = Duration::from_micros(pause_us.unsigned_abs());
    if pause_us < 0 { now.saturating_sub(pause) } else { now.saturating_add(pause) }
}

impl Tally {
    fn count(&mut self, operation: Operation, charges: &[Charge<'_>], decisions: &[Decision]) {
        for (charge, decision) in charges.iter().zip(decisions) {
            let is_lease = matches!(charge.quota.algorithm(), Algorithm::Concurrency { .. });
            match operation {
                Operation::Settle => self.settled += u64::from(decision.is_allow()),
                Operation::Renew => self.renewed += u64::from(is_lease && decision.is_allow()),
                _ => self.denied += u64::from(decision.is_deny()),
            }
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, tally| Self {
            full: sum.full + tally.full,
            evicted: sum.evicted + tally.evicted,
            denied: sum.denied + tally.denied,
            settled: sum.settled + tally.settled,
            renewed: sum.renewed + tally.renewed,
            repaired: sum.repaired + tally.repaired,
        })
    }
}
