//! The command `tollgate-conformance`: its output and its exit codes.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tollgate_testkit::redis_server::Reply;
use tollgate_testkit::{RedisCluster, RedisServer};

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn conformance(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate-conformance"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn cases(name: &str) -> String {
    format!("{}/cases/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

/// A file with a timeline of one step, whose expectation is given.
fn file(dir: &tempfile::TempDir, expect: &str) -> String {
    let path: PathBuf = dir.path().join("case.json");
    let text = format!(
        r#"[{{"name": "one", "why": "", "algorithm": "token_bucket", "start_us": 1000000,
        "quota": {{"units": 2, "period_us": 1000000, "burst": 2}},
        "steps": [{{"at_us": 100000, "cost": 1, "expect": {expect}}}]}}]"#
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Every file of Tollgate, by the names of the algorithms.
fn every_file() -> Vec<String> {
    let algorithms = [
        "token_bucket",
        "leaky_bucket",
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "concurrency",
    ];
    algorithms.map(cases).to_vec()
}

fn every_file_is_ok(store: &str) {
    let files = every_file();
    let mut args = vec!["--store", store];
    args.extend(files.iter().map(String::as_str));
    let output = conformance(&args);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{}", output.stdout);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 30);
    assert_eq!(lines[0], "classic-burst-5-at-1-per-second: ok");
    assert!(lines[..29].iter().all(|line| line.ends_with(": ok")), "{}", output.stdout);
    assert_eq!(lines[29], "29 timelines: 29 ok, 0 different, 0 unsupported");
}

#[test]
fn the_memory_store_passes_with_exit_code_0() {
    every_file_is_ok("memory");
}

#[cfg(feature = "tls")]
#[test]
fn a_server_with_tls_is_tested_with_the_certificates_of_the_options() {
    use tollgate_testkit::certificates::{Certificates, ClientCertificate};

    let certificates = Certificates::generate().unwrap();
    let server = RedisServer::builder().tls(&certificates, ClientCertificate::Needed);
    let server = server.start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let client = certificates.client();
    let ca = file("ca.pem", certificates.ca());
    let cert = file("client.pem", client.certificate());
    let key = file("client.key", client.private_key());
    let url = format!("rediss://localhost:{}", server.tls_port().unwrap());
    let cases = cases("token_bucket");
    let args = ["--store", &url, "--functions", "--ca", &ca, &cases];
    let output = conformance(&args);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("certificate"), "{}", output.stderr);
    let output = conformance(&[&args[..], &["--cert", &cert, "--key", &key]].concat());
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{}", output.stdout);
    let absent = dir.path().join("absent.pem").display().to_string();
    let output = conformance(&["--store", &url, "--ca", &absent, &cases]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("cannot read") && output.stderr.contains("absent.pem"));
}

#[test]
fn the_redis_store_passes_with_exit_code_0_and_no_key_is_left() {
    let server = RedisServer::start().unwrap();
    every_file_is_ok(&server.url());
    every_file_is_ok(&server.url());
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));
}

#[test]
fn the_store_on_a_cluster_passes_with_exit_code_0_and_no_key_is_left() {
    let cluster = RedisCluster::start(3).unwrap();
    let addresses: Vec<_> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    every_file_is_ok(&format!("redis+cluster://{}", addresses.join(",")));
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));
    }
}

#[test]
fn an_unknown_algorithm_is_unsupported_with_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("later.json");
    let text = r#"[{"name": "later", "why": "", "algorithm": "gcra", "start_us": 0,
        "quota": {"tau_us": 3}, "steps": [{"at_us": 0, "theta": 1}]}]"#;
    std::fs::write(&path, text).unwrap();
    let output = conformance(&["--store", "memory", &cases("sliding_log"), path.to_str().unwrap()]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines[2], "later: unsupported (gcra)");
    assert_eq!(lines[3], "3 timelines: 2 ok, 0 different, 1 unsupported");
}

#[test]
fn a_difference_is_named_with_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = file(&dir, r#"{"outcome": "allow", "remaining": 1, "reset_after_us": 400000}"#);
    let output = conformance(&["--store", "memory", &cases("token_bucket"), &wrong]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines[12], "one: step 0 at 100000us: reset_after_us expected 400000, got 500000");
    assert_eq!(lines[13], "13 timelines: 12 ok, 1 different, 0 unsupported");
}

#[test]
fn a_malformed_file_gives_exit_code_2_and_says_where_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, r#"{"outcome": "allow", "remaning": 1}"#);
    let output = conformance(&["--store", "memory", &cases("token_bucket"), &path]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        output.stderr,
        format!(
            "tollgate-conformance: {path}: timeline \"one\": step 0: unknown field `remaning`, \
             expected one of `outcome`, `remaining`, `reset_after_us`, `retry_after_us`, \
             `delay_us`\n"
        )
    );

    std::fs::write(&path, "[{]").unwrap();
    let output = conformance(&["--store", "memory", &path]);
    assert_eq!(output.code, Some(2));
    assert_eq!(
        output.stderr,
        format!(
            "tollgate-conformance: {path}: not a JSON list: \
             key must be a string at line 1 column 3\n"
        )
    );

    std::fs::write(&path, "[]").unwrap();
    let output = conformance(&["--store", "memory", &path]);
    assert_eq!(output.code, Some(2));
    assert_eq!(
        output.stderr,
        format!("tollgate-conformance: {path}: no timeline in it, so nothing to prove\n")
    );

    let output = conformance(&["--store", "memory", "no-such-file.json"]);
    assert_eq!(output.code, Some(2));
    assert_eq!(
        output.stderr,
        "tollgate-conformance: no-such-file.json: cannot read it: \
         No such file or directory (os error 2)\n"
    );
}

#[test]
fn wrong_arguments_give_exit_code_2() {
    for args in [&["--store", "memory"][..], &["x.json"], &[]] {
        let output = conformance(args);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(output.stderr.contains("Usage: tollgate-conformance"), "{}", output.stderr);
    }
    let output = conformance(&["--store", "postgres://x", "x.json"]);
    assert_eq!(output.code, Some(2));
    assert!(
        output.stderr.contains("give `memory`, `redis://HOST:PORT`, `redis+cluster:"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_store_that_cannot_be_reached_gives_exit_code_2() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let output = conformance(&["--store", &server.url(), &cases("token_bucket")]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    let address = server.address();
    assert!(
        output.stderr.starts_with("tollgate-conformance: ")
            && output.stderr.contains(&address.to_string())
            && output.stderr.contains("Connection refused"),
        "{}",
        output.stderr
    );
}
