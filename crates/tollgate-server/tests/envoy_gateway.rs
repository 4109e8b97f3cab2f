//! The files of `examples/envoy`, run by a real Envoy.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "envoy_gateway/gateway.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod gateway;
#[path = "nginx/origin.rs"]
mod origin;
#[path = "envoy_gateway/service.rs"]
mod service;
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::time::Duration;

use crate::gateway::Gateway;
use crate::origin::Origin;
use crate::service::{with_limits, with_rules, with_silent_store};
use crate::support::Reply;

fn limits(reply: &Reply) -> [Option<&str>; 3] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]
        .map(|name| reply.header(name))
}

#[tokio::test]
async fn requests_within_the_limit_pass_and_others_are_told_when_to_retry() {
    let ((service, clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    for left in (0..20).rev() {
        let reply = gateway.get("/page", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "GET /page 0\n"));
        let left = left.to_string();
        assert_eq!(limits(&reply), [Some("20, 20;w=60"), Some(left.as_str()), Some("40")]);
        assert_eq!(reply.header("retry-after"), None);
    }
    clock.advance(Duration::from_millis(500));
    for _ in 0..3 {
        let denied = gateway.get("/page", &[]).await;
        assert_eq!(denied.status, 429);
        assert_eq!(denied.header("retry-after"), Some("40"), "39.5 s are rounded up");
        assert_eq!(limits(&denied), [Some("20, 20;w=60"), Some("0"), Some("40")]);
        assert_eq!(denied.header("x-envoy-ratelimited"), Some("true"));
        assert_eq!(denied.header("x-ratelimit-rule"), Some("remote_address"));
        assert_eq!(denied.header("content-type"), Some("application/problem+json"));
        let body = denied.json();
        assert_eq!(body["rule"], "remote_address");
        assert_eq!(body["detail"], "the rate limit is used up: try again in 39500 ms");
    }
    assert_eq!(origin.requests(), 20, "a denied request does not reach the service");
    clock.advance(Duration::from_millis(39_500));
    assert_eq!(gateway.get("/page", &[]).await.status, 200);
}

#[tokio::test]
async fn all_descriptors_of_a_request_are_judged_together() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    let acme = [("x-tenant", "acme")];
    for left in (0..5).rev() {
        let reply = gateway.get(&format!("/export/{left}"), &acme).await;
        assert_eq!(reply.status, 200);
        let left = left.to_string();
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left.as_str()));
        let limit = "5, 20;w=60, 1000;w=3600;name=\"per-tenant\", 5;w=60;name=\"exports\"";
        assert_eq!(reply.header("x-ratelimit-limit"), Some(limit));
    }
    for _ in 0..30 {
        let denied = gateway.get("/export/x", &acme).await;
        assert_eq!((denied.status, denied.header("retry-after")), (429, Some("12")));
        assert_eq!(denied.json()["rule"], "tenant:path=/export*");
    }
    let passed = gateway.get("/", &acme).await;
    assert_eq!(passed.status, 200, "what was denied has spent nothing of the address's 20");
    assert_eq!(passed.header("x-ratelimit-remaining"), Some("14"));
    let other = gateway.get("/export/x", &[("x-tenant", "other")]).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn no_header_of_a_client_gets_a_request_past_its_limit() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    // Each goes into two descriptors.
    let long = vec![b'x'; 50_000];
    for (count, tenant) in [(1, &b"acme"[..]), (2, b"\xff"), (3, b"a\xc3"), (4, &long)] {
        let reply = gateway.get_with_bytes("/export/x", &[("x-tenant", tenant)]).await;
        assert_eq!((reply.status, origin.requests()), (200, count));
    }
    for _ in 4..20 {
        assert_eq!(gateway.get("/", &[]).await.status, 200);
    }
    for tenant in [&b"acme"[..], b"\xff", b"a\xc3", b"\x80\xfe", &long] {
        let denied = gateway.get_with_bytes("/export/x", &[("x-tenant", tenant)]).await;
        assert_eq!(denied.status, 429);
        assert_eq!(denied.json()["rule"], "remote_address");
    }
    assert_eq!(
        service.metric("tollgate_requests_total{endpoint=\"envoy\",status=\"200\"}").await,
        Some(25.0)
    );
}

