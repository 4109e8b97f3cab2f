//! The recipe of `examples/nginx`, run by a real nginx. Its clients need several
//! loopback addresses, which only Linux has without further ado.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "nginx/gateway.rs"]
mod gateway;
#[path = "nginx/origin.rs"]
mod origin;
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tollgate_testkit::RedisServer;

use crate::gateway::Gateway;
use crate::origin::Origin;
use crate::support::{Reply, Service, exchange, request};

const THREE_PER_IP: &str = "
trusted_proxies: [127.0.0.1]
rules: [{ name: per-ip, key: ip, limit: 3/hour }]
";

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Reply {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    request(gateway.address(), "GET", path, &headers, b"").await
}

/// Asks as the client 127.0.0.`client`, which is nobody that Tollgate trusts.
async fn get_from(client: u8, gateway: &Gateway, url: &str, headers: &[(&str, &str)]) -> Reply {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, client], 0).into()).unwrap();
    let connection = socket.connect(gateway.address()).await.unwrap();
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    exchange(connection, "GET", url, &headers, b"").await
}

/// Waits until nobody listens there any more.
async fn wait_until_gone(address: SocketAddr) {
    for _ in 0..1_000 {
        if TcpStream::connect(address).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{address} still answers");
}

#[tokio::test]
async fn requests_within_the_limit_pass_and_others_are_told_when_to_retry() {
    let (service, origin) = (Service::start(THREE_PER_IP).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    for remaining in ["2", "1", "0"] {
        let reply = get(&gateway, "/page?x=1", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "GET /page?x=1 0\n"));
        assert_eq!(reply.header("x-ratelimit-limit"), Some("3"));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(remaining));
        assert!(reply.header("x-ratelimit-reset").is_some(), "{reply:?}");
    }
    let denied = get(&gateway, "/page", &[]).await;
    assert_eq!(denied.status, 429);
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1_190..=1_200).contains(&wait), "{wait}");
    assert_eq!(denied.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(origin.requests(), 3, "a denied request does not reach the service");
}

#[tokio::test]
async fn a_body_passes_and_denials_answer_every_method() {
    let rules = "rules: [{ name: posts, match: { method: POST, path: /form }, limit: 1/hour }]";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    let post = async || request(gateway.address(), "POST", "/form?y", &[], &[b'x'; 20_000]).await;
    let passed = post().await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "POST /form?y 20000\n"));
    assert_eq!(post().await.status, 429);
    assert_eq!(get(&gateway, "/form", &[]).await.status, 200, "the rule is for POST");
}

#[tokio::test]
async fn errors_of_the_service_stay_its_own() {
    let rules = "rules: [{ name: all, limit: 1000/hour }]";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    for status in [400, 401, 403, 404, 429, 500, 502, 503, 504] {
        let reply = get(&gateway, &format!("/{status}"), &[]).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.body, format!("GET /{status} 0\n"));
        assert_eq!(reply.header("retry-after"), None);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("1000"));
    }
}

#[tokio::test]
async fn answers_with_many_headers_count() {
    // All of these rules are named in the headers.
    let name = "n".repeat(60);
    let rules: Vec<_> =
        (0..60).map(|index| format!("{{ name: {name}{index}, key: ip, limit: 3/h }}")).collect();
    let long = "x".repeat(12_000);
    let config = format!(
        "trusted_proxies: [127.0.0.0/8]\nheaders: {{ ietf: draft-11 }}\n\
         denial: {{ headers: {{ X-Long: {long} }} }}\nrules: [{}]\n",
        rules.join(", ")
    );
    let (service, origin) = (Service::start(&config).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    for status in [200, 200, 200, 429, 429] {
        assert_eq!(get(&gateway, "/page", &[]).await.status, status);
    }
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn each_client_has_its_own_budget_and_cannot_speak_for_the_gateway() {
    let rules = "
trusted_proxies: [127.0.0.1]
rules:
  - name: login-per-ip
    match: { path: /login, method: GET, host: shop.example }
    key: ip
    limit: 1/hour
  - { name: per-account, key: account, limit: 1/hour }
";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    let login = async |client: u8, headers: &[(&str, &str)]| {
        get_from(client, &gateway, "http://shop.example/login?x", headers).await
    };
    assert_eq!(login(2, &[]).await.status, 200);
    assert_eq!(login(3, &[]).await.status, 200);
    for forged in [
        [("x-forwarded-for", "198.51.100.1"), ("x-tollgate-ip", "198.51.100.2")],
        [("forwarded", "for=198.51.100.1"), ("x-real-ip", "198.51.100.2")],
        [("x-forwarded-uri", "/other"), ("x-original-url", "/other")],
        [("x-forwarded-method", "POST"), ("x-original-method", "POST")],
        [("x-forwarded-host", "other"), ("x-original-host", "other")],
    ] {
        assert_eq!(login(2, &forged).await.status, 429, "{forged:?}");
    }
    for _ in 0..2 {
        let headers = [("x-tollgate-account", "a1")];
        let reply = get_from(2, &gateway, "/", &headers).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, None));
    }
}

#[tokio::test]
async fn a_rule_that_is_closed_when_the_store_fails_gives_503() {
    let mut redis = RedisServer::start().unwrap();
    let config = format!(
        "store: {{ kind: redis, url: \"{}\", timeout: 2s }}\n\
         rules: [{{ name: guard, limit: 9/hour, on_store_failure: closed }}]",
        redis.url()
    );
    let (service, origin) = (Service::start(&config).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    redis.kill().unwrap();
    let refused = get(&gateway, "/", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(origin.requests(), 0);
}

#[tokio::test]
async fn without_tollgate_requests_pass() {
    let (service, origin) = (Service::start(THREE_PER_IP).await, Origin::start().await);
    let gateway = Gateway::start(service.http, origin.address()).await;
    assert_eq!(get(&gateway, "/", &[]).await.status, 200);
    let address = service.http;
    service.stopped().await;
    wait_until_gone(address).await;
    for _ in 0..5 {
        let reply = get(&gateway, "/page", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "GET /page 0\n"));
        assert_eq!(reply.header("x-ratelimit-limit"), None);
    }
    assert_eq!(get(&gateway, "/500", &[]).await.status, 500);
}

#[tokio::test]
async fn one_line_makes_it_fail_closed() {
    let (service, origin) = (Service::start(THREE_PER_IP).await, Origin::start().await);
    let gateway = Gateway::start_failing_closed(service.http, origin.address()).await;
    for status in [200, 200, 200, 429] {
        assert_eq!(get(&gateway, "/", &[]).await.status, status);
    }
    let address = service.http;
    service.stopped().await;
    wait_until_gone(address).await;
    assert_eq!(get(&gateway, "/", &[]).await.status, 503);
    assert_eq!(origin.requests(), 3);
}

#[tokio::test]
async fn a_tollgate_that_hangs_delays_a_request_by_its_timeout_only() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = Origin::start().await;
    let gateway = Gateway::start_as_it_stands(silent.local_addr().unwrap(), origin.address()).await;
    let start = Instant::now();
    assert_eq!(get(&gateway, "/", &[]).await.status, 200);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}
