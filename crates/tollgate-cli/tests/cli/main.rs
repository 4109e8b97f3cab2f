//! The binary as a user runs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod acquire;
mod bench;
mod check;
mod process;
mod serve;
mod validate;

use crate::process::run;

#[test]
fn the_help_names_every_command_with_an_example() {
    let help = run(&["--help"]);
    assert_eq!(help.status, 0);
    assert!(help.stdout.starts_with(
        "A distributed rate limiter: one exact shared budget for all replicas of a service\n"
    ));
    for command in ["serve", "check", "peek", "acquire", "refund", "reset", "validate", "example"] {
        assert!(help.stdout.contains(&format!("\n  {command}")), "{}", help.stdout);
        assert!(help.stdout.contains(&format!("\n  tollgate {command}")), "{}", help.stdout);
    }
    let none = run(&[]);
    assert_eq!((none.status, none.stdout.as_str()), (2, ""));
    assert_eq!(none.stderr, help.stdout.replace(" (see more with '--help')", ""));
}

#[test]
fn the_help_of_each_command_states_its_exit_status() {
    for (command, statuses) in [
        ("serve", "Exit status: 0 stopped by a signal, 2 could not start."),
        ("check", "Exit status: 0 allowed, 1 denied, 2 could not be decided."),
        (
            "peek",
            "Exit status: 0 it would be allowed, 1 it would be denied, 2 could not be decided.",
        ),
        ("refund", "Exit status: 0 done, 2 could not be done."),
        ("reset", "Exit status: 0 done, 2 could not be done."),
        (
            "acquire",
            "Exit status: that of the command, 128 and the signal's number if a signal ended it, 1 if \
             it was\nrefused and did not run, 2 could not be decided or could not run.",
        ),
        (
            "validate",
            "Exit status: 0 all are in order, 1 there are mistakes, 2 a file cannot be read.",
        ),
    ] {
        assert!(run(&[command, "--help"]).stdout.trim_end().ends_with(statuses), "{command}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = run(&["--version"]);
    assert_eq!(version.stdout, concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n"));
}
