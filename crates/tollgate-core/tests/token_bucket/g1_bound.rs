//! G1: no interval admits more than the burst and what the rate gives in it.

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Cost, Quota};

use crate::cases;
use crate::run::{Allowance, Run};
use crate::strategies::{Move, Size, forward, quotas, sizes, starts, steps};

/// Asserts the bound for every pair of admitted requests.
fn assert_bounded(quota: &Quota, admitted: &[(u64, u64)]) -> Result<(), TestCaseError> {
    let allowance = Allowance::of(quota);
    for (first, (from, _)) in admitted.iter().enumerate() {
        let mut units = 0;
        for (to, cost) in &admitted[first..] {
            units += u128::from(*cost);
            prop_assert!(
                allowance.covers(units, to - from),
                "{} units in {}us under {}",
                units,
                to - from,
                quota
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn g1_any_interval_admits_at_most_the_burst_and_its_refill(
        quota in quotas(),
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
    fn g1_a_caller_who_takes_each_unit_as_it_appears_gets_no_more_than_the_bound(
        quota in quotas(),
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
}
