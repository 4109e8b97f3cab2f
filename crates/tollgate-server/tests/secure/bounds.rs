//! What a request may be, and that callers' values stay out of the log.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_config::Config;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tonic::transport::Endpoint;
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

impl Log {
    /// Takes every line that this thread logs, until the guard is dropped.
    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let lines = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(lines)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

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
    // All tasks of this runtime run on this thread.
    let _guard = log.listen();
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
    let logged = log.text();
    assert!(logged.contains("stopped"), "{logged}");
    assert!(!logged.contains("of-a-caller"), "{logged}");
}

#[tokio::test]
async fn denials_of_a_rule_are_one_line_with_hashes_unless_keys_are_asked_for() {
    for (keys, shown) in [("", false), ("log: { keys: plain }\n", true)] {
        let log = Log::default();
        let _guard = log.listen();
        let rules = "rules: [{ name: per-account, key: account, limit: 1/hour }]";
        let service = Service::start(&format!("{keys}{rules}")).await;
        let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
        let mut grpc = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
        for (account, count) in [("heavy", 30), ("light", 3)] {
            let body = format!(r#"{{"attributes":{{"account":"{account}"}}}}"#);
            for _ in 0..count {
                service.post("/v1/check", &body).await;
            }
            service.auth(&[("x-tollgate-account", account)]).await;
            let entry = Entry { key: "account".to_owned(), value: account.to_owned() };
            let descriptor =
                RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            let request = RateLimitRequest {
                domain: "default".to_owned(),
                descriptors: vec![descriptor],
                ..RateLimitRequest::default()
            };
            grpc.should_rate_limit(request).await.unwrap();
        }
        service.stopped().await;
        let logged = log.text();
        let lines: Vec<_> = logged.lines().filter(|line| line.contains("denied")).collect();
        let denied = lines.iter().map(|line| {
            let count = line.split_once("denied=").unwrap().1;
            count.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        assert_eq!(denied.sum::<u64>(), 29 + 2 + 2 + 2, "{logged}");
        assert!(lines.len() <= 3, "{logged}");
        assert!(lines.iter().all(|line| line.contains(" WARN ")), "{logged}");
        assert_eq!(logged.contains("account=heavy ("), shown, "{logged}");
        assert_eq!(logged.contains("heavy"), shown, "{logged}");
        assert_eq!(logged.contains("heaviest=#"), !shown, "{logged}");
    }
}
