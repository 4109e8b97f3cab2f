//! G8: the engine gives the decisions of the exact model, which every store must give.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tollgate_testkit::{Answer, Model};

use crate::cases;
use crate::run::Run;
use crate::strategies::{Action, actions, any_move, quotas, starts, steps};

#[test]
fn random_quotas_have_ticks_of_every_length() {
    let mut runner = TestRunner::deterministic();
    let ticks: BTreeSet<u32> =
        (0..4_000).map(|_| quotas().new_tree(&mut runner).unwrap().current().tick_us()).collect();
    assert_eq!(Vec::from_iter(ticks), [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000]);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn g8_every_decision_equals_that_of_the_exact_model(
        quota in quotas(),
        start in starts(),
        steps in steps(any_move(), actions()),
    ) {
        let mut run = Run::new(quota, start);
        let mut model = Model::default();
        for (moved, action) in steps {
            run.advance(moved);
            match action {
                Action::SetQuota(changed) => run.quota = changed,
                Action::Refund(size) => {
                    let cost = run.cost(size);
                    let expected = model.refund(&run.quota, cost, run.now);
                    prop_assert_eq!(Answer::from(run.refund(cost).0), expected);
                }
                Action::Check(size) => {
                    let cost = run.cost(size);
                    let expected = model.check(&run.quota, cost, run.now);
                    if run.quota.admits(cost) {
                        prop_assert_eq!(Answer::from(run.check(cost).0), expected);
                    } else {
                        prop_assert_eq!(Answer::Impossible, expected);
                    }
                }
            }
        }
    }
}
