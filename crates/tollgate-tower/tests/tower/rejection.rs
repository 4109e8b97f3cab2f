//! What a client is told when its request is turned away.

use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::{
    Attributes, Cost, CostRule, FailurePolicy, Matcher, Mode, Rule, StoreErrorKind, Treatment,
    Verdict,
};
use tollgate_tower::{Extractor, RateLimitLayer, Rejection, RejectionResponse};
use tower::Layer;

use crate::support::{Body, hello, limiter, limiter_without_store, request_from, rule, send, text};

#[tokio::test]
async fn a_denial_is_a_429_with_a_problem() {
    let rules =
        [rule("everyone", "100/s", 100), rule("login-per-ip", "20/min", 2).with_key(["ip"])];
    let (limiter, clock) = limiter(rules);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    for _ in 0..2 {
        assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    }
    clock.advance(Duration::from_millis(1_234));
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        concat!(
            "429 Too Many Requests\n",
            "content-type: application/problem+json\n",
            "ratelimit-policy: \"everyone\";q=100;w=1, \"login-per-ip\";q=2;w=6\n",
            "ratelimit: \"login-per-ip\";r=0;t=2\n",
            "retry-after: 2\n",
            "x-ratelimit-limit: 2\n",
            "x-ratelimit-remaining: 0\n",
            "x-ratelimit-reset: 5\n",
            "x-ratelimit-rule: login-per-ip\n",
            "\n",
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too Many Requests","status":429,"#,
            r#""detail":"the rate limit is used up: try again in 1766 ms","#,
            r#""rule":"login-per-ip","retry_after_ms":1766,"violated-policies":["login-per-ip"]}"#,
        )
    );
}

#[tokio::test]
async fn a_wait_below_a_second_is_a_retry_after_of_1_and_never_of_0() {
    let (limiter, clock) = limiter([rule("api", "1000/s", 1)]);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    clock.advance(Duration::from_micros(999));
    let denied = text(send(&service, request_from("203.0.113.7:1")).await).await;
    assert!(denied.contains("\nretry-after: 1\n"), "{denied}");
    assert!(denied.contains("\"retry_after_ms\":1,"), "{denied}");
}

