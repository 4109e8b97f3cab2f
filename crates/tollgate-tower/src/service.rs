//! The service that the layer makes.

use std::fmt;
use std::future::ready;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use tollgate::Limiter;
use tower_service::Service;

use crate::body::PermitBody;
use crate::future::{Entry, Judged, ResponseFuture};
use crate::layer::Settings;
use crate::refund::Spent;
use crate::response::RejectionResponse;

/// Lets requests through to `S` as the limiter allows.
///
/// See the [crate docs](crate) for the rules and examples.
#[derive(Clone)]
#[must_use]
pub struct RateLimit<S, R> {
    inner: S,
    limiter: Limiter,
    settings: Arc<Settings>,
    rejection: R,
}

impl<S, R> RateLimit<S, R> {
    pub(crate) const fn new(
        inner: S,
        limiter: Limiter,
        settings: Arc<Settings>,
        rejection: R,
    ) -> Self {
        Self { inner, limiter, settings, rejection }
    }

    /// Returns the inner service.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Unwraps the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Asks the limiter about a request, or not if it is skipped.
    fn entry(&self, head: &Parts) -> Entry {
        let settings = &self.settings;
        if settings.skipped.has_head(head, &settings.extractor) {
            return Box::pin(ready(Ok(None)));
        }
        let mut attributes = settings.extractor.attributes(head);
        if settings.extractor.finds_ip() {
            settings.peers.look(&attributes, &self.limiter);
        }
        let cost = settings.cost.at_once(head);
        // What takes time gets a copy, since the head itself waits for the verdict.
        let takes_time = settings.extractor.is_async() || settings.cost.is_async();
        let head = takes_time.then(|| head.clone());
        let (limiter, settings) = (self.limiter.clone(), Arc::clone(settings));
        Box::pin(async move {
            let mut cost = cost.unwrap_or_default();
            if let Some(head) = head {
                settings.extractor.complete(&mut attributes, &head).await;
                if settings.cost.is_async() {
                    cost = settings.cost.of(head).await;
                }
            }
            if settings.skipped.has_attributes(&attributes) {
                return Ok(None);
            }
            let acquisition = match settings.max_wait {
                Some(max_wait) => limiter.acquire(&attributes, cost, max_wait).await?,
                None => limiter.enter(&attributes, cost).await?,
            };
            let refund_if = settings.refund_if.clone();
            let is_spent = acquisition.is_granted() && Spent::is_in_store(acquisition.verdict());
            let spent = refund_if
                .filter(|_| is_spent)
                .map(|refund_if| Box::new(Spent { limiter, attributes, cost, refund_if }));
            Ok(Some((acquisition, spent)))
        })
    }
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody> + Clone,
{
    type Response = Response<PermitBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (head, body) = request.into_parts();
        let entry = self.entry(&head);
        // The service that was polled to readiness serves this request; a clone of it is not ready.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let judged = Judged { head, body, inner, rejection: self.rejection.clone() };
        ResponseFuture::new(entry, judged, self.settings.headers)
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
