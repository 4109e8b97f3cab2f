//! The default timeout of Envoy, which nothing but this test may disturb.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "envoy_gateway/gateway.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod gateway;
#[path = "nginx/origin.rs"]
mod origin;
#[path = "envoy_gateway/service.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod service;
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use crate::gateway::Gateway;
use crate::origin::Origin;
use crate::service::with_limits;

#[tokio::test]
async fn envoys_default_timeout_of_20_ms_is_never_reached() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start_as_it_stands(service.grpc, origin.address()).await;
    for index in 0..1_000 {
        let tenant = (index % 7).to_string();
        let status = gateway.get("/", &[("x-tenant", &tenant)]).await.status;
        assert_eq!(status, if index < 20 { 200 } else { 429 }, "{index}");
    }
    assert_eq!(origin.requests(), 20);
    assert_eq!(gateway.stat("cluster.service.ratelimit.ok").await, 20);
    assert_eq!(gateway.stat("cluster.service.ratelimit.over_limit").await, 980);
    assert_eq!(gateway.stat("cluster.service.ratelimit.error").await, 0);
    assert_eq!(gateway.stat("cluster.tollgate.upstream_rq_timeout").await, 0);
}
