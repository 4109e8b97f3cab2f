//! Attributes and costs that take time.

use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate::{Cost, Matcher};
use tollgate_tower::{Extractor, RateLimitLayer};
use tower::Layer;

use crate::support::{hello, limiter_on_paused_time, remaining, request_from, rule, send};

/// Looks the account of a token up, which takes a while.
async fn account(request: Parts) -> Option<String> {
    sleep(Duration::from_millis(20)).await;
    match request.headers.get("authorization")?.to_str().ok()? {
        "token-a" => Some("alice".to_owned()),
        "token-b" => Some("bob".to_owned()),
        _ => None,
    }
}

fn with_token(token: &'static str) -> http::Request<()> {
    let mut request = request_from("203.0.113.7:1");
    request.headers_mut().insert("authorization", token.parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn a_key_can_be_looked_up_before_the_request_is_judged() {
    let limiter = limiter_on_paused_time([rule("per-account", "1/hour", 1).with_key(["account"])]);
    let extractor = Extractor::default().with_async("account", account);
    let service = RateLimitLayer::new(limiter).attributes(extractor).layer(hello().0);
    let start = Instant::now();
    for (token, status) in
        [("token-a", 200), ("token-a", 429), ("token-b", 200), ("else", 200), ("else", 200)]
    {
        assert_eq!(send(&service, with_token(token)).await.status(), status, "{token}");
    }
    assert_eq!(start.elapsed(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_cost_can_be_looked_up() {
    let limiter = limiter_on_paused_time([rule("all", "1/hour", 9)]);
    let layer = RateLimitLayer::new(limiter.clone()).cost_of_async(|request: Parts| async move {
        sleep(Duration::from_millis(5)).await;
        match request.headers.get("authorization") {
            Some(_) => Cost::new(3),
            None => Cost::ONE,
        }
    });
    let service = layer.layer(hello().0);
    send(&service, with_token("token-a")).await;
    assert_eq!(remaining(&limiter).await, 6);
    send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(remaining(&limiter).await, 5);
}

#[tokio::test(start_paused = true)]
async fn what_was_looked_up_can_be_skipped() {
    let limiter = limiter_on_paused_time([rule("all", "1/hour", 5)]);
    let layer = RateLimitLayer::new(limiter.clone())
        .attributes(Extractor::default().with_async("account", account))
        .skip(Matcher::new().with("account", ["alice"]));
    let service = layer.layer(hello().0);
    send(&service, with_token("token-a")).await;
    assert_eq!(remaining(&limiter).await, 5);
    send(&service, with_token("token-b")).await;
    assert_eq!(remaining(&limiter).await, 4);
}
