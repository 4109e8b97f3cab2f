//! A store that does not answer.

use std::time::{Duration, Instant};

use tollgate::{AnyStore, Limiter, ManualClock};
use tollgate_core::{Charge, Decisions, Operation, Store, StoreError, Timestamp};
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_envoy::proto::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::Server;
use tollgate_testkit::RedisServer;

use crate::rls::{Rls, channel};
use crate::support::{Service, parse};
use crate::text;

const POLICIES: &str = "
rules:
  - { name: guard, domain: d, match: { policy: closed }, limit: 5/min, on_store_failure: closed }
  - { name: pass, domain: d, match: { policy: open }, limit: 5/min, on_store_failure: open }
  - { name: own, domain: d, match: { policy: local }, limit: 2/min }
";

/// Never answers.
struct Silent;

impl Store for Silent {
    async fn apply(
        &self,
        _: Operation,
        _: &[Charge<'_>],
        _: Timestamp,
    ) -> Result<Decisions, StoreError> {
        std::future::pending().await
    }

    async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn g10_without_the_store_the_policies_of_the_rules_answer() {
    let mut redis = RedisServer::start().unwrap();
    let store = format!("store: {{ kind: redis, url: \"{}\", timeout: 2s }}", redis.url());
    let service = Service::start(&format!("{store}\n{POLICIES}")).await;
    let rls = Rls::of(service, ManualClock::new()).await;
    assert_eq!(rls.ask("policy=closed").await.statuses[0].limit_remaining, 4);
    redis.kill().unwrap();

    let refused = rls.ask("policy=closed + policy=open").await;
    assert_eq!(text::answer(&refused), "OVER_LIMIT | OVER 0 of 5/MINUTE guard in 1s + OK");
    let headers = &refused.response_headers_to_add;
    assert_eq!((headers[1].key.as_str(), headers[1].value.as_str()), ("retry-after", "1"));
    let body: serde_json::Value = serde_json::from_slice(&refused.raw_body).unwrap();
    assert_eq!(body["title"], "Too Many Requests");
    assert_eq!(
        body["detail"],
        "the rate limit cannot be checked at the moment: try again in 1000 ms"
    );

    for _ in 0..10 {
        let passed = rls.ask("policy=open").await;
        assert_eq!(text::answer(&passed), "OK | OK 5 of 5/MINUTE pass in 0s");
    }
    let local: Vec<_> = [1, 2, 3].map(|_| "policy=local").into();
    let mut codes = Vec::new();
    for request in local {
        codes.push(rls.ask(request).await.overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
    let refund = rls.ask("policy=closed [refund]").await;
    assert_eq!(refund.overall_code(), Code::OverLimit, "a closed rule refuses whatever is asked");
    let errors = r#"tollgate_store_errors_total{kind="unavailable"}"#;
    assert!(rls.service.metric(errors).await > Some(13.0));
}

#[tokio::test]
async fn g10_the_answer_comes_before_the_time_that_the_caller_gives_is_over() {
    let config = parse(POLICIES);
    let limiter = Limiter::builder().store(AnyStore::new(Silent));
    // The caller's time is shorter than the store's.
    let limiter = limiter.store_timeout(Duration::from_secs(60)).build().unwrap();
    limiter.replace_rules(config.rules.clone());
    let service = Service::run(Server::bind_with_limiter(&config, limiter).await.unwrap());
    let client = RateLimitServiceClient::new(channel(&service).await);
    let timeout = Duration::from_secs(2);
    for (policy, expected) in [
        ("closed", "OVER_LIMIT | OVER 0 of 5/MINUTE guard in 1s"),
        ("open", "OK | OK 5 of 5/MINUTE pass in 0s"),
        ("local", "OK | OK 1 of 2/MINUTE own in 30s"),
    ] {
        let mut request = tonic::Request::new(text::request(&format!("policy={policy}")));
        request.set_timeout(timeout);
        let start = Instant::now();
        let response = client.clone().should_rate_limit(request).await.unwrap().into_inner();
        assert_eq!(text::answer(&response), expected);
        assert!(start.elapsed() >= timeout * 3 / 4, "{:?}", start.elapsed());
        assert!(start.elapsed() < timeout, "{:?}", start.elapsed());
    }
}
