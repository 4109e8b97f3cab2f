//! What one service takes of its process. Apart from other tests, which take of theirs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::Server;

use crate::support::{Service, parse};

const RULES: &str = "rules: [{ name: per-ip, key: ip, limit: 5/day }]";

const PATIENCE: Duration = Duration::from_secs(60);

const CONNECTIONS: usize = 100;
const STREAMS: u32 = 250;

/// What 25,000 half-sent requests may take.
const GROWTH_MAX: usize = 128 << 20;

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const PING: u8 = 6;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Begins as many requests as there may be streams, and a little of the body of each.
fn half_sent(path: &str, body: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal that is not indexed, with a new name.
        head.push(0);
        for text in [name, value] {
            head.push(u8::try_from(text.len()).unwrap());
            head.extend(text.bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (1..).step_by(2).take(STREAMS as usize) {
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &head));
        bytes.extend(frame(DATA, 0, stream, body));
    }
    bytes.extend(frame(PING, 0, 0, &[7; 8]));
    bytes
}

/// Reads until the service has answered a ping, before which it has read everything else.
async fn taken_in(connection: &mut TcpStream) {
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        connection.read_exact(&mut payload).await.unwrap();
        if (head[3], head[4], payload.as_slice()) == (PING, ACK, &[7; 8][..]) {
            return;
        }
    }
}

async fn open(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    timeout(PATIENCE, taken_in(&mut connection)).await.unwrap();
    connection
}

/// Returns the bytes of memory that this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn g9_requests_that_are_half_sent_take_little_memory_and_keep_nobody_out() {
    let service = Service::start(RULES).await;
    let check = async |ip: usize| {
        let body = format!("{{\"attributes\":{{\"ip\":\"10.0.0.{ip}\"}}}}");
        service.post("/v1/check", &body).await.status
    };
    assert_eq!(check(0).await, 200);
    let before = resident();
    let rls = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let cases = [
        (service.grpc, half_sent(rls, b"\0\0\0\xff\xff{")),
        (service.http, half_sent("/v1/check", b"{")),
        (service.grpc, half_sent("/grpc.health.v1.Health/Check", b"\0\0\0\xff\xff{")),
        (service.grpc, half_sent(rls, b"\0\0\0\xff\xff{")),
    ];
    // The allocator keeps what it was given back, so that of one case serves for the next.
    for (index, (address, bytes)) in cases.iter().enumerate() {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.push(open(*address, bytes).await);
        }
        let growth = resident().saturating_sub(before);
        println!("case {index}: {} KiB more", growth >> 10);
        assert!(growth < GROWTH_MAX, "case {index}: {growth} bytes for half-sent requests");
        assert_eq!(check(index + 1).await, 200, "a request in pieces is answered");
    }
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_and_one_that_is_too_low_is_told() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = Arc::new(log.reopen().unwrap());
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(file).finish();
    // All tasks of this runtime run on this thread.
    let _guard = tracing::subscriber::set_default(lines);
    let highest = 2_000;
    setrlimit(Resource::Nofile, Rlimit { current: Some(1_000), maximum: Some(highest) }).unwrap();
    let text = || std::fs::read_to_string(log.path()).unwrap();

    let mut config = parse(RULES);
    Server::bind(&config).await.unwrap();
    assert_eq!(getrlimit(Resource::Nofile).current, Some(highest));
    assert_eq!(text(), "", "the default is what can be had");

    config.listen.limits.connections_max = 1_000;
    Server::bind(&config).await.unwrap();
    let warned = text();
    assert!(warned.contains("open_files_max=2000 needed=2512"), "{warned}");

    config.listen.limits.connections_max = 700;
    Server::bind(&config).await.unwrap();
    assert_eq!(text(), warned, "1,912 are enough");
}
