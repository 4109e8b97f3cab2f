//! G4: time that goes backwards adds nothing and stalls nobody for longer than the skew.

use proptest::prelude::*;
use tollgate_core::{Bucket, Cost, State, Timestamp};

use crate::run::{Allowance, Run};
use crate::strategies::{
    Action, actions, any_move, backward, forward, quotas, sizes, starts, steps,
};
use crate::{cases, micros};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn g4_a_step_back_never_adds_units(
        quota in quotas(),
        start in starts(),
        steps in steps(forward(), actions()),
        back in backward(),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, action) in steps {
            run.advance(moved);
            match action {
                Action::SetQuota(changed) => run.quota = changed,
                Action::Refund(size) => { let _ = run.refund(run.cost(size)); }
                Action::Check(size) => { let _ = run.check(run.cost(size)); }
            }
            let mut stepped = run.clone();
            stepped.advance(back);
            prop_assert!(stepped.peek().remaining() <= run.peek().remaining());
            // What is there after the step is spent in full, and no more of it appears.
            let _ = stepped.check(Cost::from(stepped.peek().remaining()));
            prop_assert_eq!(stepped.peek().remaining(), 0);
        }
    }

    #[test]
    fn g4_only_time_that_passes_adds_units(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        let (mut admitted, mut passed_us) = (0, 0);
        for (moved, size) in steps {
            let before = run.now;
            run.advance(moved);
            passed_us += run.now.as_micros().saturating_sub(before.as_micros());
            let cost = run.cost(size);
            if run.check(cost).0.is_allow() {
                admitted += u128::from(cost.units());
            }
            prop_assert!(
                Allowance::of(&quota).covers(admitted, passed_us),
                "{} units in {}us under {}", admitted, passed_us, quota
            );
        }
    }

    #[test]
    fn g4_a_clock_that_jitters_within_the_skew_refills_no_instant_twice(
        quota in quotas(),
        skew_us in 1_u64..=10_000_000,
        steps in steps(forward(), (sizes(), 0_u64..=1_000)),
    ) {
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let mut run = Run::new(quota, start);
        run.max_clock_skew = micros(skew_us);
        let (mut latest, mut first, mut admitted) = (start, None, 0);
        for (moved, (size, jitter)) in steps {
            run.now = latest;
            run.advance(moved);
            latest = run.now;
            run.now = Timestamp::from_micros(latest.as_micros() - skew_us * jitter / 1_000);
            let cost = run.cost(size);
            if run.check(cost).0.is_allow() && !cost.is_zero() {
                first.get_or_insert(run.now);
                admitted += u128::from(cost.units());
            }
            let passed_us = latest.as_micros() - first.unwrap_or(latest).as_micros();
            prop_assert!(
                Allowance::of(&quota).covers(admitted, passed_us),
                "{} units in {}us under {}", admitted, passed_us, quota
            );
        }
    }

    #[test]
    fn g4_a_step_back_stalls_a_bucket_for_at_most_the_skew(
        quota in quotas(),
        start in starts(),
        skew_us in 0_u64..=10_000_000,
        steps in steps(any_move(), actions()),
    ) {
        let mut run = Run::new(quota, start);
        run.max_clock_skew = micros(skew_us);
        for (moved, action) in steps {
            run.advance(moved);
            let cost = match action {
                Action::SetQuota(changed) => { run.quota = changed; continue }
                Action::Refund(size) => { let _ = run.refund(run.cost(size)); continue }
                Action::Check(size) => run.cost(size),
            };
            // The wait of a bucket whose stored time is now is what refill alone takes.
            let unstalled = run
                .bucket()
                .map(|bucket| State::Bucket(Bucket { ts: run.now, ..bucket }));
            let refill = run.ask(unstalled.as_ref(), cost, run.now).retry_after();
            let decision = run.check(cost).0;
            if let Some(retry_after) = decision.retry_after() {
                prop_assert!(retry_after <= refill.unwrap() + run.max_clock_skew);
            }
        }
    }
}
