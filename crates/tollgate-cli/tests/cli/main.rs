//! The binary as a user runs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod acquire;
mod bench;
mod bench_faults;
mod check;
mod held;
mod process;
mod rules;
mod serve;
mod stores;
mod validate;

use crate::process::run;

#[test]
fn the_help_names_every_command_with_an_example() {
    let help = run(&["--help"]);
    assert_eq!(help.status, 0);
    assert!(help.stdout.starts_with(
        "A distributed rate limiter: one exact shared budget for all replicas of a service\n"
    ));
    for command in [
        "serve", "check", "peek", "acquire", "refund", "reset", "rules", "reserve", "commit",
        "cancel", "renew", "release", "validate", "example",
    ] {
        assert!(help.stdout.contains(&format!("\n  {command}")), "{}", help.stdout);
        assert!(help.stdout.contains(&format!("\n  tollgate {command}")), "{}", help.stdout);
    }
    assert_eq!(run(&["help"]).stdout, help.stdout);
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
        ("rules", "Exit status: 0 done, 1 refused or different, 2 the service does not answer."),
        ("reserve", "Exit status: 0 reserved, 1 denied, 2 could not be decided."),
        (
            "commit",
            "Exit status: 0 done, 1 the reservation was settled or has ended, 2 could not be done.",
        ),
        (
            "cancel",
            "Exit status: 0 done, 1 the reservation was settled or has ended, 2 could not be done.",
        ),
        ("renew", "Exit status: 0 renewed, 1 nothing is held any more, 2 could not be done."),
        ("release", "Exit status: 0 done, 2 could not be done."),
        (
            "validate",
            "Exit status: 0 all are in order, 1 there are mistakes, 2 a file cannot be read.",
        ),
    ] {
        assert!(run(&[command, "--help"]).stdout.trim_end().ends_with(statuses), "{command}");
    }
}

#[test]
fn a_number_or_a_time_that_cannot_be_is_named_with_what_to_write() {
    let number = "write a whole number from 0 to 18446744073709551615, for example 5";
    let time = "write a whole number and one of ms, s, min, hour, for example 5s";
    for (args, option, value, help) in [
        (&["check", "ip=x"][..], "--cost <N>", "-1", number),
        (&["check", "ip=x"], "--cost <N>", "1.5", number),
        (&["peek", "ip=x"], "--cost <N>", "+1", number),
        (&["refund", "ip=x"], "--cost <N>", "1e3", number),
        (&["acquire", "ip=x"], "--cost <N>", "-1", number),
        (&["acquire", "ip=x"], "--wait <TIME>", "-5s", time),
        (&["reserve", "ip=x"], "--ttl <TIME>", "-5s", time),
    ] {
        let (flag, _) = option.split_once(' ').unwrap();
        let command: &[&str] = if args[0] == "acquire" { &["--", "true"] } else { &[] };
        let ran = run(&[args, &[flag, value], command].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{args:?}");
        let said = format!("error: invalid value '{value}' for '{option}': {help}\n");
        assert!(ran.stderr.starts_with(&said), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("to pass '"), "{}", ran.stderr);
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = run(&["--version"]);
    assert_eq!(version.stdout, concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n"));
}
