//! `tollgate acquire`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollgate_testkit::RedisServer;

use crate::process::{Ran, Running, configured, run};

const EXPORTS: &str = "
rules:
  - { name: exports, algorithm: concurrency, limit: 1, lease: 30s }
";

/// Says that it has started, and ends when its input does.
const UNTIL_TOLD: &str = "echo started; read line; echo ended; exit 3";

fn acquire(file: &Path, args: &[&str]) -> Ran {
    run(&[&["acquire", "-c", file.to_str().unwrap(), "job=export"], args].concat())
}

fn holding(file: &Path, script: &str) -> Running {
    let config = file.to_str().unwrap();
    let held = Running::start(&["acquire", "-c", config, "job=export", "--", "sh", "-c", script]);
    assert_eq!(held.next_line(), "started\n");
    held
}

fn peeked(file: &Path) -> String {
    let peeked = run(&["peek", "-c", file.to_str().unwrap(), "job=export"]);
    assert_eq!(peeked.status, 0, "{peeked:?}");
    peeked.stdout
}

/// Waits until a peek says what is expected.
fn until(file: &Path, expected: &str) {
    let start = Instant::now();
    loop {
        let said = peeked(file);
        if said.contains(expected) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "not {expected:?}: {said}");
    }
}

#[test]
fn a_command_holds_its_slot_while_it_runs() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, EXPORTS);
    let held = holding(&file, UNTIL_TOLD);
    assert!(peeked(&file).contains("  exports  allowed  1 of 1 in flight, all back in "));

    let refused = acquire(&file, &["--", "echo", "never"]);
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""));
    let lines: Vec<_> = refused.stderr.lines().collect();
    assert!(lines[0].starts_with("denied by exports: retry after "), "{lines:?}");
    assert!(lines[1].starts_with("  exports  denied   1 of 1 in flight, retry "), "{lines:?}");
    assert_eq!(lines.len(), 2);

    assert_eq!(held.ended(), (Some(3), "ended\n".to_owned()));
    assert_eq!(peeked(&file), "allowed\n  exports  allowed  0 of 1 in flight\n");
    let next = acquire(&file, &["--", "echo", "next"]);
    assert_eq!((next.status, next.stdout.as_str(), next.stderr.as_str()), (0, "next\n", ""));
}

#[test]
fn commands_take_turns() {
    let server = RedisServer::start().unwrap();
    let (dir, file) = configured(&server, EXPORTS);
    let log = dir.path().join("log");
    let first = UNTIL_TOLD.replace("exit 3", &format!("echo 1 >> {}", log.display()));
    let first = holding(&file, &first);
    let config = file.to_str().unwrap();
    let second = format!("echo 2 >> {}", log.display());
    let options = ["acquire", "-c", config, "--wait", "1min", "job=export", "--", "sh", "-c"];
    let second = Running::start(&[&options[..], &[second.as_str()]].concat());
    assert_eq!(first.ended().0, Some(0));
    assert_eq!(second.ended().0, Some(0));
    assert_eq!(fs::read_to_string(log).unwrap(), "1\n2\n");
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, EXPORTS);
    for (script, status) in [("exit 0", 0), ("exit 42", 42), ("kill -KILL $$", 137)] {
        let ran = acquire(&file, &["--", "sh", "-c", script]);
        assert_eq!((ran.status, ran.stderr.as_str()), (status, ""), "{script}");
    }
    let absent = acquire(&file, &["--", "/nonexistent/command"]);
    assert_eq!(absent.status, 2);
    assert!(absent.stderr.starts_with("error: cannot run /nonexistent/command: "));
    assert_eq!(peeked(&file), "allowed\n  exports  allowed  0 of 1 in flight\n");
}

#[test]
fn a_signal_is_passed_on_and_the_slot_released() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, EXPORTS);
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT")] {
        let script =
            format!("trap 'echo {name}; exit 7' {name}; echo started; while :; do read line; done");
        let held = holding(&file, &script);
        held.signal(signal);
        assert_eq!(held.next_line(), format!("{name}\n"));
        assert_eq!(held.ended(), (Some(7), String::new()));
        assert_eq!(peeked(&file), "allowed\n  exports  allowed  0 of 1 in flight\n");
    }
}

#[test]
fn a_slot_is_renewed_for_as_long_as_the_command_runs() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, &EXPORTS.replace("30s", "1500ms"));
    let held = holding(&file, UNTIL_TOLD);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(peeked(&file).contains("1 of 1 in flight"), "{:?}", start.elapsed());
    }
    assert_eq!(held.ended().0, Some(3));
    assert!(peeked(&file).contains("0 of 1 in flight"));
}

#[test]
fn the_slot_of_a_holder_that_is_killed_comes_back_within_its_lease() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, &EXPORTS.replace("30s", "1500ms"));
    let held = holding(&file, UNTIL_TOLD);
    let start = Instant::now();
    held.signal(Signal::KILL);
    let next = acquire(&file, &["--wait", "1min", "--", "echo", "next"]);
    assert_eq!((next.status, next.stdout.as_str()), (0, "next\n"), "{next:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    drop(held);
}

const SMS: &str = "
rules:
  - { name: sms, algorithm: leaky_bucket, limit: 1/hour, burst: 5 }
";

#[test]
fn a_turn_that_comes_too_late_is_refused_and_costs_nothing() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, SMS);
    assert_eq!(acquire(&file, &["--", "true"]).status, 0);
    let refused = acquire(&file, &["--wait", "500ms", "--", "echo", "never"]);
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.starts_with("refused: it would have to wait 3"), "{}", refused.stderr);
    assert!(refused.stderr.contains(", and --wait is 0.5 s\n  sms  allowed  1 of 5 in the queue"));
    assert!(peeked(&file).contains("1 of 5 in the queue"));
}

#[test]
fn a_signal_ends_the_wait_and_what_was_taken_is_given_back() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, SMS);
    assert_eq!(acquire(&file, &["--", "true"]).status, 0);
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let config = file.to_str().unwrap();
        let waiting = Running::start(&[
            "acquire",
            "-c",
            config,
            "--wait",
            "2hour",
            "job=export",
            "--",
            "echo",
            "never",
        ]);
        until(&file, "2 of 5 in the queue");
        waiting.signal(signal);
        assert_eq!(waiting.ended(), (Some(status), String::new()));
        assert!(peeked(&file).contains("1 of 5 in the queue"), "{}", peeked(&file));
    }
}

#[test]
fn without_a_store_to_share_it_runs_and_says_so() {
    let ran = run(&["acquire", "path=/login", "method=POST", "ip=x", "--", "echo", "here"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "here\n"));
    assert_eq!(
        ran.stderr,
        "\
note: a memory store lives in one process, so no other waits for this command; with a Redis store
      all processes take turns
"
    );
}

#[test]
fn what_cannot_be_run_exits_with_2() {
    for (args, message) in [
        (&["acquire", "ip=x"][..], "<COMMAND>..."),
        (&["acquire", "--", "echo"], "<KEY=VALUE>..."),
        (&["acquire", "ip=x", "--"], "<COMMAND>..."),
        (
            &["acquire", "--wait", "5", "ip=x", "--", "echo"],
            "one of ms, s, min, hour, for example 5s",
        ),
        (
            &[
                "acquire",
                "--cost",
                "21",
                "path=/login",
                "method=POST",
                "ip=x",
                "--",
                "echo",
                "never",
            ],
            "error: cost 21 can never succeed: rule \"login-per-ip\" admits at most 20 at once\n",
        ),
    ] {
        let ran = run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}
