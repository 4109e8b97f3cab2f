//! What a request may be, and that callers' values stay out of the log.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_config::Config;
use tracing::Level;

use crate::support::{Service, head, request};

const RULES: &str = "rules: [{ name: per-account, key: account, limit: 2/day }]";

async fn status(service: &Service, head: &[u8]) -> Option<String> {
    let mut connection = TcpStream::connect(service.http).await.unwrap();
    // What is too long may be refused before it is read.
    let _ = connection.write_all(head).await;
    let mut reply = Vec::new();
    let _ = connection.read_to_end(&mut reply).await;
    String::from_utf8_lossy(&reply).split(' ').nth(1).map(str::to_owned)
}

#[test]
fn every_listener_is_on_loopback_unless_configured_otherwise() {
    let config = Config::parse(RULES, "t.yaml").unwrap();
    let grpc = config.listen.grpc.unwrap();
    for address in [config.listen.http, grpc, config.listen.admin] {
        assert_eq!(address.ip(), IpAddr::from([127, 0, 0, 1]));
    }
}

#[tokio::test]
async fn a_request_has_at_most_100_headers_and_64_kib_of_them() {
    let service = Service::start(RULES).await;
    let with = |count: usize, length: usize| {
        let value = "x".repeat(length);
        let names: Vec<_> = (0..count).map(|index| format!("x-{index}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), value.as_bytes())).collect();
        head("GET", "/v1/auth", &headers, 0)
    };
    // Two more are in every request.
    assert_eq!(status(&service, &with(98, 1)).await.as_deref(), Some("200"));
    assert_eq!(status(&service, &with(99, 1)).await.as_deref(), Some("431"));
    assert_eq!(status(&service, &with(1, 60_000)).await.as_deref(), Some("200"));
    assert_eq!(status(&service, &with(1, 66_000)).await.as_deref(), Some("431"));
    assert_eq!(status(&service, &with(50, 2_000)).await.as_deref(), Some("431"));
}

#[tokio::test]
async fn a_body_has_at_most_64_kib() {
    let service = Service::start(RULES).await;
    let body = |length: usize| format!("{{\"attributes\":{{\"a\":\"{}\"}}}}", "x".repeat(length));
    assert_eq!(service.post("/v1/check", &body(60_000)).await.status, 200);
    assert_eq!(service.post("/v1/check", &body(66_000)).await.status, 413);
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn values_of_callers_are_not_logged_even_when_they_are_denied_or_wrong() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // All tasks of this runtime run on this thread.
    let _guard = tracing::subscriber::set_default(lines);
    // Nobody answers at the discard port, so that the policies of the rules decide.
    let config = format!("store: {{ kind: redis, url: \"redis://127.0.0.1:9\" }}\n{RULES}");
    let service = Service::start(&config).await;
    for _ in 0..4 {
        service.post("/v1/check", r#"{"attributes":{"account":"of-a-caller"}}"#).await;
    }
    service.post("/v1/check", r#"{"attributes":{"account":"of-a-caller","x":1}}"#).await;
    service.post("/v1/refund", r#"{"attributes":{"account":"of-a-caller"}}"#).await;
    let headers =
        [("x-forwarded-uri", &b"/of-a-caller?of-a-caller"[..]), ("x-account", b"of-a-caller")];
    request(service.http, "GET", "/v1/auth", &headers, b"").await;
    request(service.admin, "GET", "/of-a-caller", &[], b"").await;
    service.stopped().await;
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("stopped"), "{logged}");
    assert!(!logged.contains("of-a-caller"), "{logged}");
}
