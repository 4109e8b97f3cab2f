//! One command of a longer run, announced before it starts.

use std::ffi::OsStr;
use std::process::Command;

/// The cargo that runs this xtask.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Prints a command as it could be typed.
pub(crate) fn announce(command: &Command) {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| std::path::Path::new(word).file_name().unwrap_or(word))
        .map(OsStr::to_string_lossy)
        .collect();
    println!("==> {}", words.join(" "));
}

/// Runs a command to its end and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    announce(command);
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("cannot run {program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} failed: {status}")) }
}
