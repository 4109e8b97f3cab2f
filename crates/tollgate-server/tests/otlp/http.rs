//! Spans of the check API and of forward auth.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tollgate_testkit::RedisServer;

use crate::collector::{Collector, attributes, hex};
use crate::support::{Service, request};

const RULES: &str = "
rules:
  - { name: per-ip, match: { path: /login }, key: ip, limit: 1/day }
  - { name: trial, limit: 1/day, shadow: true }
";
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const PARENT: &str = "b7ad6b7169203331";
const BODY: &[u8] = br#"{"attributes":{"path":"/login","ip":"203.0.113.7"}}"#;

pub(crate) fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

async fn check(service: &Service, headers: &[(&str, &str)]) -> u16 {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    request(service.http, "POST", "/v1/check", &headers, BODY).await.status
}

/// Returns what says where spans belong.
pub(crate) fn places(spans: &[Span]) -> Vec<(String, String)> {
    spans.iter().map(|span| (hex(&span.trace_id), hex(&span.parent_span_id))).collect()
}

#[tokio::test]
async fn a_decision_is_a_span_under_the_callers_with_names_of_the_configuration_only() {
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{RULES}", collector.section("0"))).await;
    let traced = [("traceparent", traceparent("01")), ("tracestate", "shop=1".to_owned())];
    let traced = traced.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(check(&service, &traced).await, 200);
    assert_eq!(check(&service, &traced).await, 429);
    let other = [("x-forwarded-uri", "/other?secret"), traced[0]];
    assert_eq!(service.auth(&other).await.status, 200);

    let spans = collector.after(service).await;
    let place = (TRACE.to_owned(), PARENT.to_owned());
    assert_eq!(places(&spans), [place.clone(), place.clone(), place]);
    assert_eq!(spans[0].trace_state, "shop=1");
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["POST /v1/check", "POST /v1/check", "GET /v1/auth"]);
    assert!(spans.iter().all(|span| span.kind() == SpanKind::Server && span.status.is_some()));
    assert!(spans.iter().all(|span| span.status.as_ref().unwrap().code == 0));
    assert!(spans.iter().all(|span| span.start_time_unix_nano <= span.end_time_unix_nano));
    let ids: Vec<_> = spans.iter().map(|span| hex(&span.span_id)).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    assert_eq!(
        attributes(&spans[0].attributes),
        [
            "http.request.method=POST",
            "http.route=/v1/check",
            "http.response.status_code=200",
            "tollgate.store=memory",
            "tollgate.outcome=allow",
            "tollgate.mode=exact",
            "tollgate.domain=default",
            "tollgate.rules=[trial,per-ip]",
        ]
    );
    let denied = attributes(&spans[1].attributes);
    assert_eq!(
        denied[2..5],
        ["http.response.status_code=429", "tollgate.store=memory", "tollgate.outcome=deny"]
    );
    assert_eq!(denied.last().unwrap(), "tollgate.denied_by=per-ip");
    let shadow = attributes(&spans[2].attributes);
    assert_eq!(shadow[4..6], ["tollgate.outcome=shadow_deny", "tollgate.mode=unlimited"]);
    assert_eq!(shadow.last().unwrap(), "tollgate.denied_by=trial");
    let all = format!("{:?}", collector.requests());
    assert!(!all.contains("203.0.113.7") && !all.contains("secret"), "{all}");
}

#[tokio::test]
async fn what_the_caller_does_not_trace_is_not_sent_and_roots_are_by_the_ratio() {
    for (sample, roots) in [("0", 0), ("1", 1)] {
        let collector = Collector::start().await;
        let service = Service::start(&format!("{}{RULES}", collector.section(sample))).await;
        check(&service, &[("traceparent", &traceparent("00"))]).await;
        check(&service, &[]).await;
        assert_eq!(service.post("/v1/other", "{}").await.status, 404);
        assert_eq!(service.admin("/healthz").await.status, 200);
        let spans = collector.after(service).await;
        assert_eq!(spans.len(), roots, "of roots {sample}");
        assert!(spans.iter().all(|root| root.parent_span_id.is_empty()));
        assert!(spans.iter().all(|root| root.trace_id.len() == 16 && hex(&root.trace_id) != TRACE));
    }
}

#[tokio::test]
async fn a_malformed_traceparent_begins_a_new_trace() {
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{RULES}", collector.section("1"))).await;
    let twice = traceparent("00");
    for headers in [
        &[("traceparent", "00-short-01"), ("tracestate", "shop=1")][..],
        &[("traceparent", twice.as_str()), ("traceparent", twice.as_str())],
    ] {
        check(&service, headers).await;
    }
    let spans = collector.after(service).await;
    assert_eq!(spans.len(), 2);
    for span in spans {
        assert_ne!(hex(&span.trace_id), TRACE);
        assert_eq!((span.parent_span_id.len(), span.trace_state.as_str()), (0, ""));
    }
}

