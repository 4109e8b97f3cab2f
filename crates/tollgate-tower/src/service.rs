//! The service that the layer makes.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate::Limiter;
use tower_service::Service;

use crate::body::PermitBody;
use crate::future::{Judged, ResponseFuture};
use crate::layer::Settings;
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
        let attributes = self.settings.extractor.attributes(&head);
        if self.settings.extractor.finds_ip() {
            self.settings.peers.look(&attributes, &self.limiter);
        }
        let cost = self.settings.cost.of(&head);
        let (limiter, max_wait) = (self.limiter.clone(), self.settings.max_wait);
        let entry = async move {
            match max_wait {
                Some(max_wait) => limiter.acquire(&attributes, cost, max_wait).await,
                None => limiter.enter(&attributes, cost).await,
            }
        };
        // The service that was polled to readiness serves this request; a clone of it is not ready.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let judged = Judged { head, body, inner, rejection: self.rejection.clone() };
        ResponseFuture::new(Box::pin(entry), judged, self.settings.headers)
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
