//! Denials with a status, a body and headers of the application's choice.

use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use tollgate::FailurePolicy;
use tollgate_tower::headers::{HeaderFormat, RateLimitDraft};
use tollgate_tower::{DenialBody, DenialResponse, RateLimitLayer};
use tower::Layer;

use crate::support::{hello, limiter, limiter_without_store, request_from, rule, send, text};

#[tokio::test]
async fn a_denial_can_be_empty_with_other_headers() {
    let (limiter, _) = limiter([rule("all", "20/min", 1)]);
    let denial = DenialResponse::new()
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .with_body(DenialBody::Empty)
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(RETRY_AFTER, HeaderValue::from_static("120"));
    let format =
        HeaderFormat::new().with_legacy(None).with_draft(RateLimitDraft::Draft07).with_rule(false);
    let layer = RateLimitLayer::new(limiter).headers(format).on_rejection(denial);
    let service = layer.layer(hello().0);
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        "200 OK\n\
         ratelimit-policy: 1;w=3\n\
         ratelimit: limit=1, remaining=0, reset=3\n\
         \n\
         hello"
    );
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        "503 Service Unavailable\n\
         cache-control: no-store\n\
         ratelimit-policy: 1;w=3\n\
         ratelimit: limit=1, remaining=0, reset=3\n\
         retry-after: 120\n\
         \n"
    );
}

#[tokio::test]
async fn a_problem_document_names_the_status_that_is_sent() {
    let (limiter, _) = limiter([rule("all", "20/min", 1)]);
    let denial = DenialResponse::new().with_status(StatusCode::FORBIDDEN);
    let service = RateLimitLayer::new(limiter).on_rejection(denial).layer(hello().0);
    send(&service, request_from("203.0.113.7:1")).await;
    let denied = text(send(&service, request_from("203.0.113.7:1")).await).await;
    assert!(denied.starts_with("403 Forbidden\n"), "{denied}");
    assert!(denied.contains(r#""status":403,"#), "{denied}");
    assert!(denied.contains(r#""violated-policies":["all"]"#), "{denied}");
}

#[tokio::test]
async fn a_store_failure_is_no_denial() {
    let closed = rule("pay", "1/s", 5).with_failure_policy(FailurePolicy::Closed);
    let denial = DenialResponse::new()
        .with_status(StatusCode::FORBIDDEN)
        .with_body(DenialBody::Empty)
        .with_header(HeaderName::from_static("x-denied"), HeaderValue::from_static("1"));
    let layer = RateLimitLayer::new(limiter_without_store(closed)).on_rejection(denial);
    let failed = text(send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await).await;
    assert!(failed.starts_with("503 Service Unavailable\n"), "{failed}");
    assert!(failed.contains("cannot be checked at the moment"), "{failed}");
    assert!(!failed.contains("x-denied"), "{failed}");
}
