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

use crate::gateways::limit::{
    MANY, ONE_LOGIN, THREE_PER_IP, a_client_cannot_speak, ask, errors_stay_those_of_the_service,
    three_pass_and_others_are_denied,
};
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
    let (service, origin) = (Service::start(MANY).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    errors_stay_those_of_the_service(&gateway).await;
}

#[tokio::test]
async fn a_client_cannot_speak_for_the_gateway() {
    let (service, origin) = (Service::start(ONE_LOGIN).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    a_client_cannot_speak(&gateway).await;
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
