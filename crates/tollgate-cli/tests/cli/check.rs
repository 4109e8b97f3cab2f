//! `tollgate check`, `peek`, `refund` and `reset`.

use std::path::PathBuf;

use tempfile::TempDir;
use tollgate_testkit::RedisServer;

use crate::process::run;

const NOTE: &str = "\
note: a memory store lives in one process, so this is the answer of buckets that nobody has used \
yet;
      with a Redis store it is that of the buckets which all processes share
";

const RULES: &str = "
rules:
  - { name: per-ip, key: ip, limit: 1/day }
  - { name: trial, limit: 8/s, shadow: true }
";

fn on_redis(server: &RedisServer) -> (TempDir, PathBuf) {
    crate::process::configured(server, RULES)
}

#[test]
fn an_allowed_request_is_explained_rule_by_rule() {
    let ran = run(&["check", "path=/login", "method=POST", "ip=203.0.113.7"]);
    assert_eq!(
        ran.stdout,
        "\
allowed
  everything    allowed  999 of 1000 left, full in 0.001 s (shadow: counts, never denies)
  login-per-ip  allowed  19 of 20 left, full in 3 s
"
    );
    assert_eq!((ran.status, ran.stderr.as_str()), (0, NOTE));
}

#[test]
fn a_request_that_no_rule_applies_to_is_allowed() {
    let ran = run(&["check", "--domain", "nobody", "ip=203.0.113.7"]);
    assert_eq!(ran.stdout, "allowed: no enforced rule applies\n");
    assert_eq!((ran.status, ran.stderr.as_str()), (0, NOTE));
}

#[test]
fn json_is_what_the_http_api_answers() {
    let ran = run(&["check", "--json", "--cost", "5", "path=/api/x", "account=a1"]);
    assert_eq!(
        ran.stdout,
        concat!(
            r#"{"allowed":true,"mode":"exact","rule":"api-per-account","limit":200,"#,
            r#""remaining":195,"retry_after_ms":null,"reset_after_ms":50,"delay_ms":0,"rules":["#,
            r#"{"rule":"everything","allowed":true,"limit":1000,"remaining":995,"#,
            r#""retry_after_ms":null,"reset_after_ms":5,"delay_ms":0,"shadow":true},"#,
            r#"{"rule":"api-per-account","allowed":true,"limit":200,"remaining":195,"#,
            r#""retry_after_ms":null,"reset_after_ms":50,"delay_ms":0,"shadow":false}]}"#,
            "\n"
        )
    );
    assert_eq!(ran.status, 0);
}

#[test]
fn a_denied_request_exits_with_1_and_says_when_to_retry() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = on_redis(&server);
    let check = || run(&["check", "--config", file.to_str().unwrap(), "ip=203.0.113.7"]);
    assert_eq!(check().status, 0);
    let denied = check();
    assert_eq!((denied.status, denied.stderr.as_str()), (1, ""), "{denied:?}");
    let lines: Vec<_> = denied.stdout.lines().collect();
    assert!(lines[0].starts_with("denied by per-ip: retry after 86"), "{lines:?}");
    assert!(lines[1].starts_with("  trial   allowed  "), "{lines:?}");
    assert!(lines[2].starts_with("  per-ip  denied   0 of 1 left, retry after 86"), "{lines:?}");
    assert_eq!(lines.len(), 3);

    let other = run(&["check", "--config", file.to_str().unwrap(), "ip=203.0.113.8"]);
    assert_eq!(other.status, 0, "each address has its own bucket");
}

#[test]
fn cost_0_looks_and_spends_nothing() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = on_redis(&server);
    for _ in 0..2 {
        let ran = run(&["check", "-c", file.to_str().unwrap(), "--cost", "0", "ip=203.0.113.7"]);
        assert_eq!(ran.status, 0);
        assert!(ran.stdout.ends_with("  per-ip  allowed  1 of 1 left\n"), "{}", ran.stdout);
    }
}

#[test]
fn every_algorithm_is_put_into_its_own_words() {
    let server = RedisServer::start().unwrap();
    let rules = "
rules:
  - { name: even, match: { kind: even }, algorithm: leaky_bucket, limit: 1/day, burst: 3 }
  - { name: exports, match: { kind: slots }, algorithm: concurrency, limit: 2 }
  - { name: window, match: { kind: window }, algorithm: fixed_window, limit: 3/day }
  - { name: gate, match: { kind: gate }, limit: 3/day, blocked: { account: evil } }
";
    let (_dir, file) = crate::process::configured(&server, rules);
    let check = |attributes: &[&str]| {
        run(&[&["check", "--config", file.to_str().unwrap()], attributes].concat())
    };
    let even = check(&["kind=even"]);
    assert_eq!((even.status, even.stderr.as_str()), (0, ""));
    assert!(even.stdout.starts_with("allowed\n  even  allowed  1 of 3 in the queue, empty in 86"));
    let even = check(&["kind=even"]);
    assert_eq!(even.status, 0);
    assert!(even.stdout.starts_with("allowed: go on after 86"), "{}", even.stdout);
    assert!(even.stdout.contains("  even  allowed  2 of 3 in the queue, go on after 86"));
    let slots = check(&["kind=slots"]);
    assert_eq!(
        (slots.status, slots.stdout.as_str()),
        (0, "allowed\n  exports  allowed  0 of 2 in flight\n")
    );
    let window = check(&["kind=window"]);
    assert!(window.stdout.starts_with("allowed\n  window  allowed  2 of 3 left, full in "));
    let blocked = check(&["kind=gate", "account=evil"]);
    assert_eq!(
        (blocked.status, blocked.stdout.as_str()),
        (1, "denied by gate: it blocks this request\n  gate  denied   blocked\n")
    );
}

