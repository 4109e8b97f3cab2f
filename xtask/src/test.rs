//! Every test, and one closing line that adds them up.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};

use crate::{fuzz, setup, step};

#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.ignored += more.ignored;
    }
}

pub(crate) fn run() -> Result<(), String> {
    setup::run()?;
    let mut totals = Totals::default();
    let workspace =
        counted(step::cargo().args(["test", "--workspace", "--locked", "--no-fail-fast"]));
    let seeds = counted(&mut fuzz::test_seeds());
    let loom = loom_counted();
    for (part, _) in [&workspace, &seeds, &loom] {
        totals += *part;
    }
    println!(
        "total: {} passed, {} failed, {} skipped",
        totals.passed, totals.failed, totals.ignored
    );
    workspace.1?;
    seeds.1?;
    loom.1?;
    if totals.passed == 0 { Err("no test ran".to_owned()) } else { Ok(()) }
}

pub(crate) fn loom() -> Result<(), String> {
    let memory = loom_counted();
    let mut models = step::cargo();
    models
        .args(["test", "--package", "tollgate", "--package", "tollgate-redis", "--lib", "--locked"])
        .args(["--", "::model::"]);
    let models = counted(&mut models);
    memory.1?;
    models.1?;
    if models.0.passed == 0 { Err("no model ran".to_owned()) } else { Ok(()) }
}

/// The memory store is checked whole, by a cfg of its own, and so with a target directory of its own: another
/// cfg would rebuild everything. The other models are unit tests, which the workspace's run.
fn loom_counted() -> (Totals, Result<(), String>) {
    let mut command = step::cargo();
    command
        .args(["test", "--package", "tollgate-memory", "--test", "loom", "--release", "--locked"])
        .args(["--target-dir", "target/loom"])
        .env("RUSTFLAGS", "--cfg loom");
    counted(&mut command)
}

/// Runs a test command, passes its output on and adds up its `test result:` lines.
fn counted(command: &mut Command) -> (Totals, Result<(), String>) {
    step::announce(command);
    let mut totals = Totals::default();
    let outcome = (|| {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        let stdout = child.stdout.take().ok_or("cargo has no output")?;
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|error| format!("cannot read the output of cargo: {error}"))?;
            println!("{line}");
            totals += result_line(&line).unwrap_or_default();
        }
        let status = child.wait().map_err(|error| format!("cargo did not end: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("tests failed: {status}")) }
    })();
    (totals, outcome)
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn result_line(line: &str) -> Option<Totals> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |name: &str| {
        let part = counts.split("; ").find_map(|part| part.strip_suffix(name))?;
        part.trim().parse().ok()
    };
    Some(Totals {
        passed: count(" passed")?,
        failed: count(" failed")?,
        ignored: count(" ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_the_test_runner_are_added_up() {
        let line = "test result: FAILED. 35 passed; 2 failed; 1 ignored; 0 measured; \
                    4 filtered out; finished in 0.08s";
        let totals = result_line(line).unwrap();
        assert_eq!((totals.passed, totals.failed, totals.ignored), (35, 2, 1));
        assert!(result_line("test rate::tests::x ... ok").is_none());
    }
}
