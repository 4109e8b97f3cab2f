//! What a request may be, and that callers' values stay out of the log.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_config::Config;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate_server::Server;
use tonic::Code;
use tonic::metadata::MetadataKey;
use tonic::transport::Endpoint;
use tracing::Level;

use crate::support::{Service, head, request};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_millis(100);

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

/// A service whose listeners grant this.
async fn granting(limits: &str) -> Service {
    let text = format!(
        "listen: {{ http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 127.0.0.1:0, limits: {{ {limits} }} }}\n{RULES}"
    );
    let config = Config::parse(&text, "t.yaml").unwrap_or_else(|errors| panic!("{errors}"));
    Service::run(Server::bind(&config).await.unwrap())
}

/// Counts the milliseconds until the service ends a connection that has sent `begun`.
async fn lasted(address: SocketAddr, begun: &[u8]) -> u128 {
    let (mut connection, start) = (TcpStream::connect(address).await.unwrap(), Instant::now());
    connection.write_all(begun).await.unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, connection.read_to_end(&mut rest)).await.unwrap().unwrap();
    start.elapsed().as_millis()
}

/// Asks Envoy's way, with a value of this length.
async fn ask_grpc(service: &Service, length: usize) -> Result<(), Code> {
    let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
    let mut client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
    let entry = Entry { key: "a".to_owned(), value: "x".repeat(length) };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let request = RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    };
    client.should_rate_limit(request).await.map(drop).map_err(|status| status.code())
}

#[tokio::test]
async fn the_headers_of_a_request_are_as_many_and_as_large_as_configured() {
    let service = granting("headers_max: 20, header_bytes_max: 8192").await;
    let with = |count: usize, length: usize| {
        let value = "x".repeat(length);
        let names: Vec<_> = (0..count).map(|index| format!("x-{index}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), value.as_bytes())).collect();
        head("GET", "/v1/auth", &headers, 0)
    };
    assert_eq!(status(&service, &with(18, 1)).await.as_deref(), Some("200"));
    assert_eq!(status(&service, &with(19, 1)).await.as_deref(), Some("431"));
    assert_eq!(status(&service, &with(1, 7_000)).await.as_deref(), Some("200"));
    assert_eq!(status(&service, &with(1, 9_000)).await.as_deref(), Some("431"));

    let service = granting("headers_max: 200").await;
    assert_eq!(status(&service, &with(198, 1)).await.as_deref(), Some("200"));
}

#[tokio::test]
async fn headers_are_counted_on_http2_too() {
    let service = granting("headers_max: 16").await;
    assert_eq!(ask_grpc(&service, 1).await, Ok(()));
    let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
    let mut client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
    let mut request = tonic::Request::new(RateLimitRequest::default());
    for index in 0..16 {
        let name = MetadataKey::from_bytes(format!("x-{index}").as_bytes()).unwrap();
        request.metadata_mut().insert(name, "1".parse().unwrap());
    }
    let refused = client.should_rate_limit(request).await.unwrap_err();
    assert!(refused.message().contains("431"), "{refused}");
}

#[tokio::test]
async fn a_body_has_as_many_bytes_as_configured_over_http_and_grpc() {
    let body = |length: usize| format!("{{\"attributes\":{{\"a\":\"{}\"}}}}", "x".repeat(length));
    for (limits, fits, is_too_large) in
        [("body_bytes_max: 2048", 1_900, 2_100), ("body_bytes_max: 262144", 250_000, 270_000)]
    {
        let service = granting(limits).await;
        assert_eq!(service.post("/v1/check", &body(fits)).await.status, 200, "{limits}");
        assert_eq!(service.post("/v1/check", &body(is_too_large)).await.status, 413, "{limits}");
        assert_eq!(ask_grpc(&service, fits).await, Ok(()), "{limits}");
        assert_eq!(ask_grpc(&service, is_too_large).await, Err(Code::OutOfRange), "{limits}");
    }
}

#[tokio::test]
async fn each_listener_has_as_many_connections_as_configured() {
    let service = granting("connections_max: 2, admin_connections_max: 1").await;
    for (address, most, path) in [(service.http, 2, "/v1/auth"), (service.admin, 1, "/healthz")] {
        let mut held = Vec::new();
        for _ in 0..most {
            let mut connection = TcpStream::connect(address).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            connection.write_all(request.as_bytes()).await.unwrap();
            assert_ne!(connection.read(&mut [0; 1_024]).await.unwrap(), 0);
            held.push(connection);
        }
        let mut further = TcpStream::connect(address).await.unwrap();
        further.write_all(&head("GET", path, &[], 0)).await.unwrap();
        let mut reply = Vec::new();
        let mut answer = Box::pin(further.read_to_end(&mut reply));
        assert!(timeout(SOON, &mut answer).await.is_err(), "it waits for a place");
        drop(held.pop());
        assert_ne!(timeout(PATIENCE, answer).await.unwrap().unwrap(), 0);
    }
}

#[tokio::test]
async fn slow_heads_and_idle_connections_end_when_configured() {
    let service = granting("header_timeout: 300ms, idle_timeout: 1s").await;
    for address in [service.http, service.grpc, service.admin] {
        let slow = lasted(address, b"GET /v1/auth HTTP/1.1\r\nhost:").await;
        assert!((300..1_000).contains(&slow), "{slow} ms");
        assert!(lasted(address, b"").await >= 1_000);
    }
    let kept_alive = b"GET /v1/auth HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert!(lasted(service.http, kept_alive).await >= 1_000);
}

#[tokio::test]
async fn a_call_over_an_idle_http2_connection_that_ends_is_made_over_another() {
    let service = granting("idle_timeout: 200ms").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", service.grpc)).unwrap();
    let client = RateLimitServiceClient::new(endpoint.connect().await.unwrap());
    let descriptor = RateLimitDescriptor::default();
    let request = RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    };
    // Around the moment at which the connection ends, too.
    for pause_ms in [0, 190, 195, 200, 205, 210, 400] {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        client.clone().should_rate_limit(request.clone()).await.unwrap();
    }
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
