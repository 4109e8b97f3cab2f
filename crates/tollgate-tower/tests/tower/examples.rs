//! The examples, run.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[allow(dead_code, reason = "a test has a main of its own")]
#[path = "../../examples/axum.rs"]
mod axum_service;
#[allow(dead_code, reason = "a test has a main of its own")]
#[path = "../../examples/tonic.rs"]
mod tonic_service;

const PATIENCE: Duration = Duration::from_secs(10);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Returns the status and the whole response.
async fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut response)).await.unwrap().unwrap();
    (response.split(' ').nth(1).unwrap().to_owned(), response)
}

#[tokio::test]
async fn the_axum_example_limits_as_it_says() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move { axum_service::serve(listener).await.unwrap() });
    let mut statuses = Vec::new();
    for request in ["POST /login", "POST /login", "POST /login", "GET /healthz", "GET /healthz"] {
        statuses.push(ask(address, request).await.0);
    }
    assert_eq!(statuses, ["200", "200", "429", "200", "200"]);
    // One unit an hour, and each 500 gives it back.
    for _ in 0..2 {
        assert_eq!(ask(address, "GET /flaky").await.0, "500");
    }
    let (status, user) = ask(address, "GET /users/7").await;
    assert_eq!(status, "200");
    assert!(user.contains("user 7; you may ask "), "{user}");
    assert!(user.contains("x-ratelimit-limit: 5\r\n"), "{user}");
    server.abort();
}

#[tokio::test]
async fn the_tonic_example_limits_as_it_says() {
    let (listener, address) = listen().await;
    let server = tokio::spawn(async move { tonic_service::serve(listener).await.unwrap() });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let client = HealthClient::new(channel.connect().await.unwrap());
    let check = async || {
        let mut client = client.clone();
        let checked = client.check(HealthCheckRequest::default());
        timeout(PATIENCE, checked).await.unwrap()
    };
    for remaining in ["2", "1", "0"] {
        let answer = check().await.unwrap();
        assert_eq!(answer.metadata().get("x-ratelimit-remaining").unwrap(), remaining);
    }
    let denied = check().await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.message().starts_with("the rate limit is used up: try again in "), "{denied}");
    let wait = denied.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    let wait: u64 = wait.parse().unwrap();
    assert!((1..=3_000).contains(&wait), "{wait}");
    assert_eq!(denied.metadata().get("x-ratelimit-rule").unwrap(), "checks-per-ip");
    server.abort();
}