#[tokio::test]
async fn all_rules_that_deny_are_named_and_shadow_rules_are_not() {
    let rules = [
        rule("a", "1/s", 1),
        rule("trial", "1/day", 1).with_shadow(true),
        rule("b", "1/min", 1),
        rule("c", "1/s", 9),
    ];
    let service = RateLimitLayer::new(limiter(rules).0).layer(hello().0);
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    let denied = text(send(&service, request_from("203.0.113.7:1")).await).await;
    assert!(denied.contains(r#""rule":"b","#), "{denied}");
    assert!(denied.contains(r#""violated-policies":["a","b"]"#), "{denied}");
    assert!(!denied.contains("trial"), "{denied}");
}

#[tokio::test]
async fn an_impossible_cost_is_a_422_and_spends_nothing() {
    let (limiter, _) = limiter([rule("bulk", "1/s", 5)]);
    let layer = RateLimitLayer::new(limiter.clone()).cost(Cost::new(6));
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    assert!(response.extensions().get::<Rejection>().unwrap().is_impossible());
    assert!(response.extensions().get::<Verdict>().is_none());
    assert_eq!(
        text(response).await,
        concat!(
            "422 Unprocessable Entity\n",
            "content-type: application/problem+json\n",
            "\n",
            r#"{"type":"about:blank","title":"Unprocessable Entity","status":422,"#,
            r#""detail":"cost 6 can never succeed: rule \"bulk\" admits at most 5 at once","#,
            r#""rule":"bulk"}"#,
        )
    );
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.remaining(), Some(5));
}

#[tokio::test]
async fn g10_a_failed_store_is_a_503_where_a_rule_is_closed_and_tells_nothing_of_the_store() {
    let closed = rule("pay", "1/s", 5).with_failure_policy(FailurePolicy::Closed);
    let layer = RateLimitLayer::new(limiter_without_store(closed));
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    let rejection = response.extensions().get::<Rejection>().unwrap();
    assert!(rejection.is_store_failure());
    let error = rejection.error().unwrap();
    assert_eq!(error.store_failure(), Some(StoreErrorKind::Unavailable));
    assert_eq!(
        text(response).await,
        concat!(
            "503 Service Unavailable\n",
            "content-type: application/problem+json\n",
            "retry-after: 1\n",
            "\n",
            r#"{"type":"about:blank","title":"Service Unavailable","status":503,"#,
            r#""detail":"the rate limit cannot be checked at the moment: try again in 1000 ms","#,
            r#""rule":"pay","retry_after_ms":1000}"#,
        )
    );
}

#[tokio::test]
async fn g10_a_failed_store_lets_pass_or_limits_locally_as_the_rule_says() {
    for (policy, mode, second) in
        [(FailurePolicy::Open, Mode::Open, 200), (FailurePolicy::Local, Mode::Local, 429)]
    {
        let limiter = limiter_without_store(rule("all", "1/s", 1).with_failure_policy(policy));
        let service = RateLimitLayer::new(limiter).layer(hello().0);
        let response = send(&service, request_from("203.0.113.7:1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.extensions().get::<Verdict>().unwrap().mode(), mode);
        assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), second);
    }
}

#[tokio::test]
async fn a_request_with_too_many_rules_is_a_500_and_tells_no_key() {
    let many = |index| rule(&format!("rule-{index}"), "1/s", 1).with_key(["ip"]);
    let service = RateLimitLayer::new(limiter((0..65).map(many)).0).layer(hello().0);
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        concat!(
            "500 Internal Server Error\n",
            "content-type: application/problem+json\n",
            "\n",
            r#"{"type":"about:blank","title":"Internal Server Error","status":500,"#,
            r#""detail":"the request cannot be charged to its rate limits"}"#,
        )
    );
}

#[tokio::test]
async fn a_blocked_request_is_a_429_without_a_retry_after() {
    let blocking = rule("all", "1/s", 5)
        .with_exception(Matcher::new().with("path", ["/cart"]), Treatment::Blocked);
    let (limiter, _) = limiter([rule("other", "1/s", 5), blocking]);
    let service = RateLimitLayer::new(limiter.clone()).layer(hello().0);
    let response = send(&service, request_from("203.0.113.7:1")).await;
    let rejection = response.extensions().get::<Rejection>().unwrap();
    assert!(rejection.is_denied() && rejection.is_blocked());
    assert_eq!(rejection.retry_after(), None);
    assert_eq!(
        text(response).await,
        concat!(
            "429 Too Many Requests\n",
            "content-type: application/problem+json\n",
            "ratelimit-policy: \"other\";q=5;w=5, \"all\";q=0\n",
            "ratelimit: \"all\";r=0\n",
            "x-ratelimit-limit: 0\n",
            "x-ratelimit-remaining: 0\n",
            "x-ratelimit-reset: 0\n",
            "x-ratelimit-rule: all\n",
            "\n",
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too Many Requests","status":429,"detail":"such requests are blocked","#,
            r#""rule":"all","violated-policies":["all"]}"#,
        )
    );
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.remaining(), Some(5));
}

#[tokio::test]
async fn an_attribute_that_does_not_tell_the_cost_is_a_400_and_spends_nothing() {
    let by_bytes = rule("upload", "1/s", 500).with_cost(CostRule::Attribute("bytes".to_owned()));
    let (limiter, _) = limiter([by_bytes]);
    let bytes = Extractor::new().header(CONTENT_LENGTH, "bytes");
    let service = RateLimitLayer::new(limiter.clone()).attributes(bytes).layer(hello().0);
    let upload =
        |bytes: &str| Request::post("/upload").header(CONTENT_LENGTH, bytes).body(()).unwrap();
    assert_eq!(send(&service, upload("200")).await.headers()["x-ratelimit-remaining"], "300");
    let response = send(&service, upload("2e2")).await;
    assert!(response.extensions().get::<Rejection>().unwrap().is_bad_cost());
    assert_eq!(
        text(response).await,
        concat!(
            "400 Bad Request\n",
            "content-type: application/problem+json\n",
            "\n",
            r#"{"type":"about:blank","title":"Bad Request","status":400,"#,
            r#""detail":"attribute \"bytes\" tells the cost and must be a whole number, "#,
            r#"not \"2e2\""}"#,
        )
    );
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(300));
}

#[tokio::test]
async fn a_rejection_of_ones_own_has_the_last_word_and_knows_the_request() {
    let (limiter, _) = limiter([rule("all", "1/min", 1)]);
    let own = |rejection: &Rejection, request: &Parts| {
        Response::builder()
            .status(StatusCode::IM_A_TEAPOT)
            .header("retry-after", "77")
            .body(Body::from(format!("{}: {rejection}", request.uri)))
            .unwrap()
    };
    let service = RateLimitLayer::new(limiter).on_rejection(own).layer(hello().0);
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    let denied = send(&service, request_from("203.0.113.7:1")).await;
    assert!(denied.extensions().get::<Rejection>().unwrap().is_denied());
    assert_eq!(
        text(denied).await,
        "418 I'm a teapot\n\
         ratelimit-policy: \"all\";q=1;w=60\n\
         ratelimit: \"all\";r=0;t=60\n\
         retry-after: 77\n\
         x-ratelimit-limit: 1\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 60\n\
         x-ratelimit-rule: all\n\
         \n\
         /cart: the rate limit is used up: try again in 60000 ms"
    );
}

#[test]
fn the_default_fits_the_usual_bodies() {
    fn fits<B>()
    where
        tollgate_tower::ProblemResponse: RejectionResponse<B>,
    {
    }
    fits::<axum::body::Body>();
    fits::<Full<bytes::Bytes>>();
    fits::<String>();
    fits::<Vec<u8>>();
}

#[tokio::test]
async fn a_rejection_tells_its_rule_status_and_wait() {
    let (limiter, _) = limiter([rule("all", "1/min", 1)]);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    let denied = send(&service, request_from("203.0.113.7:1")).await;
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.rule().map(Rule::name), Some("all"));
    assert_eq!(rejection.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rejection.retry_after(), Some(Duration::from_secs(60)));
    assert!(rejection.error().is_none());
}
