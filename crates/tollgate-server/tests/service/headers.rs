//! `headers` and `denial` of the configuration, over HTTP.

use tollgate::ManualClock;

use crate::support::{Reply, Service, request};

const LOGIN: [(&str, &str); 1] = [("x-forwarded-uri", "/login")];
const RULES: &str = "rules: [{ name: login, match: { path: /login }, limit: 1/min }]";

async fn service(sections: &str) -> Service {
    let config = format!("{sections}\n{RULES}");
    Service::start_with_clock(&config, &ManualClock::new()).await
}

async fn check(service: &Service, headers: &[(&str, &[u8])]) -> Reply {
    let body = br#"{"attributes":{"path":"/login"}}"#;
    request(service.http, "POST", "/v1/check", headers, body).await
}

#[tokio::test]
async fn the_format_of_the_headers_is_that_of_the_configuration() {
    let service = service("headers: { x_ratelimit: off, ietf: draft-07, rule: false }").await;
    let policy = ("ratelimit-policy", "1;w=60");
    let allowed = service.auth(&LOGIN).await;
    let left = ("ratelimit", "limit=1, remaining=0, reset=60");
    assert_eq!((allowed.status, allowed.own_headers()), (200, vec![left, policy]));
    let denied = service.auth(&LOGIN).await;
    let expected = vec![("retry-after", "60"), left, policy];
    assert_eq!((denied.status, denied.own_headers()), (429, expected.clone()));

    let denied = check(&service, &[]).await;
    let json = ("content-type", "application/json");
    assert_eq!(denied.own_headers(), [vec![json], expected].concat());
}

#[tokio::test]
async fn a_reset_can_be_a_point_in_time() {
    let service = service("headers: { x_ratelimit: epoch, ietf: off }").await;
    let reply = service.auth(&LOGIN).await;
    let reset: u64 = reply.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!(reset > 1_700_000_000, "{reset}");
    assert_eq!(reply.own_headers().len(), 3);
}

#[tokio::test]
async fn a_denial_of_forward_auth_is_as_configured() {
    let denial = "
denial:
  status: 503
  text: \"<p>Slow down</p>\"
  content_type: text/html
  headers: { Cache-Control: no-store, Retry-After: \"120\" }
";
    let service = service(denial).await;
    let allowed = service.auth(&LOGIN).await;
    assert_eq!((allowed.status, allowed.header("cache-control")), (200, None));
    let denied = service.auth(&LOGIN).await;
    assert_eq!((denied.status, denied.body.as_str()), (503, "<p>Slow down</p>"));
    assert_eq!(denied.header("content-type"), Some("text/html"));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    assert_eq!(denied.header("retry-after"), Some("120"), "what is configured has the last word");
    assert_eq!(denied.header("x-ratelimit-rule"), Some("login"));

    let checked = check(&service, &[]).await;
    assert_eq!((checked.status, checked.json()["allowed"].as_bool()), (429, Some(false)));
    assert_eq!(checked.header("cache-control"), Some("no-store"));
    assert_eq!(checked.header("retry-after"), Some("120"));
}

const PROBLEM: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Too Many Requests","status":429,"#,
    r#""detail":"the rate limit is used up: try again in 60000 ms","#,
    r#""rule":"login","retry_after_ms":60000,"violated-policies":["login"]}"#,
);

#[tokio::test]
async fn a_denial_of_forward_auth_can_be_a_problem_document() {
    let service = service("denial: { body: problem }").await;
    assert_eq!(service.auth(&LOGIN).await.body, "");
    let denied = service.auth(&LOGIN).await;
    assert_eq!((denied.status, denied.body.as_str()), (429, PROBLEM));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.header("retry-after"), Some("60"));
}

#[tokio::test]
async fn a_caller_of_the_api_has_a_problem_document_if_it_accepts_one() {
    let service = service("denial: { status: 503, headers: { Cache-Control: no-store } }").await;
    let accepts = "application/json, application/problem+json;q=0.9";
    let accept: [(&str, &[u8]); 1] = [("accept", accepts.as_bytes())];
    let allowed = check(&service, &accept).await;
    assert_eq!((allowed.status, allowed.json()["allowed"].as_bool()), (200, Some(true)));
    let denied = check(&service, &accept).await;
    assert_eq!((denied.status, denied.body.as_str()), (429, PROBLEM));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.header("cache-control"), Some("no-store"));
    assert_eq!(denied.header("x-ratelimit-rule"), Some("login"));
    assert_eq!(denied.header("retry-after"), Some("60"));
}
