//! G3: a denial and a look cost nothing.

use proptest::prelude::*;
use tollgate_core::{Change, Cost, Decision, State};

use crate::cases;
use crate::run::Run;
use crate::strategies::{
    Action, actions, any_move, forward, quotas, requests, sizes, starts, steps,
};

/// Whether a state lies so far ahead that the next check must move it to now. Slots do not tell
/// when they were taken, but end a lease and the skew from now at the latest.
fn is_far_ahead(run: &Run, state: &State) -> bool {
    let since = match state {
        State::Slots(slots) => {
            let last = slots.iter().map(|(_, lease)| lease.ends).max();
            last.map(|ends| ends.saturating_since(run.now).saturating_sub(run.quota.fill_time()))
        }
        state => state.ts().map(|ts| ts.saturating_since(run.now)),
    };
    since.is_some_and(|since| since > run.max_clock_skew)
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn g3_a_denial_or_a_look_writes_nothing_unless_the_clock_has_stepped_back(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), actions()),
        other in sizes(),
    ) {
        let mut run = Run::new(quota, start);
        for (moved, action) in steps {
            run.advance(moved);
            let Some(cost) = run.carry_out(action) else { continue };
            let before = run.clone();
            let (looked, look) =
                before.charge(cost).judge(before.state.as_ref(), run.max_clock_skew, run.now).keep();
            let (decision, change) = run.check(cost);
            prop_assert_eq!(looked.is_allow(), decision.is_allow());
            let mut changes = vec![look];
            if decision.is_deny() || cost.is_zero() {
                prop_assert_eq!(looked, decision);
                changes.push(change);
            }
            for change in changes {
                let stepped = before.state.as_ref().is_some_and(|state| is_far_ahead(&before, state));
                prop_assert!(change == Change::Keep || stepped, "{:?}", change);
                // A repair brings the state to now and changes nothing there.
                let mut repaired = before.clone();
                change.apply(&mut repaired.state);
                if let Some(state) = repaired.state.as_ref().filter(|_| change != Change::Keep) {
                    prop_assert!(!is_far_ahead(&repaired, state));
                }
                for cost in [Cost::ZERO, Cost::ONE, cost, before.cost(other)] {
                    prop_assert_eq!(
                        before.ask(before.state.as_ref(), cost, before.now),
                        before.ask(repaired.state.as_ref(), cost, before.now)
                    );
                }
            }
        }
    }

    #[test]
    fn g3_a_timeline_without_its_denials_and_looks_decides_the_rest_alike(
        quota in quotas(),
        start in starts(),
        steps in steps(forward(), requests()),
    ) {
        let mut run = Run::new(quota, start);
        let mut done: Vec<(Run, Action, Decision)> = Vec::new();
        for (moved, action) in steps {
            run.advance(moved);
            let asked = run.clone();
            let decision = match action {
                Action::Check(size) => {
                    let cost = run.cost(size);
                    let decision = run.check(cost).0;
                    if decision.is_deny() || cost.is_zero() {
                        continue;
                    }
                    decision
                }
                other => run.carry_out_and_answer(other),
            };
            done.push((asked, action, decision));
        }
        let mut bare = Run::new(quota, start);
        for (asked, action, decision) in done {
            bare.now = asked.now;
            bare.skip_to_ticket(asked.next_ticket());
            prop_assert_eq!(bare.carry_out_and_answer(action), decision);
        }
        prop_assert_eq!(bare.state, run.state);
    }
}
