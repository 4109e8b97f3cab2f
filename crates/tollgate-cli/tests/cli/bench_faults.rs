//! `tollgate bench` on what fails, stalls or is interrupted.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tollgate_testkit::RedisServer;

use crate::bench::value;
use crate::process::{Running, run};

/// How long what a load does may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

const ALLOWED: &str = "{\"allowed\":true,\"rules\":[{}]}";

/// Serves each connection by `serve`, which is given its number. The threads end with the test.
fn served(serve: impl Fn(usize, TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = serve.clone();
            thread::spawn(move || serve(number, stream.unwrap()));
        }
    });
    address
}

/// Reads one request, and tells whether there was one.
fn asked(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\"}}") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        request.extend(byte);
    }
    true
}

/// Answers one request. Whoever asked may be gone.
fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let len = body.len();
    let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {len}\r\n\r\n{body}");
}

fn latency_ms(table: &str, name: &str) -> f64 {
    let line = table.lines().find(|line| line.starts_with(name)).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    let factor = match words[2] {
        "us" => 1e-3,
        "ms" => 1.0,
        _ => 1e3,
    };
    words[1].parse::<f64>().unwrap() * factor
}

#[test]
fn a_web_server_is_no_check_api_and_a_refusal_is_told_in_its_words() {
    for (status, body, error) in [
        ("200 OK", "<html></html>", "is no check API of Tollgate: status 200 without a verdict"),
        ("404 Not Found", "", "is no check API of Tollgate: status 404"),
        ("503 Oh", "{\"detail\":\"the store is away\"}", "status 503: the store is away"),
    ] {
        let address = served(move |_, mut stream| {
            while asked(&mut stream) {
                answer(&mut stream, status, body);
            }
        });
        let url = format!("http://{address}");
        let ran = run(&["bench", &url, "--rate=100", "--duration=500ms", "--connections=2"]);
        assert_eq!((ran.status, value(&ran.stdout, "errors")), (1, "50"), "{ran:?}");
        assert_eq!(value(&ran.stdout, "allowed"), "0");
        let told = ran.stdout.lines().find(|line| line.starts_with("the first error: "));
        assert!(told.is_some_and(|told| told.ends_with(error)), "{ran:?}");
        assert_ne!(value(&ran.stdout, "p50"), "0", "failures have a latency: {ran:?}");
    }
}

#[test]
fn all_connections_are_open_before_they_are_needed() {
    let (sender, opened) = mpsc::channel();
    let address = served(move |number, mut stream| {
        sender.send(number).unwrap();
        while asked(&mut stream) {
            answer(&mut stream, "200 OK", ALLOWED);
        }
    });
    let url = format!("http://{address}");
    let ran = run(&["bench", &url, "--rate=1", "--duration=1s", "--connections=4"]);
    assert_eq!((ran.status, value(&ran.stdout, "allowed")), (0, "1"), "{ran:?}");
    (0..4).for_each(|_| assert!(opened.recv_timeout(PATIENCE).unwrap() < 4));
}

#[test]
fn a_connection_that_was_closed_while_idle_is_replaced_and_nothing_fails() {
    let address = served(|_, mut stream| {
        for _ in 0..5 {
            if asked(&mut stream) {
                answer(&mut stream, "200 OK", ALLOWED);
            }
        }
    });
    let url = format!("http://{address}");
    let ran = run(&["bench", &url, "--rate=100", "--duration=500ms", "--connections=1"]);
    assert_eq!((ran.status, value(&ran.stdout, "allowed")), (0, "50"), "{ran:?}");
}

#[test]
fn a_service_that_stalls_for_good_is_seen_to_stall() {
    let address = served(|_, mut stream| {
        (0..10).for_each(|_| {
            asked(&mut stream);
            answer(&mut stream, "200 OK", ALLOWED);
        });
        // No answer, and no end either, until the caller gives up.
        while asked(&mut stream) {}
    });
    let url = format!("http://{address}");
    let ran = run(&["bench", &url, "--rate=100", "--duration=1s", "--connections=1"]);
    assert_eq!((ran.status, value(&ran.stdout, "allowed")), (1, "10"), "{ran:?}");
    assert_eq!(value(&ran.stdout, "errors"), "90");
    assert!(latency_ms(&ran.stdout, "p50") > 4_000.0, "{ran:?}");
    assert!(latency_ms(&ran.stdout, "max") > 9_000.0, "{ran:?}");
    assert!(ran.stdout.contains("\n89 were due and not sent: "), "{ran:?}");
}

#[test]
fn an_interrupted_load_tells_and_writes_what_it_has_seen() {
    let dir = tempfile::tempdir().unwrap();
    for (signal, name, status) in [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)] {
        let json = dir.path().join(name);
        // The signal comes once answers have.
        let (sender, answered) = mpsc::channel();
        let address = served(move |_, mut stream| {
            while asked(&mut stream) {
                answer(&mut stream, "200 OK", ALLOWED);
                let _ = sender.send(());
            }
        });
        let url = format!("http://{address}");
        let json_arg = json.to_str().unwrap();
        let load = ["--rate=200", "--duration=1hour", "--connections=2", "--json", json_arg];
        let running = Running::start(&[&["bench", &url], &load[..]].concat());
        (0..20).for_each(|_| answered.recv_timeout(PATIENCE).unwrap());
        running.signal(signal);
        let (ended, table) = running.ended();
        assert_eq!(ended, Some(status), "{table}");
        let allowed: u64 = value(&table, "allowed").parse().unwrap();
        assert!((20..2_000).contains(&allowed), "{table}");
        assert!(table.contains(&format!("\ninterrupted by {name} after ")), "{table}");
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!((&json["allowed"], &json["interrupted_by"]), (&allowed.into(), &name.into()));
    }
}

#[test]
fn a_file_that_cannot_be_written_loses_no_figures_and_a_dash_is_stdout() {
    let server = RedisServer::start().unwrap();
    let load = ["--rate=100", "--duration=200ms", "--keys=1"];
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("gone/run.json");
    let nowhere = nowhere.to_str().unwrap();
    let ran = run(&[&["bench", &server.url(), "--json", nowhere], &load[..]].concat());
    assert_eq!((ran.status, value(&ran.stdout, "allowed")), (2, "20"), "{ran:?}");
    assert!(ran.stderr.starts_with(&format!("error: cannot write {nowhere}: ")), "{ran:?}");
    let ran = run(&[&["bench", &server.url(), "--json", "-"], &load[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.status, &json["allowed"]), (0, &20.into()));
    assert_eq!(value(&ran.stderr, "allowed"), "20");
}

#[test]
fn runs_on_a_redis_have_buckets_of_their_own_and_are_no_nodes_of_applications() {
    let server = RedisServer::start().unwrap();
    let load = ["--rate=100", "--duration=1500ms", "--keys=1", "--limit=100/hour"];
    for prefix in [&[][..], &[], &["--prefix=mine"]] {
        let ran = run(&[&["bench", &server.url()], &load[..], prefix].concat());
        assert_eq!((ran.status, value(&ran.stdout, "allowed")), (0, "100"), "{ran:?}");
    }
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    connection.write_all(b"KEYS *\r\nQUIT\r\n").unwrap();
    let mut keys = String::new();
    connection.read_to_string(&mut keys).unwrap();
    let keys: Vec<_> = keys.lines().filter(|line| line.contains(':')).collect();
    let begin = |prefix| keys.iter().filter(|key| key.starts_with(prefix)).count();
    assert!(begin("tollgate-bench:") >= 2 && begin("mine:") >= 1, "{keys:?}");
    assert_eq!(begin("tollgate:"), 0, "{keys:?}");
}
