//! What Envoy sends.

use std::sync::OnceLock;

use prost::Message;
use tollgate::{Limiter, ManualClock, Quota, Rule};
use tollgate_config::{EnvoyConfig, EnvoyLimits};
use tollgate_envoy::RateLimiter;
use tollgate_envoy::proto::RateLimitRequest;
use tollgate_envoy::proto::rate_limit_response::Code;

const LIMITS: &str = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: second, requests_per_unit: 9, name: a }
    descriptors: [{ key: b, rate_limit: { unit: day, requests_per_unit: 9, replaces: [{ name: a }] } }]
  - { key: shared, value: files/*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 9 } }
  - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: ban, rate_limit: { unit: minute, requests_per_unit: 0 } }
";

/// Checks that a request is answered with a status for each descriptor, or is the caller's mistake,
/// under either way of counting.
pub fn check(data: &[u8]) {
    let Ok(request) = RateLimitRequest::decode(data) else { return };
    static SERVICES: OnceLock<[RateLimiter; 2]> = OnceLock::new();
    let services = SERVICES.get_or_init(|| [false, true].map(service));
    services.iter().for_each(|service| ask(service, &request));
}

fn service(spend_on_denial: bool) -> RateLimiter {
    let rate = |text: &str| Quota::from_rate(text.parse().unwrap()).unwrap();
    let bytes = tollgate::CostRule::Attribute("bytes".to_owned());
    let limiter = Limiter::builder()
        .rule(Rule::new("ip", rate("9/s")).with_domain("own").with_key(["ip"]))
        .rule(Rule::new("bytes", rate("9/s")).with_domain("own").with_cost(bytes))
        .clock(ManualClock::new())
        .build();
    let mut config = EnvoyConfig::default();
    config.spend_on_denial = spend_on_denial;
    RateLimiter::new(limiter.unwrap(), &EnvoyLimits::parse(LIMITS, "l.yaml").unwrap(), config)
}

/// Asks a service on a memory store, which never waits.
pub(crate) fn ask(service: &RateLimiter, request: &RateLimitRequest) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match runtime.block_on(service.should_rate_limit(request, None)) {
        Ok(response) => {
            assert_eq!(response.statuses.len(), request.descriptors.len(), "{request:?}");
            let is_over = response.overall_code() == Code::OverLimit;
            let any = response.statuses.iter().any(|status| status.code() == Code::OverLimit);
            assert!(any || !is_over, "{request:?}: {response:?}");
            assert_eq!(is_over, !response.raw_body.is_empty(), "{request:?}");
        }
        Err(status) => assert_eq!(status.code() as i32, 3, "{request:?}: {status}"),
    }
}
