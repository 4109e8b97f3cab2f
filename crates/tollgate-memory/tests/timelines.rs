//! Random timelines of several keys: the store decides as the pure function does on a plain map.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::HashMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::{
    Charge, Cost, Decisions, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, State, Stored, Timestamp,
    decide_together,
};
use tollgate_memory::MemoryStore;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// The quota of each key: short and long fill times, a coarse tick, a rate that divides nothing.
fn quotas() -> Vec<Quota> {
    [("1/s", 3), ("3/s", 1), ("7/min", 5), ("1000/s", 10), ("1/hour", 2), ("1/30day", 1 << 30)]
        .map(|(rate, burst)| Quota::new(rate.parse().unwrap(), burst).unwrap())
        .into()
}

#[derive(Clone, Debug)]
struct Step {
    operation: Operation,
    /// Keys, which are also the indices of their quotas, and costs.
    charges: Vec<(usize, u64, bool)>,
    pause_us: i64,
}

fn steps(pause_us: impl Strategy<Value = i64> + Clone) -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        6 => Just(Operation::Spend),
        1 => Just(Operation::Look),
        1 => Just(Operation::Refund),
    ];
    let charge = (0_usize..6, 0_u64..5, prop::bool::weighted(0.2));
    let charges = vec(charge, 1..4).prop_map(|mut charges| {
        charges.sort_by_key(|(key, ..)| *key);
        charges.dedup_by_key(|(key, ..)| *key);
        charges
    });
    let step = (operation, charges, pause_us).prop_map(|(operation, charges, pause_us)| Step {
        operation,
        charges,
        pause_us,
    });
    vec(step, 1..80)
}

fn forward() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        3 => Just(0_i64),
        3 => 0_i64..1_000_000,
        2 => (0_i64..10).prop_map(|seconds| seconds * 1_000_000),
        1 => 0_i64..8_000_000_000,
    ]
}

/// A map that never evicts.
#[derive(Default)]
struct Reference {
    buckets: HashMap<String, State>,
}

impl Reference {
    /// Applies a request, unless more than `keys_max` buckets would then be short of full.
    fn apply(
        &mut self,
        operation: Operation,
        charges: &[Charge<'_>],
        quotas: &[Quota],
        keys_max: usize,
        now: Timestamp,
    ) -> Option<Decisions> {
        let before: Vec<_> = charges
            .iter()
            .map(|charge| Stored { state: self.buckets.get(charge.key), record: None })
            .collect();
        let effects = decide_together(operation, charges, &before, MAX_CLOCK_SKEW_DEFAULT, now);
        let decisions = effects.decisions;
        let mut after = self.buckets.clone();
        for (charge, change) in charges.iter().zip(effects.changes) {
            let mut state = after.remove(charge.key);
            change.apply(&mut state);
            after.extend(state.map(|state| (charge.key.to_owned(), state)));
        }
        let is_short = |(key, state): &(&String, &State)| {
            let quota = &quotas[key.parse::<usize>().unwrap()];
            let look = Charge::new(key, quota, Cost::ZERO);
            let (decision, _) = look.decide(Some(state), MAX_CLOCK_SKEW_DEFAULT, now);
            decision.reset_after() > Duration::ZERO
        };
        if after.iter().filter(is_short).count() > keys_max {
            return None;
        }
        self.buckets = after;
        Some(decisions)
    }
}

/// Plays the steps on a store and on the reference, and compares every answer. Returns how many
/// steps found the store full, and how many keys it evicted.
fn play(steps: &[Step], keys_max: usize) -> Result<(usize, u64), TestCaseError> {
    let quotas = quotas();
    let keys: Vec<String> = (0..quotas.len()).map(|index| index.to_string()).collect();
    let store = MemoryStore::builder().keys_max(keys_max).build();
    let mut reference = Reference::default();
    let (mut now_us, mut latest_us, mut full) = (0_i64, 0_i64, 0);
    for (index, step) in steps.iter().enumerate() {
        let earliest = latest_us - i64::try_from(MAX_CLOCK_SKEW_DEFAULT.as_micros()).unwrap();
        now_us = (now_us + step.pause_us).max(earliest).max(0);
        latest_us = latest_us.max(now_us);
        let now = START.saturating_add(Duration::from_micros(now_us.unsigned_abs()));
        let charges: Vec<_> = step
            .charges
            .iter()
            .map(|(key, cost, shadow)| {
                let mut charge = Charge::new(&keys[*key], &quotas[*key], Cost::new(*cost));
                charge.shadow = *shadow;
                charge
            })
            .collect();
        let expected = reference.apply(step.operation, &charges, &quotas, keys_max, now);
        let got = match charges.as_slice() {
            // Both doors lead to the same decisions.
            [charge] if index % 2 == 0 => {
                store.decide_one(step.operation, charge, now).map(|decision| smallvec![decision])
            }
            charges => store.decide(step.operation, charges, now),
        };
        match (got, expected) {
            (Ok(got), Some(expected)) => prop_assert_eq!(got, expected, "step {}", index),
            (Err(error), None) => {
                prop_assert!(error.is_full(), "step {}: {}", index, error);
                full += 1;
            }
            (got, expected) => prop_assert!(false, "step {index}: {got:?}, not {expected:?}"),
        }
        prop_assert!(store.len() <= keys_max);
    }
    Ok((full, store.evicted()))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// With a cap far below the number of keys: a check fails if and only if more than `keys_max`
    /// buckets would be short of full, and is otherwise decided as if nothing were ever evicted.
    #[test]
    fn g5_eviction_at_the_cap_changes_no_decision(
        steps in steps(forward()),
        keys_max in 1_usize..6,
    ) {
        play(&steps, keys_max)?;
    }

    /// With clocks that differ by up to the skew, below the cap.
    #[test]
    fn g8_eviction_below_the_cap_changes_no_decision_under_clock_skew(
        steps in steps(prop_oneof![2 => forward(), 1 => -1_000_000_i64..0]),
    ) {
        play(&steps, 1_000)?;
    }
}

/// The random timelines would prove nothing if they never reached the cap or evicted nothing.
#[test]
fn the_timelines_reach_the_cap_and_evict() {
    let step = |key, pause_us| Step {
        operation: Operation::Spend,
        charges: vec![(key, 1, false)],
        pause_us,
    };
    let steps = [step(0, 0), step(1, 0), step(2, 0), step(2, 400_000), step(2, 700_000)];
    assert_eq!(play(&steps, 2).unwrap(), (1, 1));
}
