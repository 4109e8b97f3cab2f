//! `/v1/check`, `/v1/peek`, `/v1/refund` and `/v1/reset`.

use std::time::Duration;

use tollgate::ManualClock;

use crate::support::{Service, request};

const LOGIN: &str = "
rules:
  - { name: login-per-ip, match: { path: /login, method: POST }, key: ip, limit: 20/min }
";

const ALICE: &str = r#"{"domain":"default","attributes":{"path":"/login","method":"POST","ip":"1.2.3.4"},"cost":1}"#;

fn spending(cost: &str) -> String {
    format!(r#"{{"attributes":{{"path":"/login","method":"POST","ip":"1.2.3.4"}},"cost":{cost}}}"#)
}

#[tokio::test]
async fn an_allowed_check_has_the_documented_body_and_headers() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    let reply = service.post("/v1/check", ALICE).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.body,
        concat!(
            r#"{"allowed":true,"mode":"exact","rule":"login-per-ip","limit":20,"remaining":19,"#,
            r#""retry_after_ms":null,"reset_after_ms":3000,"delay_ms":0,"rules":["#,
            r#"{"rule":"login-per-ip","allowed":true,"limit":20,"remaining":19,"#,
            r#""retry_after_ms":null,"reset_after_ms":3000,"delay_ms":0,"shadow":false}]}"#
        )
    );
    assert_eq!(
        reply.own_headers(),
        [
            ("content-type", "application/json"),
            ("x-ratelimit-limit", "20"),
            ("x-ratelimit-remaining", "19"),
            ("x-ratelimit-reset", "3"),
            ("ratelimit-policy", r#""login-per-ip";q=20;w=60"#),
            ("ratelimit", r#""login-per-ip";r=19;t=57"#),
        ]
    );
}

#[tokio::test]
async fn a_denied_check_is_429_and_says_when_to_retry() {
    let clock = ManualClock::new();
    let service = Service::start_with_clock(LOGIN, &clock).await;
    assert_eq!(service.post("/v1/check", &spending("20")).await.status, 200);
    let denied = service.post("/v1/check", ALICE).await;
    assert_eq!(denied.status, 429);
    assert_eq!(
        denied.body,
        concat!(
            r#"{"allowed":false,"mode":"exact","rule":"login-per-ip","limit":20,"remaining":0,"#,
            r#""retry_after_ms":3000,"reset_after_ms":60000,"delay_ms":0,"rules":["#,
            r#"{"rule":"login-per-ip","allowed":false,"limit":20,"remaining":0,"#,
            r#""retry_after_ms":3000,"reset_after_ms":60000,"delay_ms":0,"shadow":false}]}"#
        )
    );
    assert_eq!(
        denied.own_headers(),
        [
            ("content-type", "application/json"),
            ("retry-after", "3"),
            ("x-ratelimit-limit", "20"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "60"),
            ("ratelimit-policy", r#""login-per-ip";q=20;w=60"#),
            ("ratelimit", r#""login-per-ip";r=0;t=3"#),
            ("x-ratelimit-rule", "login-per-ip"),
        ]
    );

    clock.advance(Duration::from_micros(2_999_999));
    assert_eq!(service.post("/v1/check", ALICE).await.json()["retry_after_ms"], 1);
    clock.advance(Duration::from_micros(1));
    assert_eq!(service.post("/v1/check", ALICE).await.status, 200);
}

#[tokio::test]
async fn milliseconds_are_rounded_up() {
    let rules = "rules: [{ name: sevenths, limit: 7/s, burst: 1 }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let attributes = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    assert_eq!(service.post("/v1/check", attributes).await.json()["reset_after_ms"], 143);
    assert_eq!(service.post("/v1/check", attributes).await.json()["retry_after_ms"], 143);
}

#[tokio::test]
async fn a_request_that_no_rule_applies_to_is_unlimited() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    let reply = service.post("/v1/check", r#"{"attributes":{"path":"/","ip":"1.2.3.4"}}"#).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.body,
        concat!(
            r#"{"allowed":true,"mode":"unlimited","rule":null,"limit":null,"remaining":null,"#,
            r#""retry_after_ms":null,"reset_after_ms":null,"delay_ms":0,"rules":[]}"#
        )
    );
    assert_eq!(reply.own_headers(), [("content-type", "application/json")]);
}

#[tokio::test]
async fn a_shadow_rule_is_listed_and_never_denies() {
    let rules = "rules: [{ name: trial, limit: 1/min, shadow: true }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let attributes = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    service.post("/v1/check", attributes).await;
    let reply = service.post("/v1/check", attributes).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.body,
        concat!(
            r#"{"allowed":true,"mode":"unlimited","rule":null,"limit":null,"remaining":null,"#,
            r#""retry_after_ms":null,"reset_after_ms":null,"delay_ms":0,"rules":["#,
            r#"{"rule":"trial","allowed":false,"limit":1,"remaining":0,"#,
            r#""retry_after_ms":60000,"reset_after_ms":60000,"delay_ms":0,"shadow":true}]}"#
        )
    );
}

#[tokio::test]
async fn g7_the_most_restrictive_rule_speaks_and_all_are_listed_coarse_to_fine() {
    let rules = "
rules:
  - { name: per-ip, key: ip, limit: 1/min }
  - { name: everyone, limit: 10/s }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let attributes = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    service.post("/v1/check", attributes).await;
    let denied = service.post("/v1/check", attributes).await.json();
    assert_eq!(denied["rule"], "per-ip");
    let rules = denied["rules"].as_array().unwrap();
    let listed: Vec<_> =
        rules.iter().map(|rule| (&rule["rule"], &rule["allowed"], &rule["remaining"])).collect();
    assert_eq!(
        listed,
        [
            (&"everyone".into(), &true.into(), &9.into()),
            (&"per-ip".into(), &false.into(), &0.into()),
        ]
    );
}

#[tokio::test]
async fn the_domain_selects_the_rules() {
    let rules = "
rules:
  - { name: all, limit: 1/min }
  - { name: all, limit: 5/min, domain: shop }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let limit = async |domain: &str| {
        let body = format!(r#"{{"domain":"{domain}","attributes":{{"ip":"1.2.3.4"}}}}"#);
        service.post("/v1/check", &body).await.json()["limit"].clone()
    };
    assert_eq!(limit("default").await, 1);
    assert_eq!(limit("shop").await, 5);
    assert_eq!(limit("nobody").await, serde_json::Value::Null);
}

#[tokio::test]
async fn g3_a_peek_spends_nothing_and_without_a_cost_is_never_denied() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    service.post("/v1/check", &spending("20")).await;
    let without_cost = r#"{"attributes":{"path":"/login","method":"POST","ip":"1.2.3.4"}}"#;
    for _ in 0..3 {
        let peeked = service.post("/v1/peek", without_cost).await;
        assert_eq!(peeked.status, 200);
        let peeked = peeked.json();
        assert_eq!((&peeked["allowed"], &peeked["remaining"]), (&true.into(), &0.into()));
    }
}

#[tokio::test]
async fn a_peek_with_a_cost_says_whether_it_would_pass() {
    let clock = ManualClock::new();
    let service = Service::start_with_clock(LOGIN, &clock).await;
    service.post("/v1/check", &spending("17")).await;
    let would_pass = async |cost: &str| {
        let peeked = service.post("/v1/peek", &spending(cost)).await;
        assert_eq!(peeked.status, 200);
        let peeked = peeked.json();
        (peeked["allowed"].as_bool().unwrap(), peeked["retry_after_ms"].as_u64())
    };
    assert_eq!(would_pass("3").await, (true, None));
    assert_eq!(would_pass("4").await, (false, Some(3_000)));
    assert_eq!(service.post("/v1/peek", &spending("0")).await.json()["remaining"], 3);
}

#[tokio::test]
async fn a_check_of_cost_0_is_a_peek() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    service.post("/v1/check", &spending("20")).await;
    let reply = service.post("/v1/check", &spending("0")).await;
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &0.into()));
}

