//! The fuzz targets of `fuzz/`, each run for a while.

use std::fs;
use std::process::{Command, Stdio};

use crate::step;

const SECONDS_DEFAULT: u32 = 60;

const NEEDED: &str = "\
fuzzing needs cargo-fuzz and a C++ compiler:
  cargo install cargo-fuzz --locked
  sudo apt-get install -y g++
The seeds in fuzz/seeds are tried by `cargo xtask test` without either.";

/// Where files lie that are seeds, though they serve another purpose.
const MORE_SEEDS: [(&str, &str); 5] = [
    ("config", "crates/tollgate-config/fixtures/good"),
    ("config", "crates/tollgate-config/fixtures/bad"),
    ("envoy_limits", "crates/tollgate-config/fixtures/envoy/good"),
    ("envoy_limits", "crates/tollgate-config/fixtures/envoy/bad"),
    ("timeline", "crates/tollgate-testkit/cases"),
];

pub(crate) fn run(seconds: Option<&str>) -> Result<(), String> {
    let seconds = match seconds {
        Some(text) => text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?,
        None => SECONDS_DEFAULT,
    };
    if !answers(step::cargo().args(["fuzz", "--version"])) || !has_cxx() {
        return Err(NEEDED.to_owned());
    }
    let targets = targets()?;
    let failed: Vec<_> =
        targets.iter().filter(|target| run_one(target, seconds).is_err()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{failed:?} failed: what was found is in fuzz/artifacts; put it into fuzz/seeds when it is mended"
    ))
}

/// Tries every seed once, without a fuzzer.
pub(crate) fn test_seeds() -> Command {
    let mut command = step::cargo();
    command.args(["test", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target"]);
    command
}

fn targets() -> Result<Vec<String>, String> {
    let files = fs::read_dir("fuzz/fuzz_targets")
        .map_err(|error| format!("cannot read fuzz/fuzz_targets: {error}"))?;
    let mut targets: Vec<_> = files
        .filter_map(|file| file.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    targets.sort();
    Ok(targets)
}

fn run_one(target: &str, seconds: u32) -> Result<(), String> {
    // What is found goes into the first folder, which is not kept.
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(&corpus).map_err(|error| format!("cannot make {corpus}: {error}"))?;
    let more = MORE_SEEDS.iter().filter(|(of, _)| *of == target).map(|(_, folder)| *folder);
    let mut command = step::cargo();
    command
        .args(["fuzz", "run", "--fuzz-dir", "fuzz", "--features", "libfuzzer"])
        // Safe code needs no sanitizer, and without one a stable compiler will do.
        .args(["--sanitizer", "none", target, &corpus, &format!("fuzz/seeds/{target}")])
        .args(more)
        .args(["--", &format!("-max_total_time={seconds}"), "-max_len=4096"]);
    step::run(&mut command)
}

fn has_cxx() -> bool {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    answers(Command::new(compiler).arg("--version"))
}

fn answers(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_target_has_seeds_and_every_other_folder_of_seeds_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names = |folder: &str| {
            let files = fs::read_dir(root.join(folder)).unwrap();
            let mut names: Vec<_> =
                files.map(|file| file.unwrap().path().file_stem().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names("fuzz/fuzz_targets"), names("fuzz/seeds"));
        assert!(MORE_SEEDS.iter().all(|(_, folder)| root.join(folder).is_dir()));
    }
}
