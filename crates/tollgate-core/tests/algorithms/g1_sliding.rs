//! G1: no interval of a sliding window's length admits more than the limit, by brute force.

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Algorithm, Cost, Quota};

use crate::cases;
use crate::run::Run;
use crate::strategies::{Move, Size, forward, sizes, sliding, sliding_logs, starts, steps};

/// When units were admitted, and how many.
type Admitted = Vec<(u64, u64)>;

/// Asserts the limit for every interval of the period's length that begins with an admission, and
/// so for every interval.
fn assert_bounded(quota: &Quota, admitted: &Admitted) -> Result<(), TestCaseError> {
    let period_us = u64::try_from(quota.rate().period().as_micros()).unwrap();
    for (first, (from, _)) in admitted.iter().enumerate() {
        let within = admitted[first..].iter().take_while(|(at, _)| at - from < period_us);
        let units: u64 = within.map(|(_, cost)| cost).sum();
        prop_assert!(units <= u64::from(quota.burst()), "{units} units from {from} under {quota}");
    }
    Ok(())
}

/// The units that were admitted in the interval of length `length_us` that ends with `now_us`.
fn within(admitted: &Admitted, now_us: u64, length_us: u64) -> u64 {
    admitted.iter().filter(|(at, _)| now_us - at < length_us).map(|(_, cost)| cost).sum()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn g1_no_interval_of_the_periods_length_holds_more_than_the_limit(
        quota in sliding(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        let mut admitted = Vec::new();
        for (moved, size) in steps {
            run.advance(moved);
            let cost = run.cost(size);
            if run.check(cost).0.is_allow() {
                admitted.push((run.now.as_micros(), cost.units()));
            }
        }
        assert_bounded(&quota, &admitted)?;
    }

    #[test]
    fn g1_a_caller_who_takes_each_unit_as_it_appears_gets_no_more_than_the_limit(
        quota in sliding(),
        start in starts(),
        moves in vec(forward(), 1..40),
    ) {
        let mut run = Run::new(quota, start);
        let mut admitted = Vec::new();
        for moved in moves.into_iter().flat_map(|moved| [moved, Move::ToRetry(0)]) {
            run.advance(moved);
            let cost = run.cost(Size::Remaining);
            if run.check(cost).0.is_allow() {
                admitted.push((run.now.as_micros(), cost.units()));
            }
            prop_assert!(run.check(Cost::ONE).0.is_deny());
        }
        assert_bounded(&quota, &admitted)?;
    }

    /// What the strict limit costs: a unit counts for one cell longer at most.
    #[test]
    fn a_denial_means_that_the_window_and_one_cell_before_it_hold_too_much(
        quota in sliding(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        let counted_us = u64::try_from(quota.fill_time().as_micros()).unwrap();
        let mut admitted = Vec::new();
        for (moved, size) in steps {
            run.advance(moved);
            let (cost, now_us) = (run.cost(size), run.now.as_micros());
            if run.check(cost).0.is_allow() {
                admitted.push((now_us, cost.units()));
            } else {
                let units = within(&admitted, now_us, counted_us) + cost.units();
                prop_assert!(units > u64::from(quota.burst()), "{units} units denied by {quota}");
            }
        }
    }

    #[test]
    fn a_sliding_log_admits_whatever_the_window_has_room_for_and_nothing_else(
        quota in sliding_logs(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        prop_assert_eq!(quota.algorithm(), Algorithm::SlidingLog);
        let mut run = Run::new(quota, start);
        let period_us = u64::try_from(quota.rate().period().as_micros()).unwrap();
        let mut admitted = Vec::new();
        for (moved, size) in steps {
            run.advance(moved);
            let (cost, now_us) = (run.cost(size), run.now.as_micros());
            let units = within(&admitted, now_us, period_us) + cost.units();
            let has_room = cost.is_zero() || units <= u64::from(quota.burst());
            prop_assert_eq!(run.check(cost).0.is_allow(), has_room);
            if has_room {
                admitted.push((now_us, cost.units()));
            }
        }
    }
}
