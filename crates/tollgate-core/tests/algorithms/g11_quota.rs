//! G11: a changed quota takes effect at once, and what was admitted before still counts.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::{Cost, Quota, Rate};

use crate::cases;
use crate::run::Run;
use crate::strategies::{
    Action, Move, Size, fixed_windows, forward, periods, sizes, sliding, slots, starts, steps,
    todays,
};

/// Units that were admitted at one instant, and for how long they count at least: for the shortest
/// period of all quotas since.
struct Admitted {
    at_us: u64,
    units: u64,
    counts: Duration,
    ticket: u32,
}

/// Plays checks, releases and changes of the quota, and asserts at each admission that what was
/// admitted before and still counts is at most the limit of that time.
fn assert_counted(mut run: Run, steps: Vec<(Move, Action)>) -> Result<(), TestCaseError> {
    let mut admitted: Vec<Admitted> = Vec::new();
    for (moved, action) in steps {
        run.advance(moved);
        let period = run.quota.rate().period();
        if !matches!(action, Action::SetQuota(_)) {
            admitted.iter_mut().for_each(|one| one.counts = one.counts.min(period));
        }
        match action {
            Action::SetQuota(changed) => run.quota = changed,
            Action::Release(before) => {
                let ticket = run.next_ticket().saturating_sub(before);
                let _ = run.release(ticket);
                admitted.retain(|one| one.ticket != ticket);
            }
            Action::Refund(_) => {}
            Action::Check(size) => {
                let (cost, ticket, now_us) =
                    (run.cost(size), run.next_ticket(), run.now.as_micros());
                if run.check(cost).0.is_deny() || cost.is_zero() {
                    continue;
                }
                let (units, counts) = (cost.units(), period);
                admitted.push(Admitted { at_us: now_us, units, counts, ticket });
                let units: u64 = admitted
                    .iter()
                    .filter(|one| u128::from(now_us - one.at_us) < one.counts.as_micros())
                    .map(|one| one.units)
                    .sum();
                prop_assert!(units <= u64::from(run.quota.burst()), "{units} under {}", run.quota);
            }
        }
    }
    Ok(())
}

/// Checks, releases, and changes to other quotas.
fn changing(quotas: impl Strategy<Value = Quota>) -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => sizes().prop_map(Action::Check),
        1 => (1_u32..6).prop_map(Action::Release),
        2 => quotas.prop_map(Action::SetQuota),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    /// Limits, periods, cells, and logs for windows.
    #[test]
    fn g11_a_changed_sliding_window_counts_what_was_admitted_before(
        quota in sliding(),
        start in starts(),
        steps in steps(forward(), changing(sliding())),
    ) {
        assert_counted(Run::new(quota, start), steps)?;
    }

    #[test]
    fn g11_a_changed_concurrency_limit_counts_what_is_in_flight(
        quota in slots(),
        start in todays(),
        steps in steps(forward(), changing(slots())),
    ) {
        assert_counted(Run::new(quota, start), steps)?;
    }

    #[test]
    fn g11_a_fixed_window_with_a_changed_limit_admits_what_the_new_one_has_room_for(
        period in periods(),
        start in starts(),
        steps in steps(forward(), (sizes(), 1_u64..=12)),
    ) {
        let period_us = u64::try_from(period.as_micros()).unwrap();
        let quota = |limit| {
            let rate = Rate::new(limit, period).ok()?;
            Quota::fixed_window(rate).ok()
        };
        let mut run = Run::new(quota(1).unwrap(), start);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (moved, (size, limit)) in steps {
            run.advance(moved);
            let Some(quota) = quota(limit) else { continue };
            run.quota = quota;
            let (cost, now_us) = (run.cost(size), run.now.as_micros());
            let in_window = admitted.iter().filter(|(at, _)| at / period_us == now_us / period_us);
            let units = in_window.map(|(_, cost)| cost).sum::<u64>() + cost.units();
            let has_room = cost.is_zero() || units <= limit;
            prop_assert_eq!(run.check(cost).0.is_allow(), has_room);
            if has_room {
                admitted.push((now_us, cost.units()));
            }
        }
    }

    /// At one instant nothing has stopped to count, whatever the quota.
    #[test]
    fn g11_no_sequence_of_changes_at_one_instant_adds_units(
        quotas in prop_oneof![
            vec(sliding(), 1..20).boxed(),
            vec(fixed_windows(), 1..20).boxed(),
            vec(slots(), 1..20).boxed(),
        ],
        start in todays(),
        greedy in vec(any::<bool>(), 20),
    ) {
        let mut run = Run::new(quotas[0], start);
        let mut admitted = 0;
        for (quota, greedy) in quotas.into_iter().zip(greedy) {
            run.quota = quota;
            let limit = u64::from(quota.burst());
            prop_assert_eq!(u64::from(run.peek().remaining()), limit.saturating_sub(admitted));
            let cost = if greedy { run.cost(Size::Remaining) } else { Cost::ONE };
            if run.check(cost).0.is_allow() {
                admitted += cost.units();
            }
        }
    }
}
