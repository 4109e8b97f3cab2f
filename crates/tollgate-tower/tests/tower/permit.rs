//! Slots of concurrency rules: how long a request holds them.

use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;
use tollgate::Limiter;
use tollgate_tower::{GrpcRejection, PermitBody, RateLimitLayer, Rejection};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    Body, hello, limiter_on_paused_time, remaining, request_from, rule, send, slots, text,
};

/// A body that gives its pieces one by one, then ends or fails.
#[derive(Default)]
struct Pieces {
    left: u64,
    fails: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.left > 0 {
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))));
        }
        Poll::Ready(self.fails.then_some(Err("broken pipe")))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && !self.fails
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5 * self.left)
    }
}

fn limiter() -> Limiter {
    limiter_on_paused_time([slots("exports", 2)])
}

async fn export(limiter: &Limiter, pieces: u64, fails: bool) -> Response<PermitBody<Pieces>> {
    let exports = service_fn(move |_: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(Pieces { left: pieces, fails }))
    });
    let layer = RateLimitLayer::new(limiter.clone()).on_rejection(GrpcRejection);
    layer.layer(exports).oneshot(request_from("203.0.113.7:1")).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_body_has_ended() {
    let limiter = limiter();
    let mut body = export(&limiter, 2, false).await.into_body();
    for _ in 0..2 {
        assert!(body.frame().await.unwrap().unwrap().is_data());
        assert_eq!(remaining(&limiter).await, 1);
    }
    assert!(body.frame().await.is_none());
    assert_eq!(remaining(&limiter).await, 2, "the body is still there, and has ended");
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_the_body_fails_or_is_dropped() {
    let limiter = limiter();
    let mut failing = export(&limiter, 0, true).await.into_body();
    assert_eq!(remaining(&limiter).await, 1);
    assert_eq!(failing.frame().await.unwrap().unwrap_err(), "broken pipe");
    assert_eq!(remaining(&limiter).await, 2);

    let response = export(&limiter, 9, false).await;
    assert_eq!(remaining(&limiter).await, 1);
    drop(response);
    assert_eq!(remaining(&limiter).await, 2);

    let body = export(&limiter, 9, false).await.into_body();
    assert_eq!(body.get_ref().left, 9);
    let inner = body.into_inner();
    assert_eq!((inner.left, remaining(&limiter).await), (9, 2));
}

#[tokio::test(start_paused = true)]
async fn the_length_and_the_end_of_the_body_are_those_of_the_service() {
    let limiter = limiter();
    let mut body = export(&limiter, 1, false).await.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
    body.frame().await.unwrap().unwrap();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_slots_are_turned_away_and_hold_nothing() {
    let limiter = limiter();
    let service = RateLimitLayer::new(limiter.clone()).layer(hello().0);
    let held = [
        send(&service, request_from("203.0.113.7:1")).await,
        send(&service, request_from("203.0.113.7:1")).await,
    ];
    let denied = send(&service, request_from("203.0.113.7:1")).await;
    assert_eq!(denied.extensions().get::<Rejection>().unwrap().rule().unwrap().name(), "exports");
    assert_eq!(
        text(denied).await,
        concat!(
            "429 Too Many Requests\n",
            "content-type: application/problem+json\n",
            "ratelimit-policy: \"exports\";q=2;qu=\"concurrent-requests\"\n",
            "ratelimit: \"exports\";r=0\n",
            "retry-after: 30\n",
            "x-ratelimit-limit: 2\n",
            "x-ratelimit-remaining: 0\n",
            "x-ratelimit-reset: 30\n",
            "x-ratelimit-rule: exports\n",
            "\n",
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Too Many Requests","status":429,"#,
            r#""detail":"too many requests are in flight: try again in 30000 ms","#,
            r#""rule":"exports","retry_after_ms":30000,"violated-policies":["exports"]}"#,
        )
    );
    drop(held);
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_the_service_fails() {
    let limiter = limiter();
    let failing = service_fn(|_: Request<()>| async { Err::<Response<Body>, _>("broken pipe") });
    let service = RateLimitLayer::new(limiter.clone()).layer(failing);
    assert_eq!(service.oneshot(request_from("203.0.113.7:1")).await.unwrap_err(), "broken pipe");
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_the_service_panics() {
    let limiter = limiter();
    let layer = RateLimitLayer::new(limiter.clone());
    let late = layer.layer(service_fn(|_: Request<()>| async {
        sleep(Duration::from_millis(1)).await;
        assert!(pending_forever().await, "unreachable");
        Ok::<_, Infallible>(Response::new(Body::default()))
    }));
    let early = layer.layer(service_fn(|_: Request<()>| -> std::future::Pending<_> {
        std::panic::resume_unwind(Box::new("early"));
        #[expect(unreachable_code, reason = "it tells the type")]
        pending::<Result<Response<Body>, Infallible>>()
    }));
    let late = tokio::spawn(late.oneshot(request_from("203.0.113.7:1")));
    assert!(late.await.unwrap_err().is_panic());
    assert_eq!(remaining(&limiter).await, 2);
    let early = tokio::spawn(early.oneshot(request_from("203.0.113.7:1")));
    assert!(early.await.unwrap_err().is_panic());
    assert_eq!(remaining(&limiter).await, 2);
}

/// Unwinds without a message in the output of the test.
async fn pending_forever() -> bool {
    std::panic::resume_unwind(Box::new("late"))
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_when_the_client_goes_away_while_the_service_works() {
    let limiter = limiter();
    let never = service_fn(|_: Request<()>| pending::<Result<Response<Body>, Infallible>>());
    let service = RateLimitLayer::new(limiter.clone()).layer(never);
    {
        let mut response = pin!(service.oneshot(request_from("203.0.113.7:1")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(response.as_mut().poll(&mut context).is_pending());
        assert_eq!(remaining(&limiter).await, 1);
    }
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_outlasts_its_lease_keeps_its_slot() {
    let limiter = limiter();
    let slow = service_fn(|_: Request<()>| async {
        sleep(Duration::from_secs(300)).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
    });
    let service = RateLimitLayer::new(limiter.clone()).layer(slow);
    let response = tokio::spawn(service.oneshot(request_from("203.0.113.7:1")));
    sleep(Duration::from_secs(299)).await;
    assert_eq!(remaining(&limiter).await, 1);
    let response = response.await.unwrap().unwrap();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(remaining(&limiter).await, 1, "nobody has read the body yet");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_cost_takes_as_many_slots_and_other_rules_are_spent_beside_them() {
    let limiter = limiter_on_paused_time([slots("exports", 5), rule("all", "1/hour", 9)]);
    let layer = RateLimitLayer::new(limiter.clone()).cost(tollgate::Cost::new(3));
    let response = send(&layer.layer(hello().0), request_from("203.0.113.7:1")).await;
    assert_eq!(remaining(&limiter).await, 2);
    drop(response);
    let left = limiter.peek(&tollgate::Attributes::new()).await.unwrap();
    let left: Vec<_> = left.rules().iter().map(|rule| rule.decision().remaining()).collect();
    assert_eq!(left, [5, 6]);
}

#[test]
fn the_body_fits_where_axum_and_tonic_take_one() {
    fn fits<B>()
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
    }
    fits::<PermitBody<axum::body::Body>>();
    fits::<PermitBody<Full<Bytes>>>();
    fits::<PermitBody<PermitBody<Full<Bytes>>>>();
}
