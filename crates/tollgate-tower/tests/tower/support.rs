//! What the tests share.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::{
    Attributes, Clock, Limiter, ManualClock, Quota, Rule, Store, StoreError, StoreErrorKind,
    Timestamp,
};
use tollgate_core::{Charge, Decisions, Operation};
use tollgate_tower::{PeerAddr, PermitBody, RateLimit, RejectionResponse};
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

pub(crate) type Body = Full<Bytes>;
pub(crate) type Inner = BoxCloneSyncService<Request<()>, Response<Body>, Infallible>;

pub(crate) fn rule(name: &str, rate: &str, burst: u64) -> Rule {
    Rule::new(name, Quota::new(rate.parse().unwrap(), burst).unwrap())
}

pub(crate) fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap(), clock)
}

pub(crate) fn leaky(name: &str, rate: &str, burst: u64) -> Rule {
    Rule::new(name, Quota::leaky_bucket(rate.parse().unwrap(), burst).unwrap())
}

/// A rule of so many slots with a lease of 30 s.
pub(crate) fn slots(name: &str, count: u64) -> Rule {
    Rule::new(name, Quota::concurrency(count, Duration::from_secs(30)).unwrap())
}

/// The time of the test's runtime, which stands still while there is work, as a clock.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000).saturating_add(self.0.elapsed())
    }
}

/// A limiter on the paused time of the test's runtime.
pub(crate) fn limiter_on_paused_time(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().rules(rules).clock(PausedClock(Instant::now())).build().unwrap()
}

/// The units or slots left under the most restrictive rule.
pub(crate) async fn remaining(limiter: &Limiter) -> u32 {
    limiter.given_back().await;
    limiter.peek(&Attributes::new()).await.unwrap().remaining().unwrap()
}

/// A service that answers `hello`, and the number of requests that have reached it.
pub(crate) fn hello() -> (Inner, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let service = service_fn(move |_: Request<()>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(Response::new(Full::from("hello"))) }
    });
    (BoxCloneSyncService::new(service), count)
}

pub(crate) fn request_from(peer: &str) -> Request<()> {
    let peer = PeerAddr(peer.parse().unwrap());
    Request::get("/cart").extension(peer).body(()).unwrap()
}

/// Sends one request to a clone of `service`.
pub(crate) async fn send<R>(
    service: &RateLimit<Inner, R>,
    request: Request<()>,
) -> Response<PermitBody<Body>>
where
    R: RejectionResponse<Body> + Clone,
{
    service.clone().oneshot(request).await.unwrap()
}

/// A response as text: status, headers in order of their names, body.
pub(crate) async fn text(response: Response<PermitBody<Body>>) -> String {
    let (parts, body) = response.into_parts();
    let mut headers: Vec<String> = parts
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
        .collect();
    headers.sort();
    let body = body.collect().await.unwrap().to_bytes();
    format!("{}\n{}\n{}", parts.status, headers.concat(), str::from_utf8(&body).unwrap())
}

/// A store that cannot be reached, with an error that no client may see.
pub(crate) struct Unreachable;

impl Store for Unreachable {
    async fn apply(
        &self,
        _operation: Operation,
        charges: &[Charge<'_>],
        _now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let key = charges[0].key;
        let text = format!("redis://secret@10.0.0.9:6379: refused: EVALSHA {key}");
        Err(StoreError::new(StoreErrorKind::Unavailable, text))
    }

    async fn reset(&self, _keys: &[&str]) -> Result<(), StoreError> {
        Ok(())
    }
}

pub(crate) fn limiter_without_store(rule: Rule) -> Limiter {
    let store = tollgate::AnyStore::new(Unreachable);
    Limiter::builder().rule(rule).store(store).clock(ManualClock::new()).build().unwrap()
}
