//! The body of a response whose request holds slots.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate::Permit;

pin_project! {
    /// The body of a response of [`RateLimit`](crate::RateLimit). If a concurrency rule applies, it
    /// holds the slots of its request until it ends, fails or is dropped.
    ///
    /// It is a body of the same data and errors as the body of the service, with the same length,
    /// so it fits wherever that fits: axum and tonic take any body of `Bytes` that is `Send`. Without
    /// a concurrency rule it holds nothing and passes everything on.
    #[derive(Debug, Default)]
    pub struct PermitBody<B> {
        #[pin]
        inner: B,
        permit: Option<Permit>,
    }
}

impl<B> PermitBody<B> {
    pub(crate) const fn new(inner: B, permit: Option<Permit>) -> Self {
        Self { inner, permit }
    }

    /// Returns the body of the service.
    pub const fn get_ref(&self) -> &B {
        &self.inner
    }

    /// Unwraps the body of the service and releases the slots.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            drop(this.permit.take());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// So that an outer [`RateLimitLayer`](crate::RateLimitLayer) can answer by
/// [`ProblemResponse`](crate::ProblemResponse) as well.
impl<B: From<String>> From<String> for PermitBody<B> {
    fn from(text: String) -> Self {
        Self::new(B::from(text), None)
    }
}
