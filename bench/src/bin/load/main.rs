//! Loads that last: a service under a third of what it carries, one under all of it, and how soon a service
//! and an endpoint with and without a limiter answer.
//!
//! `cargo xtask bench load | soak | latency`, explained in `docs/performance.md`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to its user")]

mod latency;
mod open;
mod soak;
mod steady;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tollgate_bench::Error;

const USAGE: &str = "Usage: load TOLLGATE (load | soak | latency) [--duration TIME]\n
TOLLGATE is the program that puts on an open-loop load. TIME is for example 60s or 10min.";

fn main() -> Result<ExitCode, Error> {
    if let Some(ended) = tollgate_bench::service::run_if_asked() {
        return ended.map(|()| ExitCode::SUCCESS);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (words, duration) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [tollgate, topic] => ([tollgate, topic], None),
        [tollgate, topic, "--duration", text] => ([tollgate, topic], Some(duration(text)?)),
        _ => return Err(USAGE.into()),
    };
    let [tollgate, topic] = words;
    let tollgate = PathBuf::from(tollgate);
    let is_kept = match topic {
        "load" => steady::run(&tollgate, duration.unwrap_or(Duration::from_secs(60)))?,
        "soak" => soak::run(duration.unwrap_or(Duration::from_secs(600)))?,
        "latency" => latency::run(duration.unwrap_or(Duration::from_secs(5)))?,
        _ => return Err(USAGE.into()),
    };
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn duration(text: &str) -> Result<Duration, Error> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" | "" => 1,
        "min" => 60,
        _ => return Err(format!("{text:?} is no time: write 60s or 10min").into()),
    };
    match number.parse::<u64>() {
        Ok(number) if number > 0 => Ok(Duration::from_secs(number * seconds)),
        _ => Err(format!("{text:?} is no time: write 60s or 10min").into()),
    }
}

/// Writes bytes of memory.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
