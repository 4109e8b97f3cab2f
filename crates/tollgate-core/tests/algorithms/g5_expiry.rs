//! G5: a full bucket equals an absent one.

use proptest::prelude::*;
use tollgate_core::{Cost, Timestamp};

use crate::run::Run;
use crate::strategies::{Action, forward, quotas, requests, sizes, starts, steps};
use crate::{cases, micros};

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn g5_a_state_that_expires_at_reset_after_or_later_changes_no_decision(
        quota in quotas(),
        start in starts(),
        margin_us in prop_oneof![2 => Just(0), 1 => 0_u64..=5_000_000],
        steps in steps(forward(), requests()),
    ) {
        let mut kept = Run::new(quota, start);
        let mut expiring = kept.clone();
        let mut full_at: Option<Timestamp> = None;
        for (moved, action) in steps {
            kept.advance(moved);
            expiring.now = kept.now;
            if full_at.is_some_and(|full_at| {
                full_at < Timestamp::MAX && kept.now >= full_at.saturating_add(micros(margin_us))
            }) {
                expiring.state = None;
            }
            let (one, other) = match action {
                Action::Check(size) => {
                    let cost = kept.cost(size);
                    (kept.check(cost).0, expiring.check(cost).0)
                }
                other => (kept.carry_out_and_answer(other), expiring.carry_out_and_answer(other)),
            };
            prop_assert_eq!(one, other);
            full_at = Some(kept.now.saturating_add(one.reset_after()));
        }
    }

    #[test]
    fn g5_a_bucket_is_full_at_reset_after_and_not_a_microsecond_before(
        quota in quotas(),
        start in starts(),
        steps in steps(forward(), sizes()),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, size) in steps {
            run.advance(moved);
            let reset_after = run.check(run.cost(size)).0.reset_after();
            let full_at = run.now.saturating_add(reset_after);
            if reset_after.is_zero() || full_at == Timestamp::MAX {
                continue;
            }
            let at = |now| run.ask(run.state.as_ref(), Cost::ZERO, now);
            prop_assert_eq!(at(full_at).reset_after(), micros(0));
            prop_assert_eq!(at(full_at).remaining(), run.quota.burst());
            let just_before = at(Timestamp::from_micros(full_at.as_micros() - 1));
            prop_assert_eq!(just_before.reset_after(), micros(1));
        }
    }
}
