//! `tollgate bench`: loads, and what is told of them.

use std::fs;

use tollgate_testkit::RedisServer;

use crate::process::{Service, run};

/// The value behind a name in the table.
pub(crate) fn value<'t>(table: &'t str, name: &str) -> &'t str {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in {table}")).split_whitespace().nth(1).unwrap()
}

#[test]
fn a_load_on_a_redis_is_admitted_as_the_limit_says_and_told_in_a_table_and_in_files() {
    let server = RedisServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let [json, svg] = ["run.json", "run.svg"].map(|name| dir.path().join(name));
    let ran = run(&[
        "bench",
        &server.url(),
        "--rate=500",
        "--duration=1s",
        "--keys=1",
        "--limit=100/hour",
        "--json",
        json.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.stderr, "", "no line of progress when nobody watches");
    assert_eq!(value(&ran.stdout, "offered"), "500.0/s");
    assert_eq!(value(&ran.stdout, "allowed"), "100");
    assert_eq!(value(&ran.stdout, "denied"), "400");
    assert_eq!(value(&ran.stdout, "errors"), "0");
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&json["allowed"], &json["denied"]), (&100.into(), &400.into()));
    assert_eq!((&json["keys"], &json["duration_s"]), (&1.into(), &1.0.into()));
    assert_eq!((&json["unsent"], &json["attribute"]), (&0.into(), &"ip".into()));
    assert_eq!((&json["prefix"], &json["domain"]), (&"tollgate-bench".into(), &().into()));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["latency_us"]["p99"].as_u64().unwrap() > 0);
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg "));
}

#[test]
fn what_cannot_be_loaded_is_said() {
    for (url, problem) in [
        (
            "ftp://127.0.0.1",
            "cannot tell what \"ftp://127.0.0.1\" is: write http://HOST:PORT, grpc",
        ),
        ("grpc://127.0.0.1", "\"127.0.0.1\" names no port: write grpc://HOST:PORT"),
        ("grpc://127.0.0.1:1", "cannot reach 127.0.0.1:1"),
        ("http://127.0.0.1:1", "cannot reach 127.0.0.1:1"),
        ("https://127.0.0.1:1", "TLS is not measured: give the address behind it, as http://HOST"),
        ("grpcs://127.0.0.1:1", "TLS is not measured: give the address behind it, as grpc://HOST"),
        (
            "http://127.0.0.1:1/v1/check",
            "what is asked at a service is always the same, so its URL has no path: write \
             http://127.0.0.1:1 without \"/v1/check\"",
        ),
    ] {
        let ran = run(&["bench", url, "--duration=100ms"]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: {problem}")), "{ran:?}");
    }
}

#[test]
fn what_would_be_ignored_or_contradicts_itself_is_refused() {
    let (http, redis) = ("http://127.0.0.1:1", "redis://127.0.0.1:1");
    for (args, problem) in [
        (&[http, "ip=1"][..], "ip is the key, whose values the load makes: leave out ip=VALUE"),
        (&[http, "--limit=1/s"], "--limit is for a Redis"),
        (&["grpc://127.0.0.1:1", "--prefix=x"], "--prefix is for a Redis"),
        (&[redis, "--domain=shop"], "--domain is for a service"),
        (&[redis, "path=/login"], "KEY=VALUE is for a service"),
        (&[redis, "--svg=-"], "a drawing is not written to stdout: name a file with --svg"),
        (&[redis, "--json=x", "--svg=./x"], "--json and --svg both name x: one would overwrite"),
    ] {
        let ran = run(&[&["bench"], args].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: {problem}")), "{ran:?}");
    }
}

#[test]
fn a_load_on_a_service_asks_its_check_api_and_counts_what_it_denies() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollgate.yaml");
    let rule = "{ name: per-ip, match: { path: /login }, key: [ip], limit: 100/hour }";
    fs::write(&file, format!("rules: [{rule}]\n")).unwrap();
    let service = Service::start(&["--config", file.to_str().unwrap()]);
    let url = format!("http://{}", service.http);
    let load = ["--rate=500", "--duration=1s", "--keys=1", "--connections=4"];
    let ran = run(&[&["bench", &url, "path=/login"], &load[..]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((value(&ran.stdout, "allowed"), value(&ran.stdout, "denied")), ("100", "400"));
    assert!(!ran.stdout.contains("no rule applied"), "{ran:?}");
    // Without the path no rule applies, and everything is allowed.
    let ran = run(&[&["bench", &url], &load[..]].concat());
    assert_eq!((value(&ran.stdout, "allowed"), value(&ran.stdout, "denied")), ("500", "0"));
    assert!(ran.stdout.contains("\nno rule applied to 500 of the requests: "), "{ran:?}");
    // Over HTTP the port of gRPC gives no verdict, whatever its status.
    let grpc = format!("http://{}", service.grpc);
    let ran = run(&[&["bench", &grpc], &load[..]].concat());
    assert_eq!((ran.status, value(&ran.stdout, "errors")), (1, "500"), "{ran:?}");
    let stranger = format!("the first error: {} is no check API of Tollgate", service.grpc);
    assert!(ran.stdout.contains(&stranger), "{ran:?}");
    service.signal(rustix::process::Signal::TERM);
    assert_eq!(service.ended().0, 0);
}

#[test]
fn a_load_over_grpc_asks_as_envoy_does_and_counts_what_is_denied_and_what_fails() {
    let dir = tempfile::tempdir().unwrap();
    let [file, json] = ["tollgate.yaml", "run.json"].map(|name| dir.path().join(name));
    let rule =
        "{ name: per-ip, domain: shop, match: { path: /login }, key: [ip], limit: 100/hour }";
    fs::write(&file, format!("rules: [{rule}]\n")).unwrap();
    let service = Service::start(&["--config", file.to_str().unwrap()]);
    let url = format!("grpc://{}", service.grpc);
    let load = ["--rate=500", "--duration=1s", "--keys=1", "--connections=2"];
    let limited = ["bench", &url, "path=/login", "--domain=shop", "--json", json.to_str().unwrap()];
    let ran = run(&[&limited, &load[..]].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((value(&ran.stdout, "allowed"), value(&ran.stdout, "denied")), ("100", "400"));
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&json["url"], &json["errors"]), (&url.clone().into(), &0.into()));
    // Without the path no rule applies, and everything is allowed.
    let ran = run(&[&["bench", &url, "--domain=shop"], &load[..]].concat());
    assert_eq!((value(&ran.stdout, "allowed"), value(&ran.stdout, "denied")), ("500", "0"));
    assert!(ran.stdout.contains("\nno rule applied to 500 of the requests: "), "{ran:?}");
    // What is no gRPC service fails, and it is told how.
    let http = format!("grpc://{}", service.http);
    let ran = run(&[&["bench", &http], &load[..]].concat());
    assert_eq!(ran.status, 1, "{ran:?}");
    assert_eq!(value(&ran.stdout, "errors"), "500");
    assert!(ran.stdout.ends_with("\nthe first error: status 404\n"), "{ran:?}");
    service.signal(rustix::process::Signal::TERM);
    assert_eq!(service.ended().0, 0);
}
