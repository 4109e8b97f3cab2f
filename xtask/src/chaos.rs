//! What happens when Redis fails: every test that kills, stops, fills or cuts off a real one.

use crate::{setup, step};

/// The tests, by package, and of a package by test binary.
const TESTS: [(&str, &[&str]); 3] = [
    ("tollgate", &["chaos", "outage", "failure_policy"]),
    ("tollgate-redis", &["failures", "connections", "sentinel", "cluster", "membership"]),
    ("tollgate-server", &["service"]),
];

pub(crate) fn run() -> Result<(), String> {
    setup::run()?;
    for (package, tests) in TESTS {
        let mut command = step::cargo();
        command.args(["test", "--locked", "--package", package]);
        command.args(tests.iter().flat_map(|test| ["--test", *test]));
        // What was admitted beside the bound is printed by the tests.
        step::run(command.args(["--", "--nocapture"]))?;
    }
    Ok(())
}