#[tokio::test]
async fn waiting_for_redis_is_a_span_of_its_own_and_a_known_denial_has_none() {
    let redis = RedisServer::start().unwrap();
    let store = format!("store: {{ kind: redis, url: \"{}\", timeout: 5s }}\n", redis.url());
    let rules = "rules: [{ name: per-ip, key: ip, limit: 1/day }]";
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{store}{rules}", collector.section("0"))).await;
    let traced = traceparent("01");
    for status in [200, 429, 429] {
        assert_eq!(check(&service, &[("traceparent", &traced)]).await, status);
    }
    let acquire: [(&str, &[u8]); 1] = [("traceparent", traced.as_bytes())];
    request(service.http, "POST", "/v1/acquire", &acquire, BODY).await;
    assert_eq!(service.metric("tollgate_denial_cache_hits_total").await, Some(1.0));
    let count = async |store: &str| {
        let name = format!("tollgate_check_duration_seconds_count{{store=\"{store}\"}}");
        service.metric(&name).await
    };
    assert_eq!((count("redis").await, count("none").await), (Some(2.0), Some(1.0)));

    let spans = collector.after(service).await;
    let (checks, calls): (Vec<Span>, Vec<Span>) =
        spans.into_iter().partition(|span| span.kind() == SpanKind::Server);
    assert_eq!((checks.len(), calls.len()), (4, 3));
    for (call, check) in calls.iter().zip([&checks[0], &checks[1], &checks[3]]) {
        assert_eq!((call.kind(), &call.trace_id), (SpanKind::Client, &check.trace_id));
        assert_eq!(call.parent_span_id, check.span_id);
        assert!(check.start_time_unix_nano <= call.start_time_unix_nano);
        assert!(call.start_time_unix_nano < call.end_time_unix_nano);
        assert!(call.end_time_unix_nano <= check.end_time_unix_nano + 1_000);
        assert_eq!(call.name, "redis spend");
        assert_eq!(
            attributes(&call.attributes),
            ["db.system.name=redis", "db.operation.name=spend"]
        );
    }
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_of_its_span_and_of_the_answer_that_says_so() {
    let mut redis = RedisServer::start().unwrap();
    let store = format!("store: {{ kind: redis, url: \"{}\", timeout: 1s }}\n", redis.url());
    let rules = "rules: [{ name: guard, limit: 1/day, on_store_failure: closed }]";
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{store}{rules}", collector.section("0"))).await;
    redis.kill().unwrap();
    let traced = traceparent("01");
    assert_eq!(check(&service, &[("traceparent", &traced)]).await, 503);
    let spans = collector.after(service).await;
    let check = attributes(&spans[0].attributes);
    assert!(check.contains(&"error.type=503".to_owned()), "{check:?}");
    assert!(check.contains(&"tollgate.mode=closed".to_owned()), "{check:?}");
    assert!(check.contains(&"tollgate.denied_by=guard".to_owned()), "{check:?}");
    let call = attributes(&spans[1].attributes);
    assert!(call.contains(&"error.type=unavailable".to_owned()), "{call:?}");
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.status.as_ref().unwrap().code == 2));
}

#[tokio::test]
async fn the_resource_names_the_service_and_headers_go_along() {
    let collector = Collector::start().await;
    let section = collector.section("1").replace(
        "sample: 1",
        "sample: 1, service_name: edge, headers: { Authorization: Bearer hush }",
    );
    let service = Service::start(&format!("{section}{RULES}")).await;
    check(&service, &[]).await;
    assert_eq!(collector.after(service).await.len(), 1);
    let (metadata, request) = collector.requests().remove(0);
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer hush");
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    let named = attributes(&resource.attributes);
    assert!(named.contains(&"service.name=edge".to_owned()), "{named:?}");
    let scope = request.resource_spans[0].scope_spans[0].scope.as_ref().unwrap();
    assert_eq!((scope.name.as_str(), scope.version.as_str()), ("tollgate", "0.1.0"));
}

#[tokio::test]
async fn spans_are_sent_without_a_stop_and_counted() {
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{RULES}", collector.section("1"))).await;
    check(&service, &[]).await;
    for _ in 0..1_000 {
        if service.metric("tollgate_spans_exported_total").await == Some(1.0) {
            assert_eq!(collector.requests().len(), 1);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the span is never sent");
}

#[tokio::test]
async fn who_goes_away_is_a_span_that_says_so() {
    let rules =
        "rules: [{ name: per-ip, match: { path: /login }, key: ip, limit: 2/min, burst: 1 }]";
    let collector = Collector::start().await;
    let service = Service::start(&format!("{}{rules}", collector.section("1"))).await;
    assert_eq!(check(&service, &[]).await, 200);
    // One comes back in half a minute, which is more than this test takes.
    let waiting = r#"{"attributes":{"path":"/login","ip":"203.0.113.7"},"wait_ms":50000}"#;
    let in_flight = r#"tollgate_requests_in_flight{listener="http"}"#;
    let stands = async |count: f64| {
        for _ in 0..1_000 {
            if service.metric(in_flight).await == Some(count) {
                return;
            }
        }
        panic!("there are never {count} in flight");
    };
    // Whoever waits is dropped as soon as it was seen.
    tokio::select! {
        reply = service.post("/v1/acquire", waiting) => panic!("{reply:?}"),
        () = stands(1.0) => {}
    }
    stands(0.0).await;
    let spans = collector.after(service).await;
    let gone = spans.iter().find(|span| span.name == "POST /v1/acquire").unwrap();
    assert_eq!(gone.status.as_ref().unwrap().code, 2);
    let gone = attributes(&gone.attributes);
    assert!(gone.contains(&"error.type=cancelled".to_owned()), "{gone:?}");
}