#[tokio::test]
async fn a_refund_gives_back_and_never_fills_beyond_the_burst() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    service.post("/v1/check", &spending("5")).await;
    let refunded = async |body: &str| {
        let reply = service.post("/v1/refund", body).await;
        assert_eq!(reply.status, 200);
        reply.json()["remaining"].clone()
    };
    assert_eq!(
        refunded(r#"{"attributes":{"path":"/login","method":"POST","ip":"1.2.3.4"}}"#).await,
        16
    );
    assert_eq!(refunded(&spending("2")).await, 18);
    assert_eq!(refunded(&spending("1000")).await, 20);
}

#[tokio::test]
async fn a_refund_under_an_id_is_made_once() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    service.post("/v1/check", &spending("9")).await;
    let refunded = async |id: &str| {
        let attributes = r#"{"path":"/login","method":"POST","ip":"1.2.3.4"}"#;
        let body = format!(r#"{{"attributes":{attributes},"cost":2,"id":"{id}"}}"#);
        let reply = service.post("/v1/refund", &body).await;
        assert_eq!(reply.status, 200);
        reply.json()["remaining"].clone()
    };
    for _ in 0..3 {
        assert_eq!(refunded("order 66").await, 13);
    }
    assert_eq!(refunded(&"x".repeat(256)).await, 15);
}

