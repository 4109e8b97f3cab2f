//! The recipe of `examples/caddy`, run by a real Caddy. Its clients need several loopback
//! addresses, which only Linux has without further ado.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "gateways/mod.rs"]
mod gateways;
#[allow(dead_code, reason = "the other tests need more of it")]
#[path = "nginx/origin.rs"]
mod origin;
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::net::SocketAddr;

use crate::gateways::limit::{THREE_PER_IP, ask, three_pass_and_others_are_denied};
use crate::gateways::{Gateway, Program, replaced};
use crate::origin::Origin;
use crate::support::{Service, request};

const RECIPE: &str = include_str!("../../../examples/caddy/Caddyfile");

const CADDY: Program = Program {
    name: "caddy",
    package: "caddy",
    variable: "TOLLGATE_CADDY",
    arguments: &["run", "--adapter", "caddyfile", "--config"],
    file: "Caddyfile",
};

/// Starts the recipe with timeouts that a busy machine does not reach.
async fn start(tollgate: SocketAddr, service: SocketAddr) -> Gateway {
    let recipe = replaced(RECIPE, "127.0.0.1:8080", &tollgate.to_string());
    let recipe = replaced(&recipe, "127.0.0.1:3000", &service.to_string());
    let recipe = replaced(&recipe, "dial_timeout 100ms", "dial_timeout 10s");
    let recipe = replaced(&recipe, "response_header_timeout 250ms", "response_header_timeout 10s");
    // The admin API has a port of its own, and one site on one address needs no certificate.
    let recipe = format!("{{\n\tadmin off\n\tauto_https off\n}}\n{recipe}");
    Gateway::start(&CADDY, |address, _| {
        let site = format!("http://:{} {{\n\tbind {}\n", address.port(), address.ip());
        replaced(&recipe, ":80 {", &site)
    })
    .await
}

#[tokio::test]
async fn requests_within_the_limit_pass_and_others_are_told_when_to_retry() {
    let (service, origin) = (Service::start(THREE_PER_IP).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    three_pass_and_others_are_denied(&gateway, &origin).await;
}

#[tokio::test]
async fn a_body_passes_and_so_do_requests_that_no_rule_applies_to() {
    let rules = "rules: [{ name: posts, match: { method: POST, path: /form }, limit: 1/hour }]";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    let passed = request(gateway.address(), "POST", "/form?y", &[], &[b'x'; 20_000]).await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "POST /form?y 20000\n"));
    // Caddy does not read the body of a request that it refuses, and closes the connection.
    assert_eq!(ask(2, &gateway, "POST", "/form", &[]).await.status, 429);
    let free = ask(2, &gateway, "GET", "/form", &[]).await;
    assert_eq!((free.status, free.header("x-ratelimit-limit")), (200, None), "{free:?}");
    assert_eq!((free.body.as_str(), origin.requests()), ("GET /form 0\n", 2), "{free:?}");
    let missing = ask(2, &gateway, "GET", "/404", &[]).await;
    assert_eq!((missing.status, missing.body.as_str()), (404, "GET /404 0\n"));
}

#[tokio::test]
async fn errors_of_the_service_stay_its_own() {
    let rules = "rules: [{ name: all, limit: 1000/hour }]";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    for status in [401, 403, 404, 429, 500, 503] {
        let reply = ask(2, &gateway, "GET", &format!("/{status}"), &[]).await;
        assert_eq!((reply.status, reply.body.clone()), (status, format!("GET /{status} 0\n")));
        assert_eq!(reply.header("retry-after"), None);
        assert_eq!(reply.header("x-ratelimit-limit"), Some("1000"));
    }
}

#[tokio::test]
async fn a_client_cannot_speak_for_the_gateway() {
    let rules = "
trusted_proxies: [127.0.0.1]
rules:
  - { name: login, match: { path: /login, method: GET }, key: [ip, host], limit: 1/hour }
  - { name: per-account, key: account, limit: 1/hour }
";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    assert_eq!(ask(2, &gateway, "GET", "/login?x", &[]).await.status, 200);
    for forged in [
        [("x-forwarded-for", "198.51.100.1"), ("x-tollgate-ip", "198.51.100.2")],
        [("forwarded", "for=198.51.100.1"), ("x-real-ip", "198.51.100.2")],
        [("x-forwarded-uri", "/other"), ("x-original-url", "/other")],
        [("x-forwarded-method", "POST"), ("x-original-method", "POST")],
        [("x-forwarded-host", "other"), ("x-original-host", "other")],
    ] {
        assert_eq!(ask(2, &gateway, "GET", "/login?x", &forged).await.status, 429, "{forged:?}");
    }
    assert_eq!(ask(2, &gateway, "GET", "/login?domain=other", &[]).await.status, 429);
    for _ in 0..2 {
        let account = [("x-tollgate-account", "a1")];
        assert_eq!(ask(2, &gateway, "GET", "/", &account).await.status, 200);
    }
}

#[tokio::test]
async fn without_tollgate_requests_are_refused() {
    let (service, origin) = (Service::start(THREE_PER_IP).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    assert_eq!(ask(1, &gateway, "GET", "/", &[]).await.status, 200);
    service.stopped().await;
    let refused = ask(1, &gateway, "GET", "/", &[]).await;
    assert_eq!((refused.status, refused.header("x-ratelimit-limit")), (502, None));
    assert_eq!(origin.requests(), 1);
}
