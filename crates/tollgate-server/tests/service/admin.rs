//! `/healthz`, `/readyz` and `/metrics`.

use tollgate_testkit::RedisServer;

use crate::support::{Service, request};

const RULES: &str = "
rules:
  - { name: per-ip, key: ip, limit: 2/min }
  - { name: trial, limit: 1/min, shadow: true, domain: shop }
";

#[tokio::test]
async fn health_is_ok() {
    let service = Service::start(RULES).await;
    let reply = service.admin("/healthz").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn readiness_tells_about_the_store() {
    let memory = Service::start(RULES).await;
    assert_eq!(
        memory.admin("/readyz").await.body,
        "{\"ready\":true,\"store\":\"memory\",\"store_answers\":true,\"rules\":2}\n"
    );

    let mut server = RedisServer::start().unwrap();
    let config =
        format!("store: {{ kind: redis, url: \"{}\", timeout: 2s }}\n{RULES}", server.url());
    let redis = Service::start(&config).await;
    assert_eq!(
        redis.admin("/readyz").await.body,
        "{\"ready\":true,\"store\":\"redis\",\"store_answers\":true,\"rules\":2}\n"
    );
    server.kill().unwrap();
    let reply = redis.admin("/readyz").await;
    assert_eq!(reply.status, 200, "the rules still decide, by their policy");
    assert_eq!(
        reply.body,
        "{\"ready\":true,\"store\":\"redis\",\"store_answers\":false,\"reason\":\"unavailable\",\
         \"rules\":2}\n"
    );
}

#[tokio::test]
async fn the_counters_of_every_rule_stand_at_0_from_the_start() {
    let service = Service::start(RULES).await;
    for (name, value) in [
        (
            r#"tollgate_decisions_total{domain="default",rule="per-ip",outcome="allow",mode="exact"}"#,
            0.0,
        ),
        (
            r#"tollgate_decisions_total{domain="default",rule="per-ip",outcome="deny",mode="exact"}"#,
            0.0,
        ),
        (
            r#"tollgate_decisions_total{domain="shop",rule="trial",outcome="allow",mode="exact"}"#,
            0.0,
        ),
        (
            r#"tollgate_decisions_total{domain="shop",rule="trial",outcome="shadow_deny",mode="exact"}"#,
            0.0,
        ),
        (r#"tollgate_decisions_total{domain="",rule="",outcome="allow",mode="unlimited"}"#, 0.0),
        (r#"tollgate_store_errors_total{kind="timeout"}"#, 0.0),
        (r#"tollgate_check_duration_seconds_count{store="memory"}"#, 0.0),
        ("tollgate_memory_keys", 0.0),
        ("tollgate_memory_keys_max", 1e6),
        ("tollgate_memory_evicted_total", 0.0),
        (concat!(r#"tollgate_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""}"#), 1.0),
    ] {
        assert_eq!(service.metric(name).await, Some(value), "{name}");
    }
}

#[tokio::test]
async fn every_decision_and_request_is_counted() {
    let service = Service::start(RULES).await;
    let alice = r#"{"attributes":{"ip":"1.2.3.4"}}"#;
    for _ in 0..3 {
        service.post("/v1/check", alice).await;
    }
    service.post("/v1/peek", alice).await;
    service.post("/v1/refund", alice).await;
    service.post("/v1/reset", alice).await;
    service.post("/v1/check", r#"{"attributes":{"account":"a"}}"#).await;
    service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"},"cost":3}"#).await;
    service.post("/v1/check", "{").await;
    for _ in 0..2 {
        request(service.http, "GET", "/v1/auth?domain=shop", &[], b"").await;
    }
    service.post("/nowhere", "").await;
    for (name, value) in [
        (
            r#"tollgate_decisions_total{domain="default",rule="per-ip",outcome="allow",mode="exact"}"#,
            2.0,
        ),
        (
            r#"tollgate_decisions_total{domain="default",rule="per-ip",outcome="deny",mode="exact"}"#,
            1.0,
        ),
        (
            r#"tollgate_decisions_total{domain="shop",rule="trial",outcome="allow",mode="exact"}"#,
            1.0,
        ),
        (
            r#"tollgate_decisions_total{domain="shop",rule="trial",outcome="shadow_deny",mode="exact"}"#,
            1.0,
        ),
        (r#"tollgate_decisions_total{domain="",rule="",outcome="allow",mode="unlimited"}"#, 3.0),
        (r#"tollgate_requests_total{endpoint="check",status="200"}"#, 3.0),
        (r#"tollgate_requests_total{endpoint="check",status="429"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="check",status="422"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="check",status="400"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="peek",status="200"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="refund",status="200"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="reset",status="200"}"#, 1.0),
        (r#"tollgate_requests_total{endpoint="auth",status="200"}"#, 2.0),
        (r#"tollgate_requests_total{endpoint="other",status="404"}"#, 1.0),
        (r#"tollgate_check_duration_seconds_count{store="memory"}"#, 5.0),
        (r#"tollgate_check_duration_seconds_bucket{store="memory",le="+Inf"}"#, 5.0),
        (r#"tollgate_check_duration_seconds_count{store="none"}"#, 2.0),
        ("tollgate_denial_cache_hits_total", 0.0),
        ("tollgate_memory_keys", 1.0),
    ] {
        assert_eq!(service.metric(name).await, Some(value), "{name}");
    }
    assert!(service.metric("tollgate_memory_bytes").await.unwrap() > 0.0);
}

#[tokio::test]
async fn g9_nothing_that_a_caller_sends_becomes_a_label() {
    let service = Service::start(RULES).await;
    let lines = async || service.admin("/metrics").await.body.lines().count();
    service.post("/v1/check", r#"{"attributes":{"ip":"ip-of-caller"}}"#).await;
    service.post("/path-of-caller-0", "").await;
    request(service.http, "GET", "/v1/check", &[], b"").await;
    let before = lines().await;
    for index in 0..20 {
        let body = format!(
            r#"{{"domain":"domain-of-caller-{index}","attributes":{{"ip":"ip-of-caller-{index}"}}}}"#
        );
        service.post("/v1/check", &body).await;
        service.post(&format!("/path-of-caller-{index}"), "").await;
        request(service.http, &format!("METHOD{index}"), "/v1/check", &[], b"").await;
    }
    assert_eq!(lines().await, before);
    assert!(!service.admin("/metrics").await.body.contains("of-caller"));
}

#[tokio::test]
async fn a_rule_that_came_later_is_counted() {
    let service = Service::start(RULES).await;
    let later = crate::support::parse("rules: [{ name: later, limit: 1/min }]");
    service.limiter.replace_rules(later.rules);
    service.post("/v1/check", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await;
    let name =
        r#"tollgate_decisions_total{domain="default",rule="later",outcome="allow",mode="exact"}"#;
    assert_eq!(service.metric(name).await, Some(1.0));
}

#[tokio::test]
async fn metrics_come_in_the_format_that_is_asked_for() {
    let service = Service::start(RULES).await;
    let plain = service.admin("/metrics").await;
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.body.contains("# TYPE tollgate_decisions_total counter\n"), "{}", plain.body);

    let accept = b"application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5";
    let open = request(service.admin, "GET", "/metrics", &[("accept", accept)], b"").await;
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open.body.contains("# TYPE tollgate_decisions counter\n"), "{}", open.body);
    assert!(open.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn an_unknown_path_lists_those_that_there_are() {
    let service = Service::start(RULES).await;
    let reply = service.admin("/v1/check").await;
    assert_eq!(reply.status, 404);
    assert_eq!(
        reply.json()["detail"],
        "no such path: there are /healthz, /readyz, /metrics, /v1/status, /v1/rules, \
         /v1/rules/history and /v1/rules/rollback; the check API is on the http address"
    );
}