#[test]
fn a_peek_spends_nothing_and_says_whether_a_cost_would_pass() {
    let server = RedisServer::start().unwrap();
    let (_dir, file) = on_redis(&server);
    let peek = |args: &[&str]| run(&[&["peek", "-c", file.to_str().unwrap()], args].concat());
    for _ in 0..2 {
        let peeked = peek(&["ip=203.0.113.7"]);
        assert_eq!(peeked.status, 0);
        assert!(peeked.stdout.ends_with("  per-ip  allowed  1 of 1 left\n"), "{}", peeked.stdout);
    }
    assert_eq!(run(&["check", "-c", file.to_str().unwrap(), "ip=203.0.113.7"]).status, 0);
    assert_eq!(peek(&["ip=203.0.113.7"]).status, 0);
    let denied = peek(&["--cost", "1", "ip=203.0.113.7"]);
    assert_eq!(denied.status, 1);
    assert!(denied.stdout.starts_with("denied by per-ip: retry after 86"), "{}", denied.stdout);
    let json: serde_json::Value =
        serde_json::from_str(&peek(&["--json", "ip=203.0.113.7"]).stdout).unwrap();
    assert_eq!((&json["rule"], &json["remaining"]), (&"per-ip".into(), &0.into()));
}

#[test]
fn a_refund_gives_back_and_under_an_id_once_and_a_reset_fills() {
    let server = RedisServer::start().unwrap();
    let rules = "rules: [{ name: all, limit: 10/day }]";
    let (_dir, file) = crate::process::configured(&server, rules);
    let all = |args: &[&str]| {
        let ran = run(&[args, &["-c", file.to_str().unwrap(), "ip=203.0.113.7"]].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{args:?}");
        ran.stdout
    };
    all(&["check", "--cost", "9"]);
    assert!(all(&["refund"]).starts_with("refunded\n  all  allowed  2 of 10 left, full in "));
    for _ in 0..2 {
        let refunded = all(&["refund", "--cost", "3", "--id", "order 66"]);
        assert!(refunded.starts_with("refunded\n  all  allowed  5 of 10 left"), "{refunded}");
    }
    assert_eq!(all(&["reset"]), "reset\n  all  allowed  10 of 10 left\n");
    let json = all(&["reset", "--json"]);
    assert!(
        json.starts_with(r#"{"allowed":true,"mode":"exact","rule":"all","limit":10"#),
        "{json}"
    );
    let nobody = run(&["reset", "--domain", "nobody", "ip=203.0.113.7"]);
    assert_eq!((nobody.status, nobody.stdout.as_str()), (0, "reset: no rule applies\n"));
    assert_eq!(nobody.stderr, NOTE);
}

#[test]
fn a_store_that_does_not_answer_is_an_error() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let (_dir, file) = on_redis(&server);
    let ran = run(&["check", "--config", file.to_str().unwrap(), "ip=203.0.113.7"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("error: the store cannot be used: "), "{}", ran.stderr);
    assert!(ran.stderr.contains(&server.port().to_string()), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_asked_exits_with_2() {
    for (args, message) in [
        (&["check"][..], "<KEY=VALUE>..."),
        (&["check", "ip"], "write it as key=value, for example ip=203.0.113.7"),
        (&["check", "ip="], "the value is empty: leave out what the request does not have"),
        (&["check", "client ip=x"], "a name is 1 to 64 letters, digits, '_', '-' or '.'"),
        (&["check", "--domain", "a:b", "ip=x"], "a name is 1 to 64 letters, digits"),
        (&["check", "ip=a", "ip=b"], "error: attribute ip is given twice: give it once\n"),
        (
            &["check", "--cost", "21", "path=/login", "method=POST", "ip=x"],
            "error: cost 21 can never succeed: rule \"login-per-ip\" admits at most 20 at once\n",
        ),
        (&["check", "--config", "/nonexistent/tollgate.yaml", "ip=x"], "the file cannot be read"),
        (&["peek"], "<KEY=VALUE>..."),
        (&["refund", "--id", "", "ip=x"], "an id has 1 to 256 bytes, not 0"),
        (&["reset", "--cost", "1", "ip=x"], "unexpected argument '--cost'"),
    ] {
        let ran = run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}
