//! `tollgate reserve`, `commit`, `cancel`, `renew` and `release`.

use std::path::Path;

use serde_json::Value;
use tollgate_testkit::RedisServer;

use crate::process::{Ran, Service, configured, post, run};

const TOKENS: &str = "
rules:
  - { name: tokens, match: { kind: chat }, key: account, limit: 1000/day }
  - { name: exports, match: { kind: export }, algorithm: concurrency, limit: 3, lease: 30s }
";

fn on(file: &Path, args: &[&str]) -> Ran {
    run(&[args, &["-c", file.to_str().unwrap()]].concat())
}

fn reserve(file: &Path, args: &[&str]) -> String {
    let request = ["reserve", "kind=chat", "account=a1"];
    let reserved = on(file, &[&request[..], args].concat());
    assert_eq!(reserved.status, 0, "{reserved:?}");
    let id = reserved.stdout.trim_end();
    assert_eq!(reserved.stdout, format!("{id}\n"), "the id alone is for stdout");
    id.to_owned()
}

fn left(file: &Path) -> u64 {
    let peeked = on(file, &["peek", "--json", "kind=chat", "account=a1"]);
    let answer: Value = serde_json::from_str(&peeked.stdout).unwrap();
    answer["remaining"].as_u64().unwrap()
}

#[test]
fn a_reservation_is_settled_at_its_real_cost_once() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let id = reserve(&file, &["--cost", "500"]);
    assert_eq!(left(&file), 500);

    let committed = on(&file, &["commit", &id, "--cost", "120"]);
    assert_eq!((committed.status, committed.stderr.as_str()), (0, ""));
    let start = "committed\n  tokens  allowed  880 of 1000 left, full in ";
    assert!(committed.stdout.starts_with(start), "{}", committed.stdout);
    assert_eq!(left(&file), 880);

    let nothing = "nothing is held under this id: it was given back, or it ended\n";
    for args in [&["commit", &id, "--cost", "120"][..], &["cancel", &id]] {
        let again = on(&file, args);
        assert_eq!((again.status, again.stdout.as_str(), again.stderr.as_str()), (1, "", nothing));
    }
    assert_eq!(left(&file), 880);
}

#[test]
fn a_cancelled_reservation_gives_everything_back() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let id = reserve(&file, &["--cost", "500", "--ttl", "1hour"]);
    let cancelled = on(&file, &["cancel", &id]);
    assert_eq!(
        (cancelled.status, cancelled.stdout.as_str(), cancelled.stderr.as_str()),
        (0, "cancelled\n  tokens  allowed  1000 of 1000 left\n", "")
    );
}

#[test]
fn a_reservation_says_what_the_rules_say_on_stderr() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let request = ["reserve", "kind=chat", "account=a1"];
    let reserved = on(&file, &[&request[..], &["--cost", "900"]].concat());
    let start = "allowed\n  tokens  allowed  100 of 1000 left, full in ";
    assert!(reserved.stderr.starts_with(start), "{reserved:?}");

    let denied = on(&file, &[&request[..], &["--cost", "101"]].concat());
    assert_eq!((denied.status, denied.stdout.as_str()), (1, ""));
    assert!(denied.stderr.starts_with("denied by tokens: retry after "), "{}", denied.stderr);

    let impossible = on(&file, &[&request[..], &["--cost", "1001"]].concat());
    assert_eq!((impossible.status, impossible.stdout.as_str()), (2, ""));
    let error = "error: cost 1001 can never succeed: rule \"tokens\" admits at most 1000 at once\n";
    assert_eq!(impossible.stderr, error);

    let free = on(&file, &["reserve", "kind=other"]);
    assert_eq!((free.status, free.stdout.as_str()), (0, ""));
    assert_eq!(
        free.stderr,
        "allowed: no enforced rule applies\nnote: there is nothing to settle, so there is no id\n"
    );
}

