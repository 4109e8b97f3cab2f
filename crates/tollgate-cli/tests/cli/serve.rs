//! `tollgate serve`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::{Service, begun, post, run};

const LOGIN: &str = r#"{"attributes":{"path":"/login","method":"POST","ip":"203.0.113.7"}}"#;

#[test]
fn without_a_configuration_it_says_what_it_does_and_what_to_try() {
    let service = Service::start(&[]);
    let (http, grpc, admin) = (service.http, &service.grpc, service.admin);
    let (welcome, logged) = service.said.rsplit_once("\n\n").unwrap();
    assert_eq!(
        welcome,
        format!(
            "\
No configuration was given, so these are the rules of the built-in example, with buckets in the
memory of this process:

  everything       1000/s burst 1000 for all together (shadow: counts, never denies)
  login-per-ip     20/min burst 20 for each ip, if path /login and method POST
  api-per-account  100/s burst 200 for each account, if path /api/*

The 21st login from one address within a minute is denied. Ask once, or 21 times:

  curl -i http://{http}/v1/check -d '{LOGIN}'
  curl -s 'http://{http}/v1/check?[1-21]' -o /dev/null -w '%{{http_code}}\\n' -d '{LOGIN}'

What was counted is at http://{admin}/metrics

For rules of your own:

  tollgate example > tollgate.yaml
  tollgate serve --config tollgate.yaml

For one budget that all processes share, keep it in Redis; in tollgate.yaml:

  store:
    kind: redis
    url: redis://127.0.0.1:6379"
        )
    );
    let line = format!(
        " INFO serving http={http} grpc={grpc} admin={admin} store=memory rules=3 envoy_limits=0 \
         config=built-in example\n"
    );
    assert!(logged.ends_with(&line), "{logged}");
}

#[test]
fn the_printed_request_is_denied_from_the_21st_on() {
    let service = Service::start(&[]);
    let denied = (0..21).filter(|_| post(service.http, "/v1/check", LOGIN).contains(" 429 Too"));
    assert_eq!(denied.count(), 1);
}

#[test]
fn both_signals_end_it_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let service = Service::start(&[]);
        service.signal(signal);
        let (status, log) = service.ended();
        assert_eq!(status, 0, "{log}");
        assert!(log.ends_with(" INFO stopped\n"), "{log}");
    }
}

#[test]
fn a_signal_lets_a_request_in_flight_finish() {
    let service = Service::start(&[]);
    let mut in_flight = begun(service.http, "/v1/check", LOGIN.len());
    // Its answer proves that the first connection has been accepted.
    post(service.http, "/v1/peek", LOGIN);
    service.signal(Signal::TERM);
    assert!(service.next_line().contains(" INFO stopping, finishing requests in flight"));
    in_flight.write_all(LOGIN.as_bytes()).unwrap();
    let mut reply = String::new();
    in_flight.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    assert_eq!(service.ended().0, 0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (second, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let service = Service::start(&[]);
        let _in_flight = begun(service.http, "/v1/check", LOGIN.len());
        post(service.http, "/v1/peek", LOGIN);
        service.signal(Signal::TERM);
        assert!(service.next_line().contains("stopping"));
        service.signal(second);
        let (ended, log) = service.ended();
        assert_eq!(ended, status, "{log}");
        assert!(log.contains(" WARN second signal, requests in flight are given up"), "{log}");
    }
}

#[test]
fn a_port_in_use_is_named_with_the_option_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for name in ["http", "grpc", "admin"] {
        let option = format!("--{name}");
        let mut args = vec!["serve".to_owned()];
        for other in ["http", "grpc", "admin"] {
            let at = if other == name { address.to_string() } else { "127.0.0.1:0".to_owned() };
            args.extend([format!("--{other}"), at]);
        }
        let ran = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        assert_eq!(
            ran.stderr,
            format!(
                "error: cannot listen on {address} (listen.{name}): another process has this \
                 port: stop it, or choose another address with {option} ADDR\n"
            )
        );
    }
}

#[test]
fn one_port_for_two_purposes_is_refused_by_name() {
    for (args, port) in [
        (&["serve", "--http", "127.0.0.1:4711", "--admin", "127.0.0.1:4711"][..], 4711),
        (&["serve", "--http", "0.0.0.0:4711", "--admin", "127.0.0.1:4711"], 4711),
        (&["serve", "--http", "127.0.0.1:9090"], 9090),
    ] {
        let ran = run(args);
        assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
        assert_eq!(
            ran.stderr,
            format!(
                "error: listen.http and listen.admin both take port {port}: give each its own, with \
                 --http ADDR or --admin ADDR\n"
            ),
            "{args:?}"
        );
    }
}

#[test]
fn a_configuration_with_mistakes_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollgate.yaml");
    fs::write(&file, "rules:\n  - name: login\n    limit: 20\n").unwrap();
    let ran = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains(&format!("{}:3:12\n", file.display())), "{}", ran.stderr);

    let ran = run(&["serve", "--http", "8080"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("write it as address:port, for example 127.0.0.1:8080"));
}

#[test]
fn a_configuration_of_ones_own_starts_without_the_welcome() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollgate.yaml");
    // Nobody answers at the discard port, and the password is not for the log.
    let text = "
store: { kind: redis, url: \"redis://user:secret@127.0.0.1:9\" }
rules: [{ name: all, limit: 9/s, on_store_failure: open }]
";
    fs::write(&file, text).unwrap();
    let service = Service::start(&["--log-format", "json", "--config", file.to_str().unwrap()]);
    let lines: Vec<serde_json::Value> =
        service.said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["level"], "WARN");
    assert_eq!(lines[0]["message"], "store does not answer yet, rules decide by their policy");
    assert_eq!(lines[1]["message"], "serving");
    assert_eq!(lines[1]["http"], service.http.to_string());
    assert_eq!(lines[1]["store"], "redis://***@127.0.0.1:9");
    assert_eq!(lines[1]["rules"], 1);
    assert_eq!(lines[1]["config"], file.to_str().unwrap());
    assert!(!service.said.contains("secret"), "{}", service.said);
    assert!(post(service.http, "/v1/check", LOGIN).contains("\"mode\":\"open\""));
}

#[test]
fn requests_leave_no_line_each_in_the_log_and_denials_a_summary() {
    let service = Service::start(&[]);
    for _ in 0..25 {
        post(service.http, "/v1/check", LOGIN);
    }
    post(service.http, "/v1/check", "{");
    post(service.http, "/nowhere", "");
    service.signal(Signal::TERM);
    let (_, log) = service.ended();
    let (summaries, others): (Vec<_>, Vec<_>) =
        log.lines().partition(|line| line.contains("requests denied"));
    assert_eq!(others.len(), 2, "{log}");
    // A machine that is slow may take longer than the interval, and so write a second one.
    assert!(summaries.len() < 5, "{log}");
    let denied = summaries.iter().map(|line| {
        let count = line.split_once("denied=").unwrap().1.split(' ').next().unwrap();
        count.parse::<u64>().unwrap()
    });
    assert_eq!(denied.sum::<u64>(), 5, "{log}");
    assert!(!log.contains("203.0.113"), "{log}");
}

#[test]
fn a_gateway_that_is_not_trusted_is_pointed_out_once() {
    let service = Service::start(&[]);
    let auth = |headers: &str| {
        let mut connection = TcpStream::connect(service.http).unwrap();
        write!(
            connection,
            "GET /v1/auth HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n"
        )
        .unwrap();
        let mut reply = String::new();
        connection.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    };
    auth("x-forwarded-uri: /\r\n");
    for _ in 0..3 {
        auth("x-forwarded-uri: /\r\nx-forwarded-for: 203.0.113.7\r\n");
    }
    for _ in 0..3 {
        auth("");
    }
    service.signal(Signal::TERM);
    let (_, log) = service.ended();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    assert!(warnings[0].contains("add it to trusted_proxies"), "{log}");
    assert!(warnings[1].contains("have the gateway set x-forwarded-uri"), "{log}");
}

#[test]
fn a_directory_of_limits_for_envoy_is_served_without_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(
        "shop.yaml",
        "domain: shop\ndescriptors:\n  - key: tenant\n    detailed_metric: true\n    rate_limit: { \
         unit: day, requests_per_unit: 5 }\n",
    );
    let path = dir.path().to_str().unwrap();
    let service = Service::start(&["--envoy-config", path]);
    let (warning, logged) = service.said.rsplit_once("\n  =").unwrap();
    assert!(warning.contains("warning: `detailed_metric` has no effect"), "{warning}");
    let told = format!("store=memory rules=0 envoy_limits=1 config={path}\n");
    assert!(logged.ends_with(&told), "{logged}");
    assert!(TcpStream::connect(service.grpc.parse::<SocketAddr>().unwrap()).is_ok());

    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("tollgate.yaml");
    fs::write(&file, "envoy: { headers: all }\n").unwrap();
    let file = file.to_str().unwrap();
    let service = Service::start(&["--config", file, "--envoy-config", path]);
    assert!(service.said.contains("rules=0 envoy_limits=1"), "{}", service.said);
    assert_eq!(
        run(&["serve", "--config", file]).status,
        2,
        "rules may be missing beside limits only"
    );

    write("cart.yaml", "domain: shop\n");
    fs::write(file, "envoi: {}\n").unwrap();
    let ran = run(&["serve", "--config", file, "--envoy-config", path]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("error: the file has no field `envoi`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: the domain `shop` has a file already"), "{}", ran.stderr);
}

#[test]
fn limits_that_break_between_two_starts_are_taken_from_the_state_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("limits")).unwrap();
    let text = "domain: shop\ndescriptors:\n  - key: tenant\n    rate_limit: { unit: day, \
                requests_per_unit: 5 }\n";
    fs::write(path("limits/shop.yaml"), text).unwrap();
    fs::write(path("tollgate.yaml"), "state_dir: state\n").unwrap();
    let (config, limits) = (path("tollgate.yaml"), path("limits"));
    let options = ["--config", config.as_str(), "--envoy-config", limits.as_str()];
    drop(Service::start(&options));

    fs::write(path("limits/shop.yaml"), text.replace("key", "kye")).unwrap();
    let service = Service::start(&options);
    assert!(service.said.contains("error: a descriptor has no field `kye`"), "{}", service.said);
    assert!(service.said.contains("envoy_limits=1"), "{}", service.said);
    drop(service);

    fs::remove_dir_all(path("state")).unwrap();
    let ran = run(&["serve", options[0], options[1], options[2], options[3]]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.contains("error: the limits for Envoy cannot be had"), "{}", ran.stderr);
}

#[test]
fn envoy_can_be_left_out() {
    let service = Service::start(&["--grpc", "off"]);
    assert_eq!(service.grpc, "off");
    let ran = run(&["serve", "--grpc", "off", "--envoy-config", "."]);
    assert_eq!(ran.status, 2);
    let ran = run(&["serve", "--grpc", "8081"]);
    assert!(ran.stderr.contains("for example 127.0.0.1:8081, or off"), "{}", ran.stderr);
}

#[test]
fn workers_are_as_many_as_asked_for() {
    let service = Service::start(&["--workers", "3"]);
    // Named by the runtime; the main thread is named after the program. Each names itself when it runs
    // for the first time.
    let named = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", service.id())).unwrap();
        let names =
            tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
        names.filter(|name| name.starts_with("tokio-")).count()
    };
    let patience = Instant::now() + Duration::from_secs(10);
    while named() < 3 && Instant::now() < patience {
        thread::yield_now();
    }
    assert_eq!(named(), 3);
    assert_eq!(run(&["serve", "--workers", "0"]).status, 2);
}

#[cfg(feature = "otlp")]
#[test]
fn the_environment_turns_traces_on_and_what_makes_no_sense_is_told() {
    // Nobody answers at the discard port.
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ];
    let service = Service::start_with(&variables, &["--log-format", "json"]);
    let lines: Vec<serde_json::Value> =
        service.said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(lines[0]["level"], "WARN");
    let ignored = lines[0]["message"].as_str().unwrap();
    assert!(ignored.starts_with("OTEL_TRACES_SAMPLER=sometimes is ignored: "), "{ignored}");
    assert_eq!(lines.last().unwrap()["traces_to"], "http://127.0.0.1:9");
    assert!(post(service.http, "/v1/check", LOGIN).contains(" 200 OK"));
    service.signal(Signal::TERM);
    assert_eq!(service.ended().0, 0);
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_configuration_that_asks_for_traces_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tollgate.yaml");
    fs::write(&file, "tracing: { otlp: {} }\nrules: [{ name: all, limit: 9/s }]\n").unwrap();
    let any = "127.0.0.1:0";
    let ports = ["serve", "--http", any, "--grpc", any, "--admin", any];
    let refused = run(&[&ports[..], &["--config", file.to_str().unwrap()]].concat());
    assert_eq!(refused.status, 2);
    assert_eq!(
        refused.stderr,
        "error: traces cannot be sent (tracing.otlp): this binary was built without the feature \
         `otlp`: take one that has it, or remove the section\n"
    );
}
