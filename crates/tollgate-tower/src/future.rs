//! The future of a limited response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::{CheckError, Verdict};
use tower_service::Service;

use crate::headers::{HeaderFormat, write_retry_after};
use crate::rejection::Rejection;
use crate::response::RejectionResponse;

/// The check, boxed: an `async fn` has a type without a name, and this future has to have one.
type Check = Pin<Box<dyn Future<Output = Result<Verdict, CheckError>> + Send>>;

pin_project! {
    /// The response of [`RateLimit`](crate::RateLimit): first the check, then the inner service or
    /// the rejection.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped while the check is under way, the cost may have been spent; the inner
    /// service was not called.
    pub struct ResponseFuture<S, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, R, B>,
        headers: HeaderFormat,
    }
}

pin_project! {
    #[project = StateProjection]
    #[project_replace = StateReplaced]
    enum State<S, R, B>
    where
        S: Service<Request<B>>,
    {
        Checking { check: Check, judged: Judged<S, R, B> },
        Calling { #[pin] response: S::Future, verdict: Verdict },
        Done,
    }
}

/// What waits for the verdict.
pub(crate) struct Judged<S, R, B> {
    pub(crate) head: Parts,
    pub(crate) body: B,
    pub(crate) inner: S,
    pub(crate) rejection: R,
}

impl<S, R, B> ResponseFuture<S, R, B>
where
    S: Service<Request<B>>,
{
    pub(crate) const fn new(check: Check, judged: Judged<S, R, B>, headers: HeaderFormat) -> Self {
        Self { state: State::Checking { check, judged }, headers }
    }
}

impl<S, R, B, ResBody> Future for ResponseFuture<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: RejectionResponse<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Checking { check, .. } => {
                    let outcome = ready!(check.as_mut().poll(cx));
                    let StateReplaced::Checking { mut judged, .. } =
                        this.state.as_mut().project_replace(State::Done)
                    else {
                        return Poll::Pending;
                    };
                    let rejection = match outcome {
                        Ok(verdict) if verdict.is_allowed() => {
                            let request = Request::from_parts(judged.head, judged.body);
                            let response = judged.inner.call(request);
                            this.state.set(State::Calling { response, verdict });
                            continue;
                        }
                        Ok(verdict) => Rejection::denied(verdict),
                        Err(error) => Rejection::failed(error),
                    };
                    let response = judged.rejection.response(&rejection, &judged.head);
                    return Poll::Ready(Ok(rejected(response, rejection, *this.headers)));
                }
                StateProjection::Calling { response, verdict } => {
                    let mut response = ready!(response.poll(cx));
                    if let Ok(response) = &mut response {
                        label(response, verdict, *this.headers);
                    }
                    this.state.set(State::Done);
                    return Poll::Ready(response);
                }
                // Polled again after it was ready, which only a broken executor does.
                StateProjection::Done => return Poll::Pending,
            }
        }
    }
}

fn rejected<B>(
    mut response: Response<B>,
    rejection: Rejection,
    headers: HeaderFormat,
) -> Response<B> {
    if let Some(verdict) = rejection.verdict() {
        label(&mut response, verdict, headers);
    } else if let Some(wait) = rejection.retry_after() {
        write_retry_after(wait, response.headers_mut());
    }
    response.extensions_mut().insert(rejection);
    response
}

/// Puts the verdict on a response, in its headers and its extensions, unless an inner layer has
/// done so: what is nearer to the service has the last word.
fn label<B>(response: &mut Response<B>, verdict: &Verdict, headers: HeaderFormat) {
    headers.write(verdict, response.headers_mut());
    if response.extensions().get::<Verdict>().is_none() {
        response.extensions_mut().insert(verdict.clone());
    }
}

impl<S, R, B> fmt::Debug for ResponseFuture<S, R, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Checking { .. } => "checking",
            State::Calling { .. } => "calling",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