#[test]
fn json_is_what_the_http_api_answers() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let json = |args: &[&str]| {
        let ran = on(&file, &[args, &["--json"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{args:?}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    let reserved = json(&["reserve", "--cost", "400", "kind=chat", "account=a1"]);
    assert_eq!((&reserved["allowed"], &reserved["remaining"]), (&true.into(), &600.into()));
    let id = reserved["reservation_id"].as_str().unwrap();
    let committed = json(&["commit", id, "--cost", "150"]);
    assert_eq!((&committed["rule"], &committed["remaining"]), (&"tokens".into(), &850.into()));
    assert_eq!(json(&["reserve", "kind=other"])["reservation_id"], Value::Null);
}

#[test]
fn a_lease_of_the_service_is_renewed_and_released() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let service = Service::start(&["--config", file.to_str().unwrap()]);
    let acquire = r#"{"attributes":{"kind":"export"},"cost":2}"#;
    let reply = post(service.http, "/v1/acquire", acquire);
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(body).unwrap();
    let id = answer["lease_id"].as_str().unwrap();
    let peek = || on(&file, &["peek", "kind=export"]).stdout;
    assert!(peek().contains("  exports  allowed  2 of 3 in flight"), "{}", peek());

    for (args, said) in [
        (&["renew", id][..], "renewed\n"),
        (&["renew", "--json", id], "{\"renewed\":true}\n"),
        (&["release", id], "released\n"),
        (&["release", "--json", id], "{\"released\":true}\n"),
    ] {
        let ran = on(&file, args);
        assert_eq!((ran.status, ran.stdout.as_str(), ran.stderr.as_str()), (0, said, ""));
    }
    assert!(peek().contains("  exports  allowed  0 of 3 in flight"), "{}", peek());
    let ended = on(&file, &["renew", id]);
    let nothing = "nothing is held under this id: it was given back, or it ended\n";
    assert_eq!((ended.status, ended.stdout.as_str(), ended.stderr.as_str()), (1, "", nothing));

    for args in [&["commit", id, "--cost", "1"][..], &["cancel", id]] {
        let ran = on(&file, args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains("it is the id of a lease: renew or release it"), "{ran:?}");
    }
    let reservation = reserve(&file, &[]);
    for command in ["renew", "release"] {
        let ran = on(&file, &[command, &reservation]);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        let mistake = "it is the id of a reservation: commit or cancel it";
        assert!(ran.stderr.contains(mistake), "{ran:?}");
    }
}

#[test]
fn a_memory_store_holds_nothing_for_another_command() {
    let reserved = run(&["reserve", "path=/login", "method=POST", "ip=203.0.113.7"]);
    assert_eq!(reserved.status, 0);
    assert!(
        reserved.stderr.starts_with(
            "\
note: a memory store lives in one process, so this reservation ends with this command;
      with a Redis store all processes can settle it
allowed
"
        ),
        "{}",
        reserved.stderr
    );
    let id = reserved.stdout.trim_end();
    for args in [&["commit", id, "--cost", "1"][..], &["cancel", id]] {
        let ran = run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        assert_eq!(
            ran.stderr,
            "\
error: a memory store lives in one process, so nothing is held in that of this command: name the
       configuration with the Redis store in which it is held, with --config FILE
"
        );
    }
}

#[test]
fn without_its_store_nothing_is_settled() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = configured(&server, TOKENS);
    let id = reserve(&file, &[]);
    drop(server);
    let ran = on(&file, &["cancel", &id]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    let error = "error: the store cannot be used: cannot connect to redis at ";
    assert!(ran.stderr.starts_with(error), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_an_id_or_a_time_is_refused() {
    let long = format!("a={}", "x".repeat(8_192));
    for (args, message) in [
        (&["commit", "made-up", "--cost", "1"][..], "pass it back as it was received"),
        (&["commit"], "<ID>"),
        (&["renew", ""], "pass it back as it was received"),
        (&["reserve", "--ttl", "25hour", "ip=x"], "write a time from 1s to 24hour"),
        (&["reserve", "--cost", "-1", "ip=x"], "write a whole number from 0 to"),
        (&["reserve", &long], "error: the attributes take 8201 bytes: "),
    ] {
        let ran = run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}
