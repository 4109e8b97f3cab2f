//! `/v1/reserve`, `/v1/commit` and `/v1/cancel`.

use std::time::Duration;

use tollgate::ManualClock;

use crate::support::{Reply, Service};

const TOKENS: &str = "
rules:
  - { name: llm-tokens, key: account, limit: 1000/hour }
  - { name: everyone, limit: 5000/hour }
";

const ACME: &str = r#"{"attributes":{"account":"acme"}}"#;

fn estimate(cost: &str) -> String {
    format!(r#"{{"attributes":{{"account":"acme"}},"cost":{cost}}}"#)
}

fn reservation(reply: &Reply) -> serde_json::Value {
    assert_eq!(reply.status, 200, "{reply:?}");
    let id = reply.json()["reservation_id"].clone();
    assert!(id.is_string(), "{reply:?}");
    id
}

fn commit(id: &serde_json::Value, cost: &str) -> String {
    format!(r#"{{"reservation_id":{id},"cost":{cost}}}"#)
}

async fn remaining(service: &Service) -> serde_json::Value {
    service.post("/v1/peek", ACME).await.json()["remaining"].clone()
}

#[tokio::test]
async fn an_estimate_is_spent_and_the_real_cost_settled_in_every_rule() {
    let service = Service::start_with_clock(TOKENS, &ManualClock::new()).await;
    let reserved = service.post("/v1/reserve", &estimate("400")).await;
    let id = reservation(&reserved);
    assert_eq!(
        reserved.body,
        format!(
            concat!(
                r#"{{"allowed":true,"mode":"exact","rule":"llm-tokens","limit":1000,"#,
                r#""remaining":600,"retry_after_ms":null,"reset_after_ms":1440000,"delay_ms":0,"#,
                r#""rules":[{{"rule":"everyone","allowed":true,"limit":5000,"remaining":4600,"#,
                r#""retry_after_ms":null,"reset_after_ms":288000,"delay_ms":0,"shadow":false}},"#,
                r#"{{"rule":"llm-tokens","allowed":true,"limit":1000,"remaining":600,"#,
                r#""retry_after_ms":null,"reset_after_ms":1440000,"delay_ms":0,"shadow":false}}],"#,
                r#""reservation_id":{}}}"#
            ),
            id
        )
    );
    assert_eq!(reserved.header("x-ratelimit-remaining"), Some("600"));
    let settled = service.post("/v1/commit", &commit(&id, "150")).await;
    assert_eq!(settled.status, 200);
    let settled = settled.json();
    let left: Vec<_> =
        settled["rules"].as_array().unwrap().iter().map(|rule| &rule["remaining"]).collect();
    assert_eq!(left, [4_850, 850]);
}

#[tokio::test]
async fn a_commit_may_be_above_the_estimate_and_a_cancel_gives_all_back() {
    let service = Service::start_with_clock(TOKENS, &ManualClock::new()).await;
    let id = reservation(&service.post("/v1/reserve", &estimate("400")).await);
    let settled = service.post("/v1/commit", &commit(&id, "700")).await.json();
    assert_eq!(settled["remaining"], 300);
    let id = reservation(&service.post("/v1/reserve", &estimate("300")).await);
    assert_eq!(remaining(&service).await, 0);
    let cancelled = service.post("/v1/cancel", &format!(r#"{{"reservation_id":{id}}}"#)).await;
    assert_eq!((cancelled.status, &cancelled.json()["remaining"]), (200, &300.into()));
}

#[tokio::test]
async fn a_reservation_is_settled_once_and_ends_by_itself() {
    let clock = ManualClock::new();
    let service = Service::start_with_clock(TOKENS, &clock).await;
    let id = reservation(&service.post("/v1/reserve", &estimate("400")).await);
    assert_eq!(service.post("/v1/commit", &commit(&id, "400")).await.status, 200);
    let again = service.post("/v1/commit", &commit(&id, "400")).await;
    assert_eq!(again.status, 404);
    assert_eq!(
        again.body,
        concat!(
            r#"{"type":"about:blank","title":"Not Found","status":404,"#,
            r#""detail":"nothing is held under this id: it was given back, or it ended","#,
            r#""field":"reservation_id"}"#
        )
    );

    for (body, ttl) in [
        (r#"{"attributes":{"account":"acme"},"cost":60}"#, 60),
        (r#"{"attributes":{"account":"acme"},"cost":60,"ttl_ms":1500}"#, 2),
    ] {
        let id = reservation(&service.post("/v1/reserve", body).await);
        clock.advance(Duration::from_secs(ttl));
        let before = remaining(&service).await;
        let ended = service.post("/v1/cancel", &format!(r#"{{"reservation_id":{id}}}"#)).await;
        assert_eq!((ended.status, &ended.json()["field"]), (404, &"reservation_id".into()));
        assert_eq!(remaining(&service).await, before, "it stays spent");
    }
}

#[tokio::test]
async fn a_denied_estimate_is_429_without_a_reservation() {
    let service = Service::start_with_clock(TOKENS, &ManualClock::new()).await;
    service.post("/v1/check", &estimate("900")).await;
    let denied = service.post("/v1/reserve", &estimate("101")).await;
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("4")));
    let denied = denied.json();
    assert_eq!((&denied["allowed"], &denied["retry_after_ms"]), (&false.into(), &3_600.into()));
    assert_eq!(denied.get("reservation_id"), None);
    assert_eq!(service.post("/v1/reserve", &estimate("1001")).await.status, 422);
}

#[tokio::test]
async fn where_no_rule_applies_there_is_nothing_to_settle() {
    let service = Service::start_with_clock(TOKENS, &ManualClock::new()).await;
    let reply = service.post("/v1/reserve", r#"{"domain":"x","attributes":{"a":"b"}}"#).await;
    assert_eq!((reply.status, &reply.json()["mode"]), (200, &"unlimited".into()));
    assert_eq!(reply.json()["reservation_id"], serde_json::Value::Null);
}

#[tokio::test]
async fn reservations_are_counted_as_decisions_and_settlements_are_not() {
    let service = Service::start_with_clock(TOKENS, &ManualClock::new()).await;
    let id = reservation(&service.post("/v1/reserve", &estimate("900")).await);
    service.post("/v1/reserve", &estimate("900")).await;
    service.post("/v1/commit", &commit(&id, "1")).await;
    let counted = async |outcome: &str| {
        let labels =
            format!(r#"domain="default",rule="llm-tokens",outcome="{outcome}",mode="exact""#);
        service.metric(&format!("tollgate_decisions_total{{{labels}}}")).await
    };
    assert_eq!((counted("allow").await, counted("deny").await), (Some(1.0), Some(1.0)));
    for (name, value) in [
        (r#"tollgate_requests_total{endpoint="reserve",status="200"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="reserve",status="429"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="commit",status="200"}"#, 1.0),
        (r#"tollgate_check_duration_seconds_count{store="memory"}"#, 2.0),
    ] {
        assert_eq!(service.metric(name).await, Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_rule_that_takes_its_cost_from_an_attribute_is_settled_by_what_that_really_was() {
    let rules = "rules: [{ name: traffic, limit: 1000/day, cost: { attribute: bytes } }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let reserve = r#"{"attributes":{"bytes":"400"}}"#;
    let id = service.post("/v1/reserve", reserve).await.json()["reservation_id"].clone();
    let bad = format!(r#"{{"reservation_id":{id},"attributes":{{"bytes":"many"}}}}"#);
    let reply = service.post("/v1/commit", &bad).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    let commit = format!(r#"{{"reservation_id":{id},"attributes":{{"bytes":"150"}}}}"#);
    let reply = service.post("/v1/commit", &commit).await;
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &850.into()));
}

#[tokio::test]
async fn a_store_full_of_reservations_says_so_and_checks_go_on() {
    let service = Service::start(
        "store: { kind: memory, keys_max: 3 }\nrules: [{ name: a, key: ip, limit: 100/hour }]",
    )
    .await;
    let call = |ip: &str| format!(r#"{{"attributes":{{"ip":"{ip}"}}}}"#);
    for _ in 0..3 {
        reservation(&service.post("/v1/reserve", &call("192.0.2.1")).await);
    }
    let refused = service.post("/v1/reserve", &call("192.0.2.1")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json()["detail"],
        "the store has no room for another bucket or record until some have ended, and rule \"a\" \
         refuses requests until it can"
    );
    for (ip, remaining) in [("192.0.2.1", 96), ("192.0.2.2", 99), ("192.0.2.3", 99)] {
        let checked = service.post("/v1/check", &call(ip)).await;
        assert_eq!(
            (checked.status, &checked.json()["remaining"]),
            (200, &remaining.into()),
            "{ip}"
        );
    }
    assert_eq!(service.post("/v1/check", &call("192.0.2.4")).await.status, 503);
    assert_eq!(service.metric("tollgate_memory_records").await, Some(3.0));
    assert_eq!(service.metric("tollgate_memory_keys").await, Some(3.0));
}
