//! What the layer does with requests and responses.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use tollgate::{
    AnyStore, Attributes, Cost, Limiter, Mode, Rule, Store, StoreError, Timestamp, Verdict,
};
use tollgate_core::{Charge, Decisions, Operation};
use tollgate_tower::headers::HeaderFormat;
use tollgate_tower::{ClientIp, Extractor, RateLimitLayer, Rejection};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Body, hello, limiter, request_from, rule, send, text};

#[tokio::test]
async fn requests_pass_until_the_budget_is_spent_and_again_after_the_wait() {
    let (limiter, clock) = limiter([rule("login-per-ip", "20/min", 2).with_key(["ip"])]);
    let (hello, reached) = hello();
    let service = RateLimitLayer::new(limiter).layer(hello);

    for remaining in ["1", "0"] {
        let response = send(&service, request_from("203.0.113.7:4711")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        assert!(!response.headers().contains_key("retry-after"));
    }
    let denied = send(&service, request_from("203.0.113.7:4712")).await;
    assert_eq!(
        (denied.status().as_u16(), &denied.headers()["retry-after"]),
        (429, &"3".parse().unwrap())
    );
    assert_eq!(reached.load(Ordering::SeqCst), 2);

    clock.advance(Duration::from_micros(2_999_999));
    assert_eq!(send(&service, request_from("203.0.113.7:4713")).await.status(), 429);
    clock.advance(Duration::from_micros(1));
    assert_eq!(send(&service, request_from("203.0.113.7:4713")).await.status(), 200);
    assert_eq!(reached.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn g3_denied_requests_never_reach_the_service_and_cost_nothing() {
    let (limiter, clock) = limiter([rule("all", "1/s", 1)]);
    let (hello, reached) = hello();
    let service = RateLimitLayer::new(limiter).layer(hello);
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    for _ in 0..100 {
        assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 429);
    }
    assert_eq!(reached.load(Ordering::SeqCst), 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
}

#[tokio::test]
async fn an_allowed_response_is_that_of_the_service_with_the_headers_of_the_limit() {
    let (limiter, _) = limiter([rule("all", "1/s", 5)]);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    assert_eq!(
        text(send(&service, request_from("203.0.113.7:1")).await).await,
        "200 OK\n\
         ratelimit-policy: \"all\";q=5;w=5\n\
         ratelimit: \"all\";r=4;t=4\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 4\n\
         x-ratelimit-reset: 1\n\
         \n\
         hello"
    );
}

#[tokio::test]
async fn a_response_without_a_limit_is_left_alone() {
    let rules = [
        rule("elsewhere", "1/s", 1).with_match("path", ["/login"]),
        rule("trial", "1/s", 1).with_shadow(true),
    ];
    let (limiter, _) = limiter(rules);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    for trial_denies in [false, true] {
        let response = send(&service, request_from("203.0.113.7:1")).await;
        let verdict = response.extensions().get::<Verdict>().unwrap();
        assert_eq!((verdict.mode(), verdict.rules().len()), (Mode::Unlimited, 1));
        assert_eq!(verdict.rules()[0].decision().is_deny(), trial_denies);
        assert_eq!(text(response).await, "200 OK\n\nhello");
    }
}

#[tokio::test]
async fn each_client_has_a_budget_of_its_own_and_cannot_claim_that_of_another() {
    let (limiter, _) = limiter([rule("per-ip", "1/s", 1).with_key(["ip"])]);
    let service = RateLimitLayer::new(limiter).layer(hello().0);
    let claiming = |peer: &str, claim: &str| {
        let mut request = request_from(peer);
        request.headers_mut().insert("x-forwarded-for", claim.parse().unwrap());
        request
    };
    assert_eq!(send(&service, request_from("203.0.113.7:1")).await.status(), 200);
    assert_eq!(send(&service, claiming("203.0.113.7:2", "6.6.6.6")).await.status(), 429);
    assert_eq!(send(&service, request_from("203.0.113.8:1")).await.status(), 200);
    assert_eq!(send(&service, request_from("[2001:db8::1]:1")).await.status(), 200);
    assert_eq!(send(&service, request_from("[2001:db8::2]:1")).await.status(), 429);
}

#[tokio::test]
async fn clients_of_a_trusted_proxy_have_budgets_of_their_own() {
    let (limiter, _) = limiter([rule("per-ip", "1/s", 1).with_key(["ip"])]);
    let proxies = ClientIp::new().trust(["10.0.0.1/32".parse().unwrap()]);
    let service = RateLimitLayer::new(limiter)
        .attributes(Extractor::default().client_ip(proxies))
        .layer(hello().0);
    for (client, status) in [("203.0.113.7", 200), ("203.0.113.8", 200), ("203.0.113.7", 429)] {
        let mut request = request_from("10.0.0.1:443");
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        assert_eq!(send(&service, request).await.status(), status, "{client}");
    }
}

#[tokio::test]
async fn without_a_known_peer_a_rule_by_ip_skips_or_shares_as_it_says() {
    let request = || Request::get("/cart").body(()).unwrap();
    let per_ip = rule("per-ip", "1/s", 1).with_key(["ip"]);

    let service = RateLimitLayer::new(limiter([per_ip.clone()]).0).layer(hello().0);
    for _ in 0..3 {
        assert_eq!(text(send(&service, request()).await).await, "200 OK\n\nhello");
    }

    let sharing = per_ip.with_missing(tollgate::Missing::Share);
    let service = RateLimitLayer::new(limiter([sharing]).0).layer(hello().0);
    assert_eq!(send(&service, request()).await.status(), 200);
    assert_eq!(send(&service, request()).await.status(), 429);
}

#[tokio::test]
async fn verdict_and_rejection_are_in_the_extensions() {
    let (limiter, _) = limiter([rule("all", "1/s", 1)]);
    let service = RateLimitLayer::new(limiter).layer(hello().0);

    let allowed = send(&service, request_from("203.0.113.7:1")).await;
    let verdict = allowed.extensions().get::<Verdict>().unwrap();
    assert_eq!((verdict.is_allowed(), verdict.remaining()), (true, Some(0)));
    assert!(allowed.extensions().get::<Rejection>().is_none());

    let denied = send(&service, request_from("203.0.113.7:1")).await;
    let verdict = denied.extensions().get::<Verdict>().unwrap();
    assert_eq!((verdict.rule().map(Rule::name), verdict.is_allowed()), (Some("all"), false));
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert!(rejection.is_denied());
    assert_eq!(rejection.verdict(), Some(verdict));
}

#[tokio::test]
async fn services_of_one_layer_and_its_clones_share_the_budget() {
    let (limiter, _) = limiter([rule("all", "1/s", 3)]);
    let layer = RateLimitLayer::new(limiter);
    let services = [layer.layer(hello().0), layer.layer(hello().0), layer.clone().layer(hello().0)];
    for (service, remaining) in services.iter().zip(["2", "1", "0"]) {
        let response = send(service, request_from("203.0.113.7:1")).await;
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
    }
    assert_eq!(send(&services[0], request_from("203.0.113.7:1")).await.status(), 429);
}

#[tokio::test]
async fn headers_of_the_service_stay_as_they_are() {
    let (limiter, _) = limiter([rule("all", "1/s", 5)]);
    let upstream = service_fn(|_: Request<()>| async {
        let response = Response::builder()
            .status(503)
            .header("retry-after", "17")
            .header("x-ratelimit-remaining", "99");
        response.body(Body::default())
    });
    let service = RateLimitLayer::new(limiter).layer(upstream);
    assert_eq!(
        text(service.oneshot(request_from("203.0.113.7:1")).await.unwrap()).await,
        "503 Service Unavailable\n\
         ratelimit-policy: \"all\";q=5;w=5\n\
         ratelimit: \"all\";r=4;t=4\n\
         retry-after: 17\n\
         x-ratelimit-remaining: 99\n\
         \n"
    );
}

#[tokio::test]
async fn a_denial_of_an_inner_layer_keeps_its_headers_and_its_verdict() {
    let (outer, _) = limiter([rule("outer", "1/s", 5)]);
    let (inner, _) = limiter([rule("inner", "1/min", 1)]);
    let service = RateLimitLayer::new(inner).layer(hello().0);
    let service = RateLimitLayer::new(outer).layer(service);
    let response = service.clone().oneshot(request_from("203.0.113.7:1")).await.unwrap();
    assert_eq!(response.headers()["ratelimit"], "\"inner\";r=0;t=60");

    let denied = service.oneshot(request_from("203.0.113.7:1")).await.unwrap();
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "60");
    assert_eq!(denied.headers()["x-ratelimit-limit"], "1");
    let verdict = denied.extensions().get::<Verdict>().unwrap();
    assert_eq!(verdict.rule().map(Rule::name), Some("inner"));
}

#[tokio::test]
async fn errors_of_the_service_pass_through_and_what_was_spent_stays_spent() {
    let (limiter, _) = limiter([rule("all", "1/s", 2)]);
    let failing = service_fn(|_: Request<()>| async { Err::<Response<Body>, _>("broken pipe") });
    let service = RateLimitLayer::new(limiter.clone()).layer(failing);
    let error = service.oneshot(request_from("203.0.113.7:1")).await.unwrap_err();
    assert_eq!(error, "broken pipe");
    let left = limiter.peek(&Attributes::new()).await.unwrap();
    assert_eq!(left.remaining(), Some(1));
}

#[tokio::test]
async fn a_cost_can_be_fixed_or_made_from_the_request() {
    let (limiter, _) = limiter([rule("all", "1/s", 10)]);
    let layer = RateLimitLayer::new(limiter);
    let fixed = layer.clone().cost(Cost::new(4)).layer(hello().0);
    let response = send(&fixed, request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "6");

    let batch = layer.cost_of(|request| match request.headers.get("batch") {
        Some(_) => Cost::new(5),
        None => Cost::ZERO,
    });
    let batch = batch.layer(hello().0);
    let response = send(&batch, request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["x-ratelimit-remaining"], "6");
    let mut request = request_from("203.0.113.7:1");
    request.headers_mut().insert("batch", "yes".parse().unwrap());
    assert_eq!(send(&batch, request).await.headers()["x-ratelimit-remaining"], "1");
}

#[tokio::test]
async fn headers_can_be_left_out() {
    let (limiter, _) = limiter([rule("all", "1/s", 1)]);
    let format = HeaderFormat::new().with_draft(None).with_legacy(None);
    let service = RateLimitLayer::new(limiter).headers(format).layer(hello().0);
    let response = send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(text(response).await, "200 OK\n\nhello");
    let denied = send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(denied.headers()["retry-after"], "1");
    assert!(!denied.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn the_request_reaches_the_service_whole() {
    let (limiter, _) = limiter([rule("all", "1/s", 1)]);
    let echo = service_fn(|request: Request<&'static str>| async move {
        let (parts, body) = request.into_parts();
        let text = format!("{} {} {:?} {body}", parts.method, parts.uri, parts.headers["x-a"]);
        Ok::<_, std::convert::Infallible>(Response::new(Full::<bytes::Bytes>::from(text)))
    });
    let service = RateLimitLayer::new(limiter).layer(echo);
    let request = Request::post("/cart?item=1").header("x-a", "b").body("payload").unwrap();
    let response = text(service.oneshot(request).await.unwrap()).await;
    assert!(response.ends_with("\n\nPOST /cart?item=1 \"b\" payload"), "{response}");
}

/// A service that must be polled to readiness before each call, and whose clones are not ready.
#[derive(Debug, Default)]
struct OncePerReadiness {
    ready: bool,
}

impl Clone for OncePerReadiness {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for OncePerReadiness {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let ready = std::mem::take(&mut self.ready);
        std::future::ready(if ready { Ok(Response::default()) } else { Err("was not ready") })
    }
}

#[tokio::test]
async fn the_service_that_was_polled_to_readiness_is_the_one_that_is_called() {
    let (limiter, _) = limiter([rule("all", "1/s", 5)]);
    let mut service = RateLimitLayer::new(limiter).layer(OncePerReadiness::default());
    for _ in 0..2 {
        let ready = service.ready().await.unwrap();
        let first = ready.call(request_from("203.0.113.7:1"));
        assert!(!service.inner().ready, "a clone took the place of the ready service");
        assert_eq!(first.await.unwrap().status(), 200);
    }
    let unready = service.call(request_from("203.0.113.7:1"));
    assert_eq!(unready.await.unwrap_err(), "was not ready");
}

/// A store that never answers.
struct Silent;

impl Store for Silent {
    async fn apply(
        &self,
        _: Operation,
        _: &[Charge<'_>],
        _: Timestamp,
    ) -> Result<Decisions, StoreError> {
        pending().await
    }

    async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
        pending().await
    }
}

#[tokio::test]
async fn nothing_reaches_the_service_before_the_verdict() {
    let limiter = Limiter::builder().rule(rule("all", "1/s", 1)).store(AnyStore::new(Silent));
    let (hello, reached) = hello();
    let mut service = RateLimitLayer::new(limiter.build().unwrap()).layer(hello);
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut response = pin!(service.ready().await.unwrap().call(request_from("203.0.113.7:1")));
        assert!(response.as_mut().poll(&mut context).is_pending());
        assert!(response.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_response_polled_after_its_end_is_pending() {
    let (limiter, _) = limiter([rule("all", "1/s", 1)]);
    let mut service = RateLimitLayer::new(limiter).layer(hello().0);
    let mut context = Context::from_waker(Waker::noop());
    for status in [200, 429] {
        let mut response = pin!(service.ready().await.unwrap().call(request_from("203.0.113.7:1")));
        let Poll::Ready(Ok(first)) = response.as_mut().poll(&mut context) else {
            panic!("the memory store answers at once");
        };
        assert_eq!(first.status(), status);
        assert!(response.as_mut().poll(&mut context).is_pending());
    }
}

#[tokio::test]
async fn a_domain_has_rules_of_its_own() {
    let rules = [rule("all", "1/s", 1), rule("all", "1/s", 7).with_domain("shop")];
    let service = RateLimitLayer::new(limiter(rules).0)
        .attributes(Extractor::new().domain("shop"))
        .layer(hello().0);
    let response = send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "7");
}
