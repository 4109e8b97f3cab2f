//! The default timeout of Envoy, which nothing but this test may disturb.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

#[path = "envoy_gateway/gateway.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod gateway;
#[path = "nginx/origin.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod origin;
#[path = "envoy_gateway/service.rs"]
#[allow(dead_code, reason = "the other test needs more of it")]
mod service;
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;

use std::time::Duration;

use crate::gateway::Gateway;
use crate::origin::Origin;
use crate::service::with_limits;

/// How long Envoy and Tollgate must have been kept from running for a timeout to be the machine's.
const STALL: Duration = Duration::from_millis(10);

#[tokio::test]
async fn envoys_default_timeout_of_20_ms_is_never_reached() {
    let ((service, _clock), origin) = (with_limits().await, Origin::start().await);
    let gateway = Gateway::start_as_it_stands(service.grpc, origin.address()).await;
    let mut spent = 0;
    while gateway.get("/", &[]).await.status != 429 {
        spent += 1;
        assert!(spent <= 100, "the 20 hits are never spent");
    }
    // Every request is denied from here on, unless Envoy does not wait for the answer.
    let errors_before = gateway.stat("cluster.service.ratelimit.error").await;
    let mut excused = 0;
    for index in 0..1_000 {
        let tenant = (index % 7).to_string();
        let waited = gateway.waited_for_a_cpu();
        let status = gateway.get("/", &[("x-tenant", &tenant)]).await.status;
        if status == 200 {
            let waited = gateway.waited_for_a_cpu() - waited;
            assert!(waited >= STALL, "no answer in 20 ms, and only {waited:?} without a CPU");
            excused += 1;
        } else {
            assert_eq!(status, 429);
        }
    }
    let errors = gateway.stat("cluster.service.ratelimit.error").await - errors_before;
    assert_eq!(errors, excused);
    assert!(excused <= 100, "the machine is too busy to tell: {excused} stalls in 1000 requests");
}
