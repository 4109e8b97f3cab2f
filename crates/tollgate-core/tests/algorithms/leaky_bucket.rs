//! The leaky bucket: what leaves it is evenly spaced, and nobody waits longer than a queue's length.

use proptest::prelude::*;
use tollgate_core::Quota;

use crate::cases;
use crate::run::Run;
use crate::strategies::{forward, leaky_buckets, sizes, starts, steps};

/// The microseconds by which a wait is rounded up: less than a tick, and nothing if every tick
/// drains a whole part of a unit.
fn rounding_us(quota: &Quota) -> u128 {
    let is_exact = quota.units_per_tick() == 1 && quota.tick_us() == 1;
    if is_exact { 0 } else { u128::from(quota.tick_us()) }
}

/// `units / rate` in microseconds, times the units of the rate so that it is whole.
fn drained(quota: &Quota, units: u64) -> u128 {
    u128::from(units) * quota.rate().period().as_micros()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn each_request_starts_at_least_its_cost_over_the_rate_before_the_next(
        quota in leaky_buckets(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        let per_period = u128::from(quota.rate().units());
        let mut last: Option<(u128, u64)> = None;
        for (moved, size) in steps {
            run.advance(moved);
            let cost = run.cost(size);
            let decision = run.check(cost).0;
            if decision.is_deny() || cost.is_zero() {
                continue;
            }
            let starts_us = u128::from(run.now.as_micros()) + decision.delay().as_micros();
            if let Some((before_us, units)) = last {
                prop_assert!(starts_us >= before_us);
                let gap = (starts_us - before_us + rounding_us(&quota)) * per_period;
                prop_assert!(
                    gap >= drained(&quota, units),
                    "{}us after {} units under {}", starts_us - before_us, units, quota
                );
            }
            last = Some((starts_us, cost.units()));
        }
    }

    #[test]
    fn no_delay_exceeds_what_the_others_in_a_full_queue_take_to_drain(
        quota in leaky_buckets(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        let per_period = u128::from(quota.rate().units());
        for (moved, size) in steps {
            run.advance(moved);
            let cost = run.cost(size);
            let decision = run.check(cost).0;
            if decision.is_deny() {
                prop_assert!(decision.delay().is_zero());
                continue;
            }
            let delay_us = decision.delay().as_micros();
            let others = u64::from(quota.burst()) - cost.units();
            prop_assert!(
                delay_us.saturating_sub(rounding_us(&quota)) * per_period <= drained(&quota, others),
                "{}us for {} units under {}", delay_us, cost, quota
            );
        }
    }

    #[test]
    fn a_request_that_finds_the_queue_empty_goes_on_at_once_and_no_other_does(
        quota in leaky_buckets(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, size) in steps {
            run.advance(moved);
            let is_empty = run.peek().reset_after().is_zero();
            let decision = run.check(run.cost(size)).0;
            if decision.is_allow() {
                prop_assert_eq!(decision.delay().is_zero(), is_empty);
            }
        }
    }
}
