//! G4: time that goes backwards adds nothing and stalls nobody for longer than the skew.

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::Cost;

use crate::run::Run;
use crate::strategies::{
    Action, actions, any_move, backward, forward, quotas, sizes, sliding, slots, starts, steps,
    todays,
};
use crate::{cases, micros};

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn g4_no_steps_back_add_units(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), actions()),
        back in vec((backward(), sizes()), 1..8),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, action) in steps {
            run.advance(moved);
            let _ = run.carry_out_and_answer(action);
        }
        let there = u64::from(run.peek().remaining());
        let mut admitted = 0;
        for (moved, size) in back {
            run.advance(moved);
            prop_assert!(admitted + u64::from(run.peek().remaining()) <= there);
            let cost = run.cost(size);
            if run.check(cost).0.is_allow() {
                admitted += cost.units();
            }
        }
        // What is there in the end is spent in full, and no more of it appears.
        let _ = run.check(Cost::from(run.peek().remaining()));
        prop_assert_eq!(run.peek().remaining(), 0);
    }

    #[test]
    fn g4_a_sliding_window_admits_no_more_than_its_limit_while_less_than_its_period_passes(
        quota in sliding(),
        start in starts(),
        steps in steps(any_move(), sizes()),
    ) {
        let period_us = u64::try_from(quota.rate().period().as_micros()).unwrap();
        let mut run = Run::new(quota, start);
        let (mut passed_us, mut admitted) = (0, Vec::new());
        for (moved, size) in steps {
            let before = run.now;
            run.advance(moved);
            passed_us += run.now.as_micros().saturating_sub(before.as_micros());
            let cost = run.cost(size);
            if run.check(cost).0.is_allow() {
                admitted.push((passed_us, cost.units()));
            }
            let within = admitted.iter().filter(|(at, _)| passed_us - at < period_us);
            let units: u64 = within.map(|(_, cost)| cost).sum();
            prop_assert!(units <= u64::from(quota.burst()), "{units} units under {quota}");
        }
    }

    #[test]
    fn g4_nobody_waits_longer_than_a_window_and_the_skew(
        quota in quotas(),
        start in starts(),
        skew_us in 0_u64..=10_000_000,
        steps in steps(any_move(), actions()),
    ) {
        let mut run = Run::new(quota, start);
        run.max_clock_skew = micros(skew_us);
        for (moved, action) in steps {
            run.advance(moved);
            let decision = match action {
                Action::Check(size) => run.check(run.cost(size)).0,
                other => run.carry_out_and_answer(other),
            };
            let longest = run.quota.fill_time() + run.max_clock_skew;
            prop_assert!(decision.reset_after() <= longest, "{:?} under {}", decision, run.quota);
            prop_assert!(decision.retry_after().is_none_or(|retry_after| retry_after <= longest));
        }
    }

    /// Within the skew the stored time holds, so a clock that jitters by that is as good as one
    /// that stands still until the others have caught up.
    #[test]
    fn g4_a_step_back_within_the_skew_decides_as_at_the_stored_time(
        quota in quotas(),
        start in starts(),
        steps in steps(forward(), sizes()),
        back_us in 1_u64..=1_000_000,
        size in sizes(),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, size) in steps {
            run.advance(moved);
            let _ = run.check(run.cost(size));
        }
        let Some(ts) = run.state.as_ref().and_then(|state| state.ts()) else { return Ok(()) };
        let back = ts.saturating_sub(micros(back_us));
        let (cost, state) = (run.cost(size), run.state.as_ref());
        let (there, here) = (run.ask(state, cost, ts), run.ask(state, cost, back));
        prop_assert_eq!((here.is_allow(), here.remaining()), (there.is_allow(), there.remaining()));
        let ahead = ts.saturating_since(back);
        prop_assert_eq!(
            here.retry_after().filter(|wait| !wait.is_zero()),
            there.retry_after().filter(|wait| !wait.is_zero()).map(|wait| wait + ahead)
        );
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Leases end on time for every clock within the skew, and a clock that steps further back
    /// makes nobody wait for longer than a lease.
    #[test]
    fn g4_a_step_back_beyond_the_skew_shortens_a_lease_to_its_whole_length(
        quota in slots(),
        start in todays(),
        back in backward(),
    ) {
        let mut run = Run::new(quota, start);
        let all = Cost::from(quota.burst());
        prop_assert!(run.check(all).0.is_allow());
        run.advance(back);
        let retry_after = run.check(all).0.retry_after().unwrap();
        let back_by = start.saturating_since(run.now);
        let length = quota.fill_time();
        let expected = if back_by > run.max_clock_skew { length } else { length + back_by };
        prop_assert_eq!(retry_after, expected);
    }
}
