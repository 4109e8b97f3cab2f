//! Headers, body and metadata of an answer.

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::json;
use tollgate_envoy::proto::RateLimitResponse;
use tollgate_envoy::proto::rate_limit_response::Code;

use crate::rls::{NO_RULES, Rls};
use crate::support::request;
use crate::text;

const PER_IP: &str = "rules: [{ name: per-ip, domain: d, key: [ip], limit: 2/min, burst: 1 }]";

fn headers(response: &RateLimitResponse) -> Vec<(&str, &str)> {
    assert!(response.request_headers_to_add.is_empty());
    let headers = response.response_headers_to_add.iter();
    headers.map(|header| (header.key.as_str(), header.value.as_str())).collect()
}

fn body(response: &RateLimitResponse) -> serde_json::Value {
    serde_json::from_slice(&response.raw_body).unwrap()
}

fn metadata(response: &RateLimitResponse) -> serde_json::Value {
    structure(response.dynamic_metadata.as_ref().unwrap())
}

fn structure(of: &Struct) -> serde_json::Value {
    of.fields.iter().map(|(name, one)| (name.clone(), value(one))).collect()
}

fn value(of: &Value) -> serde_json::Value {
    match of.kind.as_ref().unwrap() {
        Kind::NullValue(_) => json!(null),
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(boolean) => json!(boolean),
        Kind::StructValue(of) => structure(of),
        Kind::ListValue(list) => list.values.iter().map(value).collect(),
    }
}

#[tokio::test]
async fn a_denial_has_a_wait_and_a_body_that_names_the_rule() {
    let rls = Rls::start(PER_IP, &[]).await;
    let allowed = rls.ask("ip=1").await;
    assert_eq!(headers(&allowed), []);
    assert!(allowed.raw_body.is_empty());

    rls.clock.advance(std::time::Duration::from_micros(500_001));
    let denied = rls.ask("ip=1").await;
    assert_eq!(
        headers(&denied),
        [
            ("content-type", "application/problem+json"),
            ("retry-after", "30"),
            ("x-ratelimit-rule", "per-ip"),
        ]
    );
    assert_eq!(
        body(&denied),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too Many Requests",
            "detail": "the rate limit is used up: try again in 29500 ms",
            "rule": "per-ip",
            "retry_after_ms": 29_500,
            "violated-policies": ["per-ip"],
        })
    );
}

#[tokio::test]
async fn the_metadata_name_the_rule_and_tell_exact_times() {
    let rls = Rls::start(PER_IP, &[]).await;
    rls.ask("ip=1").await;
    rls.clock.advance(std::time::Duration::from_micros(500_001));
    let denied = rls.ask("ip=1 + ip=2 + path=/").await;
    assert_eq!(
        metadata(&denied),
        json!({
            "domain": "d",
            "allowed": false,
            "rule": "per-ip",
            "mode": "exact",
            "limit": 1.0,
            "remaining": 0.0,
            "reset_after_us": 29_499_999.0,
            "retry_after_us": 29_499_999.0,
            "descriptors": [
                {
                    "allowed": false,
                    "rule": "per-ip",
                    "mode": "exact",
                    "limit": 1.0,
                    "remaining": 0.0,
                    "reset_after_us": 29_499_999.0,
                    "retry_after_us": 29_499_999.0,
                    "shadow": false,
                },
                {
                    "allowed": true,
                    "rule": "per-ip",
                    "mode": "exact",
                    "limit": 1.0,
                    "remaining": 1.0,
                    "reset_after_us": 0.0,
                    "shadow": false,
                },
                { "allowed": true },
            ],
        })
    );
    let none = metadata(&rls.ask("path=/").await);
    assert_eq!(
        none,
        json!({ "domain": "d", "allowed": true, "mode": "unlimited", "descriptors": [{ "allowed": true }] })
    );
}

#[tokio::test]
async fn the_metadata_of_the_limits_that_let_a_request_pass_are_passed_on() {
    let file = "
domain: d
descriptors:
  - key: model
    metadata: { pool: { name: big }, first: 1 }
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: zone
    value: a*
    metadata: { pool: { name: small, hosts: [x, null] }, first: true, more: 'yes' }
    rate_limit: { unlimited: true }
";
    let rls = Rls::start(NO_RULES, &[file]).await;
    let both = metadata(&rls.ask("model=m + zone=a1").await);
    assert_eq!(
        both["metadata"],
        json!({ "pool": { "name": "big", "hosts": ["x", null] }, "first": 1.0, "more": "yes" })
    );
    assert_eq!(both["rule"], "model");
    let denied = metadata(&rls.ask("model=m + zone=a1").await);
    assert_eq!(denied["metadata"]["pool"]["name"], "small");
    assert_eq!(metadata(&rls.ask("model=m").await).get("metadata"), None);
}

