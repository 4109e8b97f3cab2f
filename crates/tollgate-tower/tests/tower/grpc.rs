//! Rejections of gRPC calls.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{Cost, CostRule, FailurePolicy, Matcher, Treatment};
use tollgate_tower::{GrpcRejection, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{hello, limiter, limiter_without_store, request_from, rule, send, text};

#[tokio::test]
async fn a_denial_is_resource_exhausted_with_the_wait() {
    let (limiter, _) = limiter([rule("hello", "20/min", 1)]);
    let service = RateLimitLayer::new(limiter).on_rejection(GrpcRejection).layer(hello().0);
    let allowed = send(&service, request_from("203.0.113.7:1")).await;
    assert!(!allowed.headers().contains_key("grpc-status"));
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        "200 OK\n\
         content-type: application/grpc\n\
         grpc-message: the rate limit is used up: try again in 3000 ms\n\
         grpc-retry-pushback-ms: 3000\n\
         grpc-status: 8\n\
         ratelimit-policy: \"hello\";q=1;w=3\n\
         ratelimit: \"hello\";r=0;t=3\n\
         retry-after: 3\n\
         x-ratelimit-limit: 1\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 3\n\
         x-ratelimit-rule: hello\n\
         \n"
    );
}

#[tokio::test]
async fn a_failed_store_is_unavailable() {
    let closed = rule("pay", "1/s", 5).with_failure_policy(FailurePolicy::Closed);
    let layer = RateLimitLayer::new(limiter_without_store(closed)).on_rejection(GrpcRejection);
    assert_eq!(
        text(send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await).await,
        "200 OK\n\
         content-type: application/grpc\n\
         grpc-message: the rate limit cannot be checked at the moment: try again in 1000 ms\n\
         grpc-retry-pushback-ms: 1000\n\
         grpc-status: 14\n\
         retry-after: 1\n\
         \n"
    );
}

#[tokio::test]
async fn an_impossible_cost_is_an_invalid_argument_without_a_wait() {
    let (limiter, _) = limiter([rule("bulk", "1/s", 5)]);
    let layer = RateLimitLayer::new(limiter).cost(Cost::new(6)).on_rejection(GrpcRejection);
    assert_eq!(
        text(send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await).await,
        "200 OK\n\
         content-type: application/grpc\n\
         grpc-message: cost 6 can never succeed: rule \"bulk\" admits at most 5 at once\n\
         grpc-status: 3\n\
         \n"
    );
}

#[tokio::test]
async fn a_blocked_call_is_not_to_be_tried_again() {
    let blocked = Matcher::new().with("path", ["/cart"]);
    let rule = rule("hello", "1/s", 5).with_exception(blocked, Treatment::Blocked);
    let layer = RateLimitLayer::new(limiter([rule]).0).on_rejection(GrpcRejection);
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["grpc-status"], "8");
    assert_eq!(response.headers()["grpc-retry-pushback-ms"], "-1");
    assert_eq!(response.headers()["grpc-message"], "such requests are blocked");
}

#[tokio::test]
async fn an_attribute_that_does_not_tell_the_cost_is_an_invalid_argument() {
    let by_path = rule("hello", "1/s", 5).with_cost(CostRule::Attribute("path".to_owned()));
    let layer = RateLimitLayer::new(limiter([by_path]).0).on_rejection(GrpcRejection);
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["grpc-status"], "3");
    assert!(!response.headers().contains_key("grpc-retry-pushback-ms"));
}

#[tokio::test]
async fn too_many_rules_are_an_internal_error() {
    let many = |index| rule(&format!("rule-{index}"), "1/s", 1);
    let layer = RateLimitLayer::new(limiter((0..65).map(many)).0).on_rejection(GrpcRejection);
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["grpc-status"], "13");
}

/// A body that can only be made empty, as that of tonic.
#[derive(Debug, Default)]
struct EmptyBody;

#[tokio::test]
async fn a_body_needs_only_a_default() {
    let (limiter, _) = limiter([rule("hello", "20/min", 1)]);
    let call = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(EmptyBody)) });
    let service = RateLimitLayer::new(limiter).on_rejection(GrpcRejection).layer(call);
    let allowed = service.clone().oneshot(request_from("203.0.113.7:1")).await.unwrap();
    assert_eq!(allowed.headers()["x-ratelimit-remaining"], "0");
    let denied = service.oneshot(request_from("203.0.113.7:1")).await.unwrap();
    assert_eq!(denied.headers()["grpc-status"], "8");
}
