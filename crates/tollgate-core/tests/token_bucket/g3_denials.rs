//! G3: a denial and a peek cost nothing.

use proptest::prelude::*;
use tollgate_core::{Bucket, Change, Cost, Decision, Edit};

use crate::run::Run;
use crate::strategies::{
    Action, actions, any_move, checks_and_quotas, forward, quotas, starts, steps,
};
use crate::{cases, level_under};

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn g3_a_denial_or_a_peek_writes_nothing_but_the_repair_of_a_clock_step(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), actions()),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, action) in steps {
            run.advance(moved);
            let cost = match action {
                Action::SetQuota(changed) => { run.quota = changed; continue }
                Action::Refund(size) => { let _ = run.refund(run.cost(size)); continue }
                Action::Check(size) => run.cost(size),
            };
            let before = run.bucket();
            let looked =
                run.charge(cost).judge(run.state.as_ref(), run.max_clock_skew, run.now).keep();
            let (decision, change) = run.check(cost);
            prop_assert_eq!(looked.0.is_allow(), decision.is_allow());
            let mut changes = vec![looked.1];
            if decision.is_deny() || cost.is_zero() {
                changes.push(change);
            }
            let far_back = |state: &Bucket| state.ts.saturating_since(run.now) > run.max_clock_skew;
            let expected = match before.filter(far_back) {
                Some(state) if level_under(&state, &run.quota) < run.quota.level_max() => {
                    Change::Edit(Edit::Bucket(Bucket {
                        level: level_under(&state, &run.quota),
                        scale: run.quota.scale(),
                        ts: run.now,
                    }))
                }
                _ => Change::Keep,
            };
            prop_assert!(changes.iter().all(|change| *change == expected), "{:?}", changes);
        }
    }

    #[test]
    fn g3_a_timeline_without_its_denials_and_peeks_decides_the_rest_alike(
        quota in quotas(),
        start in starts(),
        steps in steps(forward(), checks_and_quotas()),
    ) {
        let mut run = Run::new(quota, start);
        let mut spent: Vec<(Run, Cost, Decision)> = Vec::new();
        for (moved, action) in steps {
            run.advance(moved);
            match action {
                Action::SetQuota(changed) => run.quota = changed,
                Action::Refund(_) => {}
                Action::Check(size) => {
                    let (asked, cost) = (run.clone(), run.cost(size));
                    let decision = run.check(cost).0;
                    if decision.is_allow() && !cost.is_zero() {
                        spent.push((asked, cost, decision));
                    }
                }
            }
        }
        let mut bare = Run::new(quota, start);
        for (asked, cost, decision) in spent {
            (bare.quota, bare.now) = (asked.quota, asked.now);
            prop_assert_eq!(bare.check(cost).0, decision);
        }
        prop_assert_eq!(bare.state, run.state);
    }
}
