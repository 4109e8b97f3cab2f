//! `/v1/acquire`, `/v1/renew` and `/v1/release`.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tollgate::{Attributes, ManualClock};

use crate::support::{Reply, Service, head, reply};

const EXPORTS: &str = "
rules:
  - { name: exports, key: account, algorithm: concurrency, limit: 2, lease: 30s }
";

const ACME: &str = r#"{"attributes":{"account":"acme"}}"#;

fn acme() -> Attributes {
    Attributes::from([("account", "acme")])
}

fn lease(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    format!(r#"{{"lease_id":{}}}"#, reply.json()["lease_id"])
}

async fn remaining(service: &Service, body: &str) -> serde_json::Value {
    service.post("/v1/peek", body).await.json()["remaining"].clone()
}

/// Opens a connection and sends a call whose answer is not awaited.
async fn begin(service: &Service, body: &str) -> TcpStream {
    let mut connection = TcpStream::connect(service.http).await.unwrap();
    connection.write_all(&head("POST", "/v1/acquire", &[], body.len())).await.unwrap();
    connection.write_all(body.as_bytes()).await.unwrap();
    connection
}

#[tokio::test]
async fn a_granted_slot_has_a_lease_and_the_body_of_a_check() {
    let service = Service::start_with_clock(EXPORTS, &ManualClock::new()).await;
    let granted = service.post("/v1/acquire", ACME).await;
    assert_eq!(granted.status, 200);
    let lease_id = granted.json()["lease_id"].as_str().unwrap().to_owned();
    assert_eq!(
        granted.body,
        format!(
            concat!(
                r#"{{"allowed":true,"mode":"exact","rule":"exports","limit":2,"remaining":1,"#,
                r#""retry_after_ms":null,"reset_after_ms":30000,"delay_ms":0,"rules":["#,
                r#"{{"rule":"exports","allowed":true,"limit":2,"remaining":1,"#,
                r#""retry_after_ms":null,"reset_after_ms":30000,"delay_ms":0,"shadow":false}}],"#,
                r#""lease_id":"{}","lease_ms":30000}}"#
            ),
            lease_id
        )
    );
    assert_eq!(
        granted.own_headers(),
        [
            ("content-type", "application/json"),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "30"),
            ("ratelimit-policy", r#""exports";q=2;qu="concurrent-requests""#),
            ("ratelimit", r#""exports";r=1"#),
        ]
    );
    assert_eq!(remaining(&service, ACME).await, 1, "a lease outlives the connection");
}

#[tokio::test]
async fn slots_beyond_the_limit_are_refused_and_come_back_by_release_and_by_time() {
    let clock = ManualClock::new();
    let service = Service::start_with_clock(EXPORTS, &clock).await;
    let first = service.post("/v1/acquire", ACME).await;
    clock.advance(Duration::from_secs(10));
    let second = service.post("/v1/acquire", ACME).await;
    assert_ne!(lease(&first), lease(&second));
    let refused = service.post("/v1/acquire", ACME).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.body,
        concat!(
            r#"{"allowed":false,"mode":"exact","rule":"exports","limit":2,"remaining":0,"#,
            r#""retry_after_ms":20000,"reset_after_ms":30000,"delay_ms":0,"rules":["#,
            r#"{"rule":"exports","allowed":false,"limit":2,"remaining":0,"#,
            r#""retry_after_ms":20000,"reset_after_ms":30000,"delay_ms":0,"shadow":false}]}"#
        )
    );
    assert_eq!(refused.header("retry-after"), Some("20"));
    let other = service.post("/v1/acquire", r#"{"attributes":{"account":"other"}}"#).await;
    assert_eq!(other.status, 200, "each account has slots of its own");

    for _ in 0..2 {
        let released = service.post("/v1/release", &lease(&first)).await;
        assert_eq!((released.status, released.body.as_str()), (200, r#"{"released":true}"#));
        assert_eq!(remaining(&service, ACME).await, 1, "a release is done once");
    }
    clock.advance(Duration::from_secs(30));
    assert_eq!(remaining(&service, ACME).await, 2, "nobody has renewed the second");
}

#[tokio::test]
async fn a_renewed_lease_lasts_from_the_renewal_and_an_ended_one_is_404() {
    let clock = ManualClock::new();
    let service = Service::start_with_clock(EXPORTS, &clock).await;
    let lease = lease(&service.post("/v1/acquire", ACME).await);
    clock.advance(Duration::from_secs(29));
    let renewed = service.post("/v1/renew", &lease).await;
    assert_eq!((renewed.status, renewed.body.as_str()), (200, r#"{"renewed":true}"#));
    assert_eq!(renewed.own_headers(), [("content-type", "application/json")]);
    clock.advance(Duration::from_secs(29));
    assert_eq!(remaining(&service, ACME).await, 1);
    clock.advance(Duration::from_secs(1));
    let ended = service.post("/v1/renew", &lease).await;
    assert_eq!(ended.status, 404);
    assert_eq!(
        ended.body,
        concat!(
            r#"{"type":"about:blank","title":"Not Found","status":404,"#,
            r#""detail":"nothing is held under this id: it was given back, or it ended","#,
            r#""field":"lease_id"}"#
        )
    );
    assert_eq!(service.post("/v1/release", &lease).await.status, 200);
}

#[tokio::test]
async fn a_cost_takes_as_many_slots() {
    let service = Service::start_with_clock(EXPORTS, &ManualClock::new()).await;
    let both = r#"{"attributes":{"account":"acme"},"cost":2}"#;
    let lease = lease(&service.post("/v1/acquire", both).await);
    assert_eq!(remaining(&service, ACME).await, 0);
    service.post("/v1/release", &lease).await;
    assert_eq!(remaining(&service, ACME).await, 2);
    let three = r#"{"attributes":{"account":"acme"},"cost":3}"#;
    let reply = service.post("/v1/acquire", three).await;
    assert_eq!((reply.status, &reply.json()["field"]), (422, &"cost".into()));
}

#[tokio::test]
async fn without_a_concurrency_rule_there_is_no_lease() {
    let rules = "rules: [{ name: all, limit: 3/min }]";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let granted = service.post("/v1/acquire", ACME).await.json();
    assert_eq!((&granted["remaining"], &granted["lease_id"]), (&2.into(), &().into()));
    assert_eq!(granted["lease_ms"], serde_json::Value::Null);
    let unlimited = service.post("/v1/acquire", r#"{"domain":"x","attributes":{"a":"b"}}"#).await;
    assert_eq!((unlimited.status, &unlimited.json()["mode"]), (200, &"unlimited".into()));
}

#[tokio::test]
async fn a_slot_is_waited_for_until_one_is_released() {
    let service = Service::start(EXPORTS).await;
    let held = lease(&service.post("/v1/acquire", ACME).await);
    service.post("/v1/acquire", ACME).await;
    let mut waiting = begin(&service, r#"{"attributes":{"account":"acme"},"wait_ms":9000}"#).await;
    // An answer later than this shows that the wait has begun: it is refused by what is before it.
    let short = r#"{"attributes":{"account":"acme"},"wait_ms":30}"#;
    assert_eq!(service.post("/v1/acquire", short).await.status, 429);
    service.post("/v1/release", &held).await;
    let granted = reply(&mut waiting).await;
    assert_eq!((granted.status, &granted.json()["remaining"]), (200, &0.into()));
    assert!(granted.json()["lease_id"].is_string());
}

#[tokio::test]
async fn units_are_waited_for_and_a_wait_that_cannot_do_is_refused_at_once() {
    let rules = "rules: [{ name: all, limit: 20/s, burst: 1 }]";
    let service = Service::start(rules).await;
    let start = tokio::time::Instant::now();
    for _ in 0..3 {
        let body = r#"{"attributes":{"account":"acme"},"wait_ms":60000}"#;
        assert_eq!(service.post("/v1/acquire", body).await.status, 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());

    let slow = "rules: [{ name: all, limit: 1/hour }]";
    let service = Service::start_with_clock(slow, &ManualClock::new()).await;
    service.post("/v1/acquire", ACME).await;
    let body = r#"{"attributes":{"account":"acme"},"wait_ms":60000}"#;
    let refused = service.post("/v1/acquire", body).await;
    assert_eq!((refused.status, &refused.json()["retry_after_ms"]), (429, &3_600_000.into()));
}

const SMS: &str = "
rules:
  - { name: sms, algorithm: leaky_bucket, limit: 20/s, burst: 5 }
";

#[tokio::test]
async fn the_delay_of_a_leaky_bucket_is_waited_out_here_and_by_the_caller_of_a_check() {
    let service = Service::start_with_clock(SMS, &ManualClock::new()).await;
    service.post("/v1/check", ACME).await;
    let checked = service.post("/v1/check", ACME).await.json();
    assert_eq!((&checked["allowed"], &checked["delay_ms"]), (&true.into(), &50.into()));
    assert_eq!(checked["rules"][0]["delay_ms"], 50);
    let start = tokio::time::Instant::now();
    let body = r#"{"attributes":{"account":"acme"},"wait_ms":5000}"#;
    let acquired = service.post("/v1/acquire", body).await.json();
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
    assert_eq!((&acquired["allowed"], &acquired["delay_ms"]), (&true.into(), &0.into()));
    assert_eq!(acquired["rules"][0]["delay_ms"], 0);
}

#[tokio::test]
async fn a_delay_that_is_too_long_is_refused_and_costs_nothing() {
    let service = Service::start_with_clock(SMS, &ManualClock::new()).await;
    for _ in 0..2 {
        service.post("/v1/check", ACME).await;
    }
    let body = r#"{"attributes":{"account":"acme"},"wait_ms":99}"#;
    let refused = service.post("/v1/acquire", body).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.body,
        concat!(
            r#"{"allowed":false,"mode":"exact","rule":"sms","limit":5,"remaining":3,"#,
            r#""retry_after_ms":100,"reset_after_ms":100,"delay_ms":100,"rules":["#,
            r#"{"rule":"sms","allowed":true,"limit":5,"remaining":3,"#,
            r#""retry_after_ms":null,"reset_after_ms":100,"delay_ms":100,"shadow":false}]}"#
        )
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(remaining(&service, ACME).await, 3);
    let name =
        r#"tollgate_decisions_total{domain="default",rule="sms",outcome="deny",mode="exact"}"#;
    assert_eq!(service.metric(name).await, Some(1.0));
}

#[tokio::test]
async fn what_a_caller_who_goes_away_had_taken_is_given_back() {
    let rules = "
rules:
  - { name: sms, algorithm: leaky_bucket, limit: 2/min, burst: 5 }
";
    let service = Service::start_with_clock(rules, &ManualClock::new()).await;
    service.post("/v1/acquire", ACME).await;
    let waiting = begin(&service, r#"{"attributes":{"account":"acme"},"wait_ms":60000}"#).await;
    service.left(&acme(), 3).await;
    drop(waiting);
    service.left(&acme(), 4).await;
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_the_line() {
    let service = Service::start_with_clock(EXPORTS, &ManualClock::new()).await;
    let both = r#"{"attributes":{"account":"acme"},"cost":2}"#;
    let held = lease(&service.post("/v1/acquire", both).await);
    let waiting = begin(&service, r#"{"attributes":{"account":"acme"},"wait_ms":60000}"#).await;
    let short = r#"{"attributes":{"account":"acme"},"wait_ms":30}"#;
    assert_eq!(service.post("/v1/acquire", short).await.status, 429);
    drop(waiting);
    service.post("/v1/release", &held).await;
    service.left(&acme(), 2).await;
    let next = service.post("/v1/acquire", both).await;
    assert_eq!(next.status, 200, "nobody is before it: {next:?}");
}

#[tokio::test]
async fn a_check_judges_the_slots_and_takes_none() {
    let service = Service::start_with_clock(EXPORTS, &ManualClock::new()).await;
    for _ in 0..5 {
        let checked = service.post("/v1/check", ACME).await;
        assert_eq!((checked.status, &checked.json()["remaining"]), (200, &2.into()));
        assert_eq!(service.auth(&[("x-tollgate-account", "acme")]).await.status, 200);
    }
    for _ in 0..2 {
        service.post("/v1/acquire", ACME).await;
    }
    assert_eq!(service.post("/v1/check", ACME).await.status, 429);
    let refused = service.auth(&[("x-tollgate-account", "acme")]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("30")));
}

#[tokio::test]
async fn decisions_are_counted_and_waits_are_no_durations() {
    let service = Service::start_with_clock(EXPORTS, &ManualClock::new()).await;
    let lease = lease(&service.post("/v1/acquire", ACME).await);
    for _ in 0..2 {
        service.post("/v1/acquire", ACME).await;
    }
    service.post("/v1/renew", &lease).await;
    service.post("/v1/release", &lease).await;
    for (name, value) in [
        (
            r#"tollgate_decisions_total{domain="default",rule="exports",outcome="allow",mode="exact"}"#,
            2.0,
        ),
        (
            r#"tollgate_decisions_total{domain="default",rule="exports",outcome="deny",mode="exact"}"#,
            1.0,
        ),
        (r#"tollgate_requests_total{endpoint="acquire",status="200"}"#, 2.0),
        (r#"tollgate_requests_total{endpoint="acquire",status="429"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="renew",status="200"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="release",status="200"}"#, 1.0),
        (r#"tollgate_check_duration_seconds_count{store="memory"}"#, 0.0),
    ] {
        assert_eq!(service.metric(name).await, Some(value), "{name}");
    }
}
