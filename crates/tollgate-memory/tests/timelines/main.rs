//! Random timelines of several keys: the store decides as the pure function does on a plain map.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]
#![allow(unreachable_pub, reason = "the modules of a test are its own")]

mod bounds;
mod play;
mod reference;
mod steps;

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate_core::MAX_CLOCK_SKEW_DEFAULT;

use crate::play::{Play, Tally};
use crate::steps::{any_quota, far, forward, jitter, of_levels, own_quota, steps};

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A cap far below the number of keys, and time that never goes back.
fn at_the_cap(keys_max: usize) -> Play {
    Play { keys_max, max_clock_skew: MAX_CLOCK_SKEW_DEFAULT, evict_each_step: false }
}

/// No cap in reach, and whatever is full for all clocks is gone before each step.
fn below_the_cap() -> Play {
    Play { evict_each_step: true, ..at_the_cap(1_000) }
}

proptest! {
    #![proptest_config(cases(300))]

    /// A request fails if and only if more than `keys_max` buckets, or records, would be live, and
    /// is otherwise decided as if nothing were ever evicted.
    #[test]
    fn g5_eviction_at_the_cap_changes_no_decision(
        steps in steps(own_quota(), forward()),
        keys_max in 1_usize..6,
    ) {
        at_the_cap(keys_max).run(&steps)?;
    }

    #[test]
    fn g8_eviction_below_the_cap_changes_no_decision_under_clock_skew(
        steps in steps(own_quota(), jitter()),
    ) {
        at_the_cap(1_000).run(&steps)?;
    }

    /// Limits, periods, cells and algorithms change from one request to the next.
    #[test]
    fn g11_changed_quotas_at_the_cap_change_what_the_reference_changes(
        steps in steps(any_quota(), forward()),
        keys_max in 1_usize..6,
    ) {
        // What is full by the quota that wrote it may be evicted or not, so all of it must go.
        let play = Play { keys_max, max_clock_skew: Duration::ZERO, evict_each_step: true };
        play.run(&steps)?;
    }

    /// Several buckets that are stored are changed in place.
    #[test]
    fn g7_several_known_buckets_spend_together_or_not_at_all(
        steps in of_levels(steps(own_quota(), far())),
    ) {
        below_the_cap().run(&steps)?;
    }

    #[test]
    fn g4_steps_of_the_clock_change_what_the_reference_changes(
        steps in steps(any_quota(), far()),
    ) {
        below_the_cap().run(&steps)?;
    }
}

/// The random timelines would prove nothing if they never reached what they are about.
#[test]
fn the_timelines_reach_the_cap_and_evict_and_settle_and_repair() {
    fn tally(play: Play, steps: impl Strategy<Value = Vec<steps::Step>>) -> Tally {
        let mut runner = TestRunner::deterministic();
        let runs = (0..200).map(|_| {
            let steps = steps.new_tree(&mut runner).unwrap().current();
            play.run(&steps).unwrap()
        });
        runs.sum()
    }
    let capped = tally(at_the_cap(6), steps(own_quota(), forward()));
    assert!(capped.full > 200 && capped.evicted > 200, "{capped:?}");
    assert!(capped.settled > 50 && capped.renewed > 20 && capped.denied > 200, "{capped:?}");
    let stepped = tally(below_the_cap(), steps(any_quota(), far()));
    assert!(stepped.evicted > 200 && stepped.settled > 50, "{stepped:?}");
    assert!(stepped.repaired > 200 && stepped.renewed > 20, "{stepped:?}");
    let known = tally(below_the_cap(), of_levels(steps(own_quota(), far())));
    assert!(known.repaired > 200 && known.denied > 200, "{known:?}");
}
