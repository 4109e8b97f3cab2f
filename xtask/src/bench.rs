//! Runs the comparisons of `bench/`, and counts the instructions of the hot paths.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::step;

/// What the hot paths may cost.
const ACCEPTED: &str = "bench/instructions.txt";

/// How much more or less than accepted a path may cost, in percent: keys are hashed by a seed that is
/// another one in each run.
const TOLERANCE_PERCENT: u64 = 3;

/// How often a path is run, so that the difference of both is what so many calls cost.
const COUNTS: [u64; 2] = [10_000, 30_000];

/// Compares everything, or these topics.
pub(crate) fn compare(topics: &[&str]) -> Result<(), String> {
    let mut command = bench();
    command.args(["run", "--bin", "compare"]).args(RELEASE).arg("--").args(topics);
    step::run(&mut command)
}

/// Puts on a load that lasts: `load`, `soak` or `latency`, for as long as is usual or said.
pub(crate) fn load(topic: &str, duration: Option<&str>) -> Result<(), String> {
    let build = ["build", "--release", "--locked", "--package", "tollgate-cli"];
    step::run(step::cargo().args(build))?;
    let mut command = bench();
    command.args(["run", "--bin", "load"]).args(RELEASE);
    command.args(["--", "target/release/tollgate", topic]);
    if let Some(duration) = duration {
        command.args(["--duration", duration]);
    }
    step::run(&mut command)
}

const RELEASE: [&str; 4] = ["--release", "--locked", "--manifest-path", "bench/Cargo.toml"];

fn bench() -> Command {
    step::cargo()
}

/// Counts the instructions of each hot path and compares them with what is accepted. Writes them down
/// as accepted if `accepts`.
pub(crate) fn instructions(accepts: bool) -> Result<(), String> {
    step::run(bench().args(["build", "--bin", "hot_paths"]).args(RELEASE))?;
    let program = Path::new("bench/target/release/hot_paths");
    let text = fs::read_to_string(ACCEPTED).map_err(|error| format!("{ACCEPTED}: {error}"))?;
    let (mut lines, mut changed) = (String::new(), Vec::new());
    for line in text.lines() {
        let Some((path, accepted)) = line.split_once(' ').filter(|_| !line.starts_with('#')) else {
            lines.push_str(&format!("{line}\n"));
            continue;
        };
        let accepted: u64 = accepted.trim().parse().map_err(|_| format!("{ACCEPTED}: {line}"))?;
        let counted = instructions_per_call(program, path)?;
        let is_within = counted.abs_diff(accepted) * 100 <= accepted * TOLERANCE_PERCENT;
        println!(
            "{path:<20}{counted:>7}  accepted {accepted:>7}{}",
            if is_within { "" } else { "  CHANGED" }
        );
        lines.push_str(&format!("{path:<20}{counted:>7}\n"));
        if !is_within {
            changed.push(path.to_owned());
        }
    }
    if accepts {
        return fs::write(ACCEPTED, lines).map_err(|error| format!("{ACCEPTED}: {error}"));
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} changed by more than {TOLERANCE_PERCENT} %: find out why, or accept it by \
         `cargo xtask bench instructions --accept`",
        changed.join(", ")
    ))
}

fn instructions_per_call(program: &Path, path: &str) -> Result<u64, String> {
    let [few, many] = COUNTS;
    // What storing its 100,000 keys takes varies with the seeds of the store, so that it takes more calls
    // to tell them from that.
    let many = if path == "memory-random" { 10 * many } else { many };
    let [least, most] = [few, many].map(|count| instructions_of(program, path, count));
    Ok(most?.saturating_sub(least?) / (many - few))
}

/// Runs a path under valgrind and reads how many instructions it says there were.
fn instructions_of(program: &Path, path: &str, count: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([path, &count.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind, install it: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said.lines().find_map(|line| line.split_once("Collected : "));
    let counted = counted.and_then(|(_, counted)| counted.trim().parse().ok());
    counted.ok_or_else(|| format!("valgrind counted nothing for {path}:\n{said}"))
}
