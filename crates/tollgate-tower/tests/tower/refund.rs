//! Costs that are given back when the service fails.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{Cost, FailurePolicy, Matcher};
use tollgate_tower::{Extractor, RateLimitLayer};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    Inner, limiter, limiter_on_paused_time, limiter_without_store, remaining, request_from, rule,
    send, slots,
};

/// Answers with the status that the path names.
fn status() -> Inner {
    BoxCloneSyncService::new(service_fn(|request: Request<()>| async move {
        let mut response = Response::new(Full::from("done"));
        let status = request.uri().path().trim_start_matches('/');
        *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
        Ok::<_, Infallible>(response)
    }))
}

fn get(path: &str) -> Request<()> {
    let mut request = request_from("203.0.113.7:1");
    *request.uri_mut() = path.parse().unwrap();
    request
}

#[tokio::test]
async fn a_request_that_the_service_fails_has_its_cost_back() {
    let (limiter, _) = limiter([rule("all", "1/hour", 9), rule("ip", "1/day", 8).with_key(["ip"])]);
    let layer = RateLimitLayer::new(limiter.clone())
        .cost(Cost::new(3))
        .refund_if(|response| response.status.is_server_error());
    let service = layer.layer(status());
    for (path, left) in [("/500", "8"), ("/200", "5"), ("/503", "5"), ("/404", "2")] {
        let response = send(&service, get(path)).await;
        assert_eq!(response.status().as_str(), &path[1..]);
        assert_eq!(response.headers()["x-ratelimit-remaining"], left, "{path}");
    }
    assert_eq!(remaining(&limiter).await, 3);
    let denied = send(&service, get("/500")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(remaining(&limiter).await, 3, "a denial has spent nothing and gets nothing");
}

#[tokio::test]
async fn a_refund_goes_to_the_bucket_that_was_charged() {
    let rule = rule("per-tenant", "1/hour", 2).with_key(["tenant"]);
    let (limiter, _) = limiter([rule]);
    let tenant = |request: http::request::Parts| async move {
        Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
    };
    let layer = RateLimitLayer::new(limiter)
        .attributes(Extractor::default().with_async("tenant", tenant))
        .refund_if(|response| response.status == 500);
    let service = layer.layer(status());
    for (tenant, path, left) in [("a", "/200", "1"), ("b", "/500", "2"), ("a", "/500", "1")] {
        let mut request = get(path);
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        let response = send(&service, request).await;
        assert_eq!(response.headers()["x-ratelimit-remaining"], left, "{tenant} {path}");
    }
}

#[tokio::test]
async fn a_service_that_breaks_gives_the_cost_back() {
    let (limiter, _) = limiter([rule("all", "1/hour", 5)]);
    let broken =
        service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>("broken pipe") });
    let layer = RateLimitLayer::new(limiter.clone());
    let error = layer.clone().layer(broken).oneshot(get("/")).await.unwrap_err();
    assert_eq!((error, remaining(&limiter).await), ("broken pipe", 4));
    let layer = layer.refund_if(|_| false);
    assert_eq!(layer.layer(broken).oneshot(get("/")).await.unwrap_err(), "broken pipe");
    assert_eq!(remaining(&limiter).await, 4);
}

#[tokio::test(start_paused = true)]
async fn slots_are_held_until_the_body_ends_though_units_are_given_back() {
    let limiter = limiter_on_paused_time([slots("exports", 2), rule("all", "1/hour", 9)]);
    let layer = RateLimitLayer::new(limiter.clone()).refund_if(|response| response.status == 500);
    let response = send(&layer.layer(status()), get("/500")).await;
    let left = async || {
        let verdict = limiter.peek(&tollgate::Attributes::new()).await.unwrap();
        verdict.rules().iter().map(|rule| rule.decision().remaining()).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [1, 9]);
    drop(response);
    limiter.given_back().await;
    assert_eq!(left().await, [2, 9]);
}

#[tokio::test]
async fn nothing_is_given_back_that_the_store_never_took() {
    let open = rule("all", "1/hour", 5).with_failure_policy(FailurePolicy::Open);
    let layer = RateLimitLayer::new(limiter_without_store(open)).refund_if(|_| true);
    let response = send(&layer.layer(status()), get("/500")).await;
    assert_eq!(response.status(), 500);

    let unmatched = rule("cart", "1/s", 1).with_match("path", ["/cart"]);
    let (limiter, _) = limiter([unmatched]);
    let layer = RateLimitLayer::new(limiter)
        .skip(Matcher::new().with("path", ["/503"]))
        .refund_if(|_| true);
    let service = layer.layer(status());
    for path in ["/500", "/503"] {
        assert!(!send(&service, get(path)).await.headers().contains_key("x-ratelimit-limit"));
    }
}
