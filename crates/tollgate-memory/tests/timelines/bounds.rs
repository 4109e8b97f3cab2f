//! A full store and a clock that steps far back: no order of evictions adds units.

use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{Algorithm, Charge, Cost, Operation, Quota, Timestamp};
use tollgate_memory::MemoryStore;

use crate::play::moved;
use crate::steps::{Asked, KEYS, Step, far, own_quota, steps};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// What was admitted: the units, and how much time had passed, the steps back left out.
type Admitted = Vec<(u64, u128)>;

/// The most units that may be admitted while `passed_us` pass, or `None` if the algorithm gives no
/// such bound.
fn most(quota: &Quota, passed_us: u128) -> Option<u64> {
    let (burst, period_us) = (u64::from(quota.burst()), quota.rate().period().as_micros());
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let refill = u128::from(quota.rate().units()) * passed_us / period_us;
            Some(burst + u64::try_from(refill).unwrap_or(u64::MAX - burst))
        }
        Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog if passed_us < period_us => {
            Some(burst)
        }
        _ => None,
    }
}

fn assert_bounded(quota: &Quota, admitted: &Admitted) -> Result<(), TestCaseError> {
    for first in 0..admitted.len() {
        let mut units = 0;
        for (cost, passed_us) in &admitted[first..] {
            units += cost;
            let elapsed_us = passed_us - admitted[first].1;
            let Some(most) = most(quota, elapsed_us) else { break };
            prop_assert!(units <= most, "{units} units in {elapsed_us}us under {quota}");
        }
    }
    Ok(())
}

/// Spends one unit after the other, and returns how often the store was full.
fn play(steps: &[Step], keys_max: usize) -> Result<usize, TestCaseError> {
    let store = MemoryStore::builder().keys_max(keys_max).build();
    let keys: Vec<String> = (0..KEYS).map(|index| format!("key {index}")).collect();
    let mut admitted: Vec<(Option<Quota>, Admitted)> = vec![(None, Vec::new()); KEYS];
    let (mut now, mut passed, mut full) = (START, Duration::ZERO, 0);
    for step in steps {
        let before = now;
        now = moved(now, step.pause_us);
        passed += now.saturating_since(before);
        for Asked { key, quota, .. } in &step.charges {
            let charge = Charge::new(&keys[*key], quota, Cost::ONE);
            match store.decide_one(Operation::Spend, &charge, now) {
                Ok(decision) if decision.is_allow() => {
                    admitted[*key].0 = Some(*quota);
                    admitted[*key].1.push((1, passed.as_micros()));
                }
                Ok(_) => {}
                Err(error) => {
                    prop_assert!(error.is_full(), "{}", error);
                    full += 1;
                }
            }
        }
    }
    for (quota, admitted) in admitted {
        quota.map_or(Ok(()), |quota| assert_bounded(&quota, &admitted))?;
    }
    Ok(full)
}

proptest! {
    #![proptest_config(crate::cases(300))]

    #[test]
    fn g4_a_full_store_whose_clock_steps_back_admits_no_more_than_the_time_that_passes_allows(
        steps in steps(own_quota(), far()),
        keys_max in 1_usize..5,
    ) {
        play(&steps, keys_max)?;
    }
}
