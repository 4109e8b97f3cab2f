//! What a request may be.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
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

use crate::support::{Service, head};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_millis(100);

/// How long an orchestrator waits for a probe as a rule.
const ONE_PROBE: Duration = Duration::from_secs(1);

const KEPT_ALIVE: &[u8] = b"GET /v1/auth HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// What HTTP/2 begins with.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

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
async fn a_body_has_as_many_bytes_as_configured_and_a_request_of_envoy_4_mib() {
    let body = |length: usize| format!("{{\"attributes\":{{\"a\":\"{}\"}}}}", "x".repeat(length));
    for (limits, fits, is_too_large) in
        [("body_bytes_max: 2048", 1_900, 2_100), ("body_bytes_max: 262144", 250_000, 270_000)]
    {
        let service = granting(limits).await;
        assert_eq!(service.post("/v1/check", &body(fits)).await.status, 200, "{limits}");
        assert_eq!(service.post("/v1/check", &body(is_too_large)).await.status, 413, "{limits}");
        assert_eq!(ask_grpc(&service, 4_194_000).await, Ok(()), "{limits}");
        assert_eq!(ask_grpc(&service, 4_195_000).await, Err(Code::OutOfRange), "{limits}");
        let refused = "tollgate_requests_total{endpoint=\"envoy\",status=\"413\"}";
        assert_eq!(service.metric(refused).await, Some(1.0));
    }
}

#[tokio::test]
async fn each_listener_has_as_many_connections_as_configured() {
    let service = granting("connections_max: 2").await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = TcpStream::connect(service.http).await.unwrap();
        connection.write_all(KEPT_ALIVE).await.unwrap();
        assert_ne!(connection.read(&mut [0; 1_024]).await.unwrap(), 0);
        held.push(connection);
    }
    let mut further = TcpStream::connect(service.http).await.unwrap();
    further.write_all(&head("GET", "/v1/auth", &[], 0)).await.unwrap();
    let mut reply = Vec::new();
    let mut answer = Box::pin(further.read_to_end(&mut reply));
    assert!(timeout(SOON, &mut answer).await.is_err(), "it waits for a place");
    drop(held.pop());
    assert_ne!(timeout(PATIENCE, answer).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn g9_long_heads_that_are_left_unfinished_are_bounded_together() {
    const HEADS: usize = 800;
    const HEAD_LEN: usize = 60 << 10;
    // The first 8 KiB of each are not counted.
    const FITTING: usize = (32 << 20) / (HEAD_LEN - (8 << 10));
    let service = Service::start(RULES).await;
    let mut begun = b"GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nx: ".to_vec();
    begun.resize(HEAD_LEN, b'x');
    let mut held = Vec::new();
    for _ in 0..HEADS {
        let mut connection = TcpStream::connect(service.http).await.unwrap();
        // Those that are refused may be so before they have sent all.
        let _ = connection.write_all(&begun).await;
        held.push(connection);
    }
    let start = Instant::now();
    while held.len() > FITTING && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let is_open = |connection: &TcpStream| {
            let read = connection.try_read(&mut [0; 8]);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        held.retain(is_open);
    }
    assert!(held.len() <= FITTING, "{} of {HEADS} are kept", held.len());
    assert!(held.len() > FITTING / 2, "{} of {HEADS} are kept", held.len());
    assert_eq!(service.auth(&[]).await.status, 200);
    held.clear();
    let name = "x".repeat(HEAD_LEN);
    let answered = async || service.auth(&[("x", &name)]).await.status;
    assert_eq!(answered().await, 200);
}

#[tokio::test]
async fn who_holds_all_connections_of_the_admin_listener_does_not_keep_a_probe_out() {
    let service = granting("admin_connections_max: 8").await;
    let mut held = Vec::new();
    // Without a word, in a head, before and after a request, and over HTTP/2.
    for begun in [&b""[..], b"GET /healthz HTTP/1.1\r\nhost:", KEPT_ALIVE, HTTP2] {
        for _ in 0..4 {
            let mut connection = TcpStream::connect(service.admin).await.unwrap();
            connection.write_all(begun).await.unwrap();
            held.push(connection);
        }
    }
    for _ in 0..20 {
        let answer = timeout(ONE_PROBE, service.admin("/healthz")).await;
        assert_eq!(answer.expect("a probe waits for 1 s at most").status, 200);
    }
    // The first has waited for the longest, and so has gone.
    assert_eq!(timeout(PATIENCE, held[0].read(&mut [0; 8])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn slow_heads_and_idle_connections_end_when_configured() {
    let service = granting("header_timeout: 300ms, idle_timeout: 1s").await;
    for address in [service.http, service.grpc, service.admin] {
        let slow = lasted(address, b"GET /v1/auth HTTP/1.1\r\nhost:").await;
        assert!((300..1_000).contains(&slow), "{slow} ms");
        assert!(lasted(address, b"").await >= 1_000);
    }
    assert!(lasted(service.http, KEPT_ALIVE).await >= 1_000);
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
    // Before it ends and long after. In that very moment a client may take a call back that it has not
    // sent yet, and says so.
    for pause_ms in [0, 50, 1_000, 50, 1_000] {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        client.clone().should_rate_limit(request.clone()).await.unwrap();
    }
}