#[tokio::test]
async fn the_access_log_names_the_rule_and_the_exact_wait() {
    let ((service, clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    let acme = [("x-tenant", "acme")];
    for _ in 0..5 {
        assert_eq!(gateway.get("/export", &acme).await.status, 200);
    }
    clock.advance(Duration::from_micros(1_500_001));
    assert_eq!(gateway.get("/export", &acme).await.status, 429);
    let lines = gateway.access_log(6).await;
    assert_eq!(lines[0], "GET /export 200 rule=tenant:path=/export* remaining=4 retry_after_us=-");
    assert_eq!(
        lines[5],
        "GET /export 429 rule=tenant:path=/export* remaining=0 retry_after_us=10499999"
    );
}

#[tokio::test]
async fn the_same_limits_as_rules_answer_the_same_envoy() {
    let ((service, _clock), origin) = (with_rules().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    let acme = [("x-tenant", "acme")];
    for _ in 0..5 {
        assert_eq!(gateway.get("/export", &acme).await.status, 200);
    }
    let denied = gateway.get("/export", &acme).await;
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("12")));
    assert_eq!(denied.json()["rule"], "exports");
    for left in (0..15).rev() {
        let reply = gateway.get("/", &[]).await;
        assert_eq!(reply.status, 200);
        let left = left.to_string();
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left.as_str()));
        assert_eq!(reply.header("x-ratelimit-limit"), Some("20, 20;w=60;name=\"per-address\""));
    }
    assert_eq!(gateway.get("/", &[]).await.status, 429);
}

#[tokio::test]
async fn without_tollgate_requests_pass_by_default() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start(service.grpc, origin.address()).await;
    assert_eq!(gateway.get("/", &[]).await.status, 200);
    service.stopped().await;
    for _ in 0..25 {
        let reply = gateway.get("/page", &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "GET /page 0\n"));
        assert_eq!(reply.header("x-ratelimit-limit"), None);
    }
    assert_eq!(gateway.stat("cluster.service.ratelimit.failure_mode_allowed").await, 25);
}

#[tokio::test]
async fn one_line_makes_it_fail_closed() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start_failing_closed(service.grpc, origin.address()).await;
    assert_eq!(gateway.get("/", &[]).await.status, 200);
    service.stopped().await;
    for _ in 0..5 {
        assert_eq!(gateway.get("/", &[]).await.status, 500);
    }
    assert_eq!(origin.requests(), 1);
}

#[tokio::test]
async fn a_retry_after_of_envoys_own_says_the_same() {
    let ((service, clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start_with_retry_after(service.grpc, origin.address()).await;
    for _ in 0..20 {
        assert_eq!(gateway.get("/", &[]).await.status, 200);
    }
    clock.advance(Duration::from_millis(500));
    let denied = gateway.get("/", &[]).await;
    let waits = denied.headers.iter().filter(|(name, _)| name == "retry-after");
    let waits: Vec<_> = waits.map(|(_, wait)| wait.as_str()).collect();
    assert_eq!(waits, ["40"]);
}

#[tokio::test]
async fn g10_a_store_that_hangs_is_answered_for_by_the_policies_within_envoys_timeout() {
    let (service, origin) = (with_silent_store().await, Origin::start().await);
    let gateway = Gateway::start_with_2_s(service.grpc, origin.address()).await;
    let refused = gateway.get("/", &[("x-tenant", "acme")]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["title"], "Too Many Requests");
    assert_eq!(gateway.get("/", &[]).await.status, 200, "the rule of the address is open");
    assert_eq!(gateway.stat("cluster.service.ratelimit.error").await, 0);
}