#[tokio::test]
async fn a_blocked_request_is_429_with_a_limit_of_0_and_no_wait() {
    let rules = "
rules:
  - { name: per-account, key: account, limit: 20/min, blocked: { account: evil } }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let evil = r#"{"attributes":{"account":"evil"}}"#;
    for path in ["/v1/check", "/v1/acquire", "/v1/reserve"] {
        let denied = service.post(path, evil).await;
        assert_eq!(denied.status, 429, "{path}");
        assert_eq!(
            denied.body,
            concat!(
                r#"{"allowed":false,"mode":"exact","rule":"per-account","limit":0,"remaining":0,"#,
                r#""retry_after_ms":null,"reset_after_ms":0,"delay_ms":0,"rules":["#,
                r#"{"rule":"per-account","allowed":false,"limit":0,"remaining":0,"#,
                r#""retry_after_ms":null,"reset_after_ms":0,"delay_ms":0,"shadow":false}]}"#
            )
        );
        assert_eq!(
            denied.own_headers(),
            [
                ("content-type", "application/json"),
                ("x-ratelimit-limit", "0"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "0"),
                ("ratelimit-policy", r#""per-account";q=0"#),
                ("ratelimit", r#""per-account";r=0"#),
                ("x-ratelimit-rule", "per-account"),
            ]
        );
    }
}

#[tokio::test]
async fn a_rule_with_a_shadow_limit_reports_both() {
    let rules = "rules: [{ name: all, limit: 5/hour, shadow_limit: 1/hour }]";
    let services =
        [Service::start(rules).await, Service::start_with_clock(rules, &ManualClock::new()).await];
    for service in services {
        let body = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
        service.post("/v1/check", body).await;
        let second = service.post("/v1/check", body).await;
        assert_eq!(second.status, 200);
        let second = second.json();
        let said: Vec<_> = second["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| (&rule["rule"], &rule["allowed"], &rule["shadow"]))
            .collect();
        assert_eq!(
            said,
            [
                (&"all".into(), &true.into(), &false.into()),
                (&"all.shadow".into(), &false.into(), &true.into()),
            ]
        );
    }
}

#[tokio::test]
async fn every_algorithm_and_cost_of_the_configuration_decides() {
    let rules = "
rules:
  - { name: fixed, domain: fixed, limit: 3/hour, algorithm: fixed_window }
  - { name: sliding, domain: sliding, limit: 3/hour, algorithm: sliding_window, cells: 60 }
  - { name: log, domain: log, limit: 3/hour, algorithm: sliding_log }
  - { name: leaky, domain: leaky, limit: 3/hour, algorithm: leaky_bucket }
  - { name: bytes, domain: bytes, limit: 300/hour, cost: { attribute: size } }
  - { name: export, domain: export, limit: 30/hour, cost: { match: { size: \"*\" }, cost: 10 } }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    for domain in ["fixed", "sliding", "log", "leaky", "bytes", "export"] {
        let body = format!(r#"{{"domain":"{domain}","attributes":{{"size":"100"}}}}"#);
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(service.post("/v1/check", &body).await.status);
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{domain}");
    }
}

#[tokio::test]
async fn a_reset_fills_the_buckets_of_this_request_only() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    let bob = r#"{"attributes":{"path":"/login","method":"POST","ip":"5.6.7.8"}}"#;
    service.post("/v1/check", &spending("20")).await;
    service.post("/v1/check", bob).await;
    let reset = service.post("/v1/reset", &spending("7")).await;
    assert_eq!((reset.status, &reset.json()["remaining"]), (200, &20.into()));
    assert_eq!(service.post("/v1/peek", ALICE).await.json()["remaining"], 20);
    assert_eq!(service.post("/v1/peek", bob).await.json()["remaining"], 19);
}

#[tokio::test]
async fn the_content_type_does_not_matter() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    for content_type in ["application/x-www-form-urlencoded", "text/plain", "application/json"] {
        let headers: [(&str, &[u8]); 1] = [("content-type", content_type.as_bytes())];
        let reply = request(service.http, "POST", "/v1/peek", &headers, ALICE.as_bytes()).await;
        assert_eq!(reply.status, 200, "{content_type}");
    }
}

#[tokio::test]
async fn g11_replaced_rules_take_effect_on_the_next_check() {
    let service = Service::start_with_clock(LOGIN, &ManualClock::new()).await;
    service.post("/v1/check", &spending("5")).await;
    let stricter = crate::support::parse(
        "rules: [{ name: login-per-ip, match: { path: /login }, key: ip, limit: 10/min }]",
    );
    service.limiter.replace_rules(stricter.rules);
    let reply = service.post("/v1/check", ALICE).await.json();
    assert_eq!((&reply["limit"], &reply["remaining"]), (&10.into(), &9.into()));
}