#[tokio::test]
async fn the_headers_are_chosen_by_the_configuration() {
    let config =
        format!("envoy: {{ headers: all }}\nheaders: {{ ietf: off, rule: false }}\n{PER_IP}");
    let all = Rls::start(&config, &[]).await;
    let limits =
        [("x-ratelimit-limit", "1"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30")];
    assert_eq!(headers(&all.ask("ip=1").await), limits);
    let of_denial = [("content-type", "application/problem+json"), ("retry-after", "30")];
    assert_eq!(headers(&all.ask("ip=1 + ip=2").await), [&of_denial[..], &limits].concat());
    assert_eq!(headers(&all.ask("path=/").await), []);

    let none = Rls::start(&format!("envoy: {{ headers: none }}\n{PER_IP}"), &[]).await;
    none.ask("ip=1").await;
    let denied = none.ask("ip=1").await;
    assert_eq!(headers(&denied), []);
    assert_eq!(body(&denied)["rule"], "per-ip");
}

#[tokio::test]
async fn the_headers_and_the_denial_are_those_of_the_configuration() {
    let config = format!(
        "envoy: {{ headers: all }}
headers: {{ x_ratelimit: off, ietf: draft-07 }}
denial:
  status: 503
  text: \"{{\\\"error\\\":\\\"slow down\\\"}}\"
  content_type: application/json
  headers: {{ Cache-Control: no-store }}
{PER_IP}"
    );
    let rls = Rls::start(&config, &[]).await;
    let limits = [("ratelimit", "limit=1, remaining=0, reset=30"), ("ratelimit-policy", "1;w=30")];
    assert_eq!(headers(&rls.ask("ip=1").await), limits);
    let denied = rls.ask("ip=1").await;
    let of_denial = [
        ("content-type", "application/json"),
        ("cache-control", "no-store"),
        ("retry-after", "30"),
    ];
    let rule = [("x-ratelimit-rule", "per-ip")];
    assert_eq!(headers(&denied), [&of_denial[..], &limits, &rule].concat());
    assert_eq!(body(&denied), json!({ "error": "slow down" }));

    let silent = Rls::start(&format!("denial: {{ body: none }}\n{PER_IP}"), &[]).await;
    silent.ask("ip=1").await;
    let denied = silent.ask("ip=1").await;
    assert_eq!(headers(&denied), [("retry-after", "30"), rule[0]]);
    assert!(denied.raw_body.is_empty());
}

#[tokio::test]
async fn a_spent_limit_in_quota_mode_does_not_speak_for_a_request_that_passes() {
    let file = "
domain: d
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 3 } }
";
    let config = format!("envoy: {{ headers: all }}\nheaders: {{ ietf: off }}\n{NO_RULES}");
    let rls = Rls::start(&config, &[file]).await;
    for left in ["0", "1"] {
        let passed = rls.ask("a=1 + b=1").await;
        assert_eq!(headers(&passed)[1], ("x-ratelimit-remaining", left));
        assert_eq!(headers(&passed).len(), 3);
    }
}

#[tokio::test]
async fn the_rule_of_the_longest_wait_speaks_for_a_denial() {
    let file = "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: c, value: 'x*', rate_limit: { unit: day, requests_per_unit: 0 } }
";
    let rls = Rls::start(NO_RULES, &[file]).await;
    rls.ask("a=1 + b=1").await;
    let denied = rls.ask("a=1 + b=1").await;
    assert_eq!(headers(&denied)[1], ("retry-after", "6400"));
    assert_eq!(body(&denied)["rule"], "b");
    assert_eq!(body(&denied)["violated-policies"], json!(["a", "b"]));

    let blocked = rls.ask("a=1 + c=xy").await;
    assert_eq!(
        headers(&blocked),
        [("content-type", "application/problem+json"), ("x-ratelimit-rule", "c=x*")]
    );
    assert_eq!(body(&blocked)["rule"], "c=x*");
    assert_eq!(body(&blocked)["detail"], "such requests are blocked");
}

#[tokio::test]
async fn a_denial_says_that_more_hits_than_the_limit_can_never_pass() {
    let file = "
domain: d
descriptors: [{ key: a, rate_limit: { unit: minute, requests_per_unit: 5 } }]
";
    let rls = Rls::start(NO_RULES, &[file]).await;
    let denied = rls.ask("a=1 hits 9").await;
    assert_eq!(text::answer(&denied), "OVER_LIMIT | OVER 5 of 5/MINUTE");
    assert_eq!(body(&denied)["detail"], "9 hits can never pass: the limit is 5");
    assert_eq!(body(&denied).get("retry_after_ms"), None);
    rls.ask("a=1 hits 5").await;
    let denied = rls.ask("a=1 hits 5").await;
    assert_eq!(body(&denied)["detail"], "the rate limit is used up: try again in 40000 ms");
}

#[tokio::test]
async fn limits_that_look_alike_have_names_of_their_own_in_denials_and_metrics() {
    let file = "
domain: d
descriptors:
  - { key: override, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: a, value: 'b:c=d', rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: a
    value: b
    descriptors: [{ key: c, value: d, rate_limit: { unit: day, requests_per_unit: 1 } }]
";
    let rls = Rls::start(NO_RULES, &[file]).await;
    for (descriptor, name) in [
        ("override=1", "override"),
        ("x=1 [limit 1 DAY]", "@override"),
        ("a=b:c=d", "a=b%3Ac=d"),
        ("a=b,c=d", "a=b:c=d"),
    ] {
        rls.ask(descriptor).await;
        assert_eq!(body(&rls.ask(descriptor).await)["rule"], name, "{descriptor}");
        let page = request(rls.service.admin, "GET", "/metrics", &[], b"").await.body;
        let series = format!("rule=\"{name}\",outcome=\"deny\",mode=\"exact\"}} 1\n");
        assert!(page.contains(&series), "{series}{page}");
    }
}

#[tokio::test]
async fn requests_of_a_domain_that_nobody_knows_pass_and_are_counted_on_both_listeners() {
    let rls = Rls::start(PER_IP, &[]).await;
    for request in ["ip=1", "e: ip=1", "x\ny: ip=1", "d: path=/"] {
        assert_eq!(rls.ask(request).await.overall_code(), Code::Ok, "{request}");
    }
    let call = r#"{"domain":"e","attributes":{"ip":"1"}}"#;
    assert_eq!(rls.service.post("/v1/check", call).await.status, 200);
    let unknown = rls.service.metric("tollgate_unknown_domain_requests_total").await;
    assert_eq!(unknown, Some(3.0));
}
