//! G8: for every algorithm the engine gives the answers of the model, which every store must give.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]
#![allow(unreachable_pub, reason = "the modules of a test are its own")]

mod run;
mod strategies;

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tollgate_core::{Charge, Quota, Timestamp};
use tollgate_testkit::{Answer, Model};

use crate::run::Run;
use crate::strategies::{Action, Move, quotas_of, starts, steps};

const ALGORITHMS: [&str; 6] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "concurrency",
];

/// Cases of some forty steps each.
const CASES: u32 = 256;

/// Drives the engine and the model along one timeline, and tells every answer to `seen`.
fn compare(
    quota: Quota,
    start: Timestamp,
    steps: &[(Move, Action)],
    mut seen: impl FnMut(&Quota, Answer),
) -> TestCaseResult {
    let mut run = Run::new(quota, start);
    let mut model = Model::default();
    for (index, (moved, action)) in steps.iter().enumerate() {
        run.advance(*moved);
        match *action {
            Action::SetQuota(changed) => run.quota = changed,
            Action::Apply(operation, ticket, size) => {
                let (quota, cost) = (run.quota, run.cost(size));
                let charge = Charge { ticket, ..Charge::new("key", &quota, cost) };
                let expected = model.apply(operation, &charge, run.now);
                let got = run.apply(operation, &charge);
                prop_assert_eq!(
                    got,
                    expected,
                    "step {} at {}: {:?} {:?} {} under {}",
                    index,
                    run.now,
                    operation,
                    ticket,
                    cost,
                    quota
                );
                seen(&quota, got);
            }
        }
    }
    Ok(())
}

fn compare_at_random(algorithm: &'static str) {
    let config = ProptestConfig { cases: CASES, ..ProptestConfig::default() };
    let compared = Cell::new(0_u32);
    let timelines = (quotas_of(algorithm), starts(), steps(algorithm));
    TestRunner::new(config)
        .run(&timelines, |(quota, start, steps)| {
            compare(quota, start, &steps, |_, _| compared.set(compared.get() + 1))
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(compared.get() > 10 * CASES, "only {} answers were compared", compared.get());
}

#[test]
fn g8_the_token_bucket_decides_as_the_exact_model() {
    compare_at_random("token_bucket");
}

#[test]
fn g8_the_leaky_bucket_decides_as_the_exact_model() {
    compare_at_random("leaky_bucket");
}

#[test]
fn g8_the_fixed_window_decides_as_the_exact_model() {
    compare_at_random("fixed_window");
}

#[test]
fn g8_the_sliding_window_decides_as_the_exact_model() {
    compare_at_random("sliding_window");
}

#[test]
fn g8_the_sliding_log_decides_as_the_exact_model() {
    compare_at_random("sliding_log");
}

#[test]
fn g8_the_concurrency_limit_decides_as_the_exact_model() {
    compare_at_random("concurrency");
}

/// A comparison of answers that are all alike would prove nothing.
#[test]
fn random_timelines_meet_every_outcome_of_every_algorithm() {
    let mut runner = TestRunner::deterministic();
    let mut outcomes = BTreeMap::<_, u32>::new();
    for algorithm in ALGORITHMS {
        let timelines = (quotas_of(algorithm), starts(), steps(algorithm));
        for _ in 0..64 {
            let (quota, start, steps) =
                timelines.new_tree(&mut runner).map(|tree| tree.current()).unwrap();
            compare(quota, start, &steps, |quota, answer| {
                let key = (quota.algorithm().as_str(), answer.outcome());
                *outcomes.entry(key).or_default() += 1;
            })
            .unwrap();
        }
    }
    for algorithm in ALGORITHMS {
        for outcome in ["allow", "deny", "impossible"] {
            let times = outcomes.get(&(algorithm, outcome)).copied().unwrap_or_default();
            assert!(times >= 50, "{algorithm} gave {outcome} {times} times");
        }
    }
}
