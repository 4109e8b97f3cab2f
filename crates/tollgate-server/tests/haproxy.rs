//! The recipe of `examples/haproxy`, run by a real HAProxy. Its clients need several loopback
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

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::gateways::limit::{
    MANY, ONE_LOGIN, THREE_PER_IP, a_client_cannot_speak, ask, errors_stay_those_of_the_service,
    three_pass_and_others_are_denied,
};
use crate::gateways::{Gateway, Program, replaced};
use crate::origin::Origin;
use crate::support::{Service, request};

const RECIPE: &str = include_str!("../../../examples/haproxy/haproxy.cfg");
const SCRIPT: &str = include_str!("../../../examples/haproxy/tollgate.lua");

const HAPROXY: Program = Program {
    name: "haproxy",
    package: "haproxy",
    variable: "TOLLGATE_HAPROXY",
    arguments: &["-db", "-f"],
    file: "haproxy.cfg",
};

/// Starts the recipe with a timeout that a busy machine does not reach.
async fn start(tollgate: SocketAddr, service: SocketAddr) -> Gateway {
    run(RECIPE, &replaced(SCRIPT, "timeout_ms = 100", "timeout_ms = 10000"), tollgate, service)
        .await
}

async fn run(recipe: &str, script: &str, tollgate: SocketAddr, service: SocketAddr) -> Gateway {
    let script = replaced(script, "127.0.0.1:8080", &tollgate.to_string());
    let recipe = replaced(recipe, "127.0.0.1:3000", &service.to_string());
    let recipe = replaced(&recipe, "127.0.0.1:8080", &tollgate.to_string());
    Gateway::start(&HAPROXY, |address, dir| {
        let file = dir.join("tollgate.lua");
        fs::write(&file, &script).unwrap();
        let recipe = replaced(&recipe, "/etc/haproxy/tollgate.lua", file.to_str().unwrap());
        replaced(&recipe, "bind :80", &format!("bind {address}"))
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
async fn a_body_passes_and_requests_without_a_rule_have_no_headers() {
    let rules = "rules: [{ name: posts, match: { method: POST, path: /form }, limit: 1/hour }]";
    let (service, origin) = (Service::start(rules).await, Origin::start().await);
    let gateway = start(service.http, origin.address()).await;
    let post = async || request(gateway.address(), "POST", "/form?y", &[], &[b'x'; 20_000]).await;
    let passed = post().await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "POST /form?y 20000\n"));
    assert_eq!(post().await.status, 429);
    let free = ask(2, &gateway, "GET", "/form", &[]).await;
    assert_eq!((free.status, free.header("x-ratelimit-limit")), (200, None), "{free:?}");
}

#[tokio::test]
async fn a_denial_of_any_status_is_one() {
    for (status, answered) in [(403, 403), (418, 429), (429, 429), (503, 503)] {
        let config = format!("denial: {{ status: {status} }}\n{THREE_PER_IP}");
        let (service, origin) = (Service::start(&config).await, Origin::start().await);
        let gateway = start(service.http, origin.address()).await;
        for expected in [200, 200, 200, answered, answered] {
            assert_eq!(ask(1, &gateway, "GET", "/page", &[]).await.status, expected, "{status}");
        }
        assert_eq!(origin.requests(), 3);
    }
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
async fn without_tollgate_requests_pass_unless_the_recipe_refuses_them() {
    let origin = Origin::start().await;
    // A port on which nobody listens.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gateway = start(away, origin.address()).await;
    let passed = ask(1, &gateway, "GET", "/page", &[]).await;
    assert_eq!((passed.status, passed.body.as_str()), (200, "GET /page 0\n"));
    // By now it is known to be down.
    let start = Instant::now();
    assert_eq!(ask(1, &gateway, "GET", "/page", &[]).await.status, 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());

    let closed = replaced(RECIPE, "#http-request", "http-request");
    let gateway = run(&closed, SCRIPT, away, origin.address()).await;
    for _ in 0..2 {
        assert_eq!(ask(1, &gateway, "GET", "/page", &[]).await.status, 503);
    }
    assert_eq!(origin.requests(), 2);
}

#[tokio::test]
async fn a_tollgate_that_hangs_delays_a_request_by_its_four_timeouts_only() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::start().await;
    let gateway = run(RECIPE, SCRIPT, silent.local_addr().unwrap(), origin.address()).await;
    let start = Instant::now();
    assert_eq!(ask(1, &gateway, "GET", "/", &[]).await.status, 200);
    let took = start.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(3)).contains(&took), "{took:?}");
}
