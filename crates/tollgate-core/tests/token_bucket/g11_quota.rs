//! G11: a changed quota takes effect at once and keeps the units, capped at the new burst.

use proptest::prelude::*;
use tollgate_core::{Bucket, Change, Cost, Edit, Quota, State, Timestamp};

use crate::run::Run;
use crate::strategies::{Size, quotas, starts};
use crate::{cases, level_under};

/// A state of `thousandths` of a full bucket under `quota`.
fn state(quota: &Quota, thousandths: u64, ts: Timestamp) -> Bucket {
    let level = u128::from(quota.level_max()) * u128::from(thousandths) / 1_000;
    Bucket { level: u64::try_from(level).unwrap(), scale: quota.scale(), ts }
}

proptest! {
    #![proptest_config(cases(4_096))]

    #[test]
    fn g11_the_next_check_finds_the_units_under_the_new_quota_capped_at_its_burst(
        (before, after) in (quotas(), quotas()),
        thousandths in 0_u64..1_000,
        ts in starts(),
    ) {
        let stored = state(&before, thousandths, ts);
        let mut run = Run::new(after, ts);
        run.state = Some(State::Bucket(stored));

        let expected = level_under(&stored, &after);
        let exact = u128::from(stored.level) * u128::from(after.scale());
        let kept = u128::from(expected) * u128::from(before.scale());
        prop_assert!(kept <= exact, "a change of quota minted units");
        if expected < after.level_max() {
            prop_assert!(exact - kept < u128::from(before.scale()), "more than a fraction was lost");
        }

        let peek = run.peek();
        prop_assert_eq!(peek.limit(), after.burst());
        prop_assert_eq!(u64::from(peek.remaining()), expected / after.scale());
        let (decision, change) = run.check(Cost::ONE);
        match change {
            Change::Edit(Edit::Bucket(bucket)) => {
                prop_assert_eq!(bucket.level, expected - after.scale());
                prop_assert_eq!(bucket.scale, after.scale());
            }
            _ => {
                prop_assert!(decision.is_deny() && expected < after.scale());
                let missing = (after.level_max() - expected).div_ceil(after.units_per_tick());
                let reset_us = u128::from(missing) * u128::from(after.tick_us());
                prop_assert_eq!(decision.reset_after().as_micros(), reset_us);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn g11_no_sequence_of_changes_at_one_instant_adds_units(
        first in quotas(),
        thousandths in 0_u64..1_000,
        now in starts(),
        changes in proptest::collection::vec((quotas(), any::<bool>()), 1..20),
    ) {
        let mut run = Run::new(first, now);
        let stored = state(&first, thousandths, now);
        run.state = Some(State::Bucket(stored));
        let mut admitted = 0_u128;
        for (quota, greedy) in changes {
            run.quota = quota;
            let cost = if greedy { run.cost(Size::Remaining) } else { Cost::ONE };
            if run.check(cost).0.is_allow() {
                admitted += u128::from(cost.units());
            }
            prop_assert!(admitted * u128::from(first.scale()) <= u128::from(stored.level));
        }
    }
}
