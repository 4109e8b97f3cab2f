//! The future of a limited response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::{Acquisition, CheckError, Permit, Verdict};
use tower_service::Service;

use crate::body::PermitBody;
use crate::headers::{HeaderFormat, write_retry_after};
use crate::refund::{Refund, Spent};
use crate::rejection::Rejection;
use crate::response::RejectionResponse;

/// The way in, boxed: an `async fn` has a type without a name, and this future has to have one.
pub(crate) type Entry = Pin<Box<dyn Future<Output = Result<Entered, CheckError>> + Send>>;

/// What came of the way in: nothing for a request that is skipped, otherwise what the limiter says
/// and what is to be given back if the service fails.
pub(crate) type Entered = Option<(Acquisition, Option<Box<Spent>>)>;

pin_project! {
    /// The response of [`RateLimit`](crate::RateLimit): first the check and the wait that it may ask
    /// for, then the inner service or the rejection.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before the inner service is called, what was taken is given back; only where
    /// [no wait is set](crate::RateLimitLayer::max_wait) and no rule delays or counts slots, the
    /// cost may have been spent. If it is dropped later, its slots are released and its cost stays
    /// spent, or may stay so during [a refund](crate::RateLimitLayer::refund_if).
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
        Entering { entry: Entry, judged: Judged<S, R, B> },
        Calling {
            #[pin] response: S::Future,
            verdict: Option<Verdict>,
            permit: Option<Permit>,
            spent: Option<Box<Spent>>,
        },
        Refunding {
            refund: Refund,
            response: Result<S::Response, S::Error>,
            verdict: Option<Verdict>,
            permit: Option<Permit>,
        },
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
    pub(crate) const fn new(entry: Entry, judged: Judged<S, R, B>, headers: HeaderFormat) -> Self {
        Self { state: State::Entering { entry, judged }, headers }
    }
}

impl<S, R, B, ResBody> Future for ResponseFuture<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: RejectionResponse<ResBody>,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Entering { entry, .. } => {
                    let outcome = ready!(entry.as_mut().poll(cx));
                    let StateReplaced::Entering { mut judged, .. } =
                        this.state.as_mut().project_replace(State::Done)
                    else {
                        return Poll::Pending;
                    };
                    let rejection = match outcome {
                        Ok(None) => {
                            let request = Request::from_parts(judged.head, judged.body);
                            let response = judged.inner.call(request);
                            this.state.set(State::Calling {
                                response,
                                verdict: None,
                                permit: None,
                                spent: None,
                            });
                            continue;
                        }
                        Ok(Some((acquisition, spent))) if acquisition.is_granted() => {
                            let (verdict, permit) = acquisition.into_parts();
                            let permit = permit.map(Permit::renewing);
                            let mut request = Request::from_parts(judged.head, judged.body);
                            request.extensions_mut().insert(verdict.clone());
                            let response = judged.inner.call(request);
                            let verdict = Some(verdict);
                            this.state.set(State::Calling { response, verdict, permit, spent });
                            continue;
                        }
                        Ok(Some((acquisition, _))) => Rejection::refused(acquisition),
                        Err(error) => Rejection::failed(error),
                    };
                    let response = judged.rejection.response(&rejection, &judged.head);
                    let response = rejected(response, rejection, *this.headers);
                    return Poll::Ready(Ok(response.map(|body| PermitBody::new(body, None))));
                }
                StateProjection::Calling { response, verdict, permit, spent } => {
                    let response = ready!(response.poll(cx));
                    let (verdict, permit) = (verdict.take(), permit.take());
                    let (response, spent) = owed(response, spent.take());
                    if let Some(spent) = spent {
                        let refund = spent.refund();
                        this.state.set(State::Refunding { refund, response, verdict, permit });
                        continue;
                    }
                    this.state.set(State::Done);
                    return Poll::Ready(finished(response, verdict, permit, *this.headers));
                }
                StateProjection::Refunding { refund, .. } => {
                    let refunded = ready!(refund.as_mut().poll(cx));
                    let StateReplaced::Refunding { response, verdict, permit, .. } =
                        this.state.as_mut().project_replace(State::Done)
                    else {
                        return Poll::Pending;
                    };
                    let verdict = refunded.or(verdict);
                    return Poll::Ready(finished(response, verdict, permit, *this.headers));
                }
                // Polled again after it was ready, which only a broken executor does.
                StateProjection::Done => return Poll::Pending,
            }
        }
    }
}

/// Returns the response, and what its request gets back.
fn owed<B, E>(
    response: Result<Response<B>, E>,
    spent: Option<Box<Spent>>,
) -> (Result<Response<B>, E>, Option<Box<Spent>>) {
    match (response, spent) {
        (Ok(response), Some(spent)) => {
            let (head, body) = response.into_parts();
            let is_owed = (spent.refund_if)(&head);
            (Ok(Response::from_parts(head, body)), is_owed.then_some(spent))
        }
        (response, spent) => (response, spent),
    }
}

fn finished<B, E>(
    response: Result<Response<B>, E>,
    verdict: Option<Verdict>,
    permit: Option<Permit>,
    headers: HeaderFormat,
) -> Result<Response<PermitBody<B>>, E> {
    response.map(|mut response| {
        if let Some(verdict) = &verdict {
            label(&mut response, verdict, headers);
        }
        response.map(|body| PermitBody::new(body, permit))
    })
}

fn rejected<B>(
    mut response: Response<B>,
    rejection: Rejection,
    headers: HeaderFormat,
) -> Response<B> {
    let wait = rejection.retry_after();
    if let Some(verdict) = rejection.verdict() {
        headers.write_refused(verdict, wait, response.headers_mut());
        insert_verdict(&mut response, verdict);
    } else if let Some(wait) = wait {
        write_retry_after(wait, response.headers_mut());
    }
    response.extensions_mut().insert(rejection);
    response
}

/// Puts the verdict on a response, in its headers and its extensions, unless an inner layer has
/// done so: what is nearer to the service has the last word.
fn label<B>(response: &mut Response<B>, verdict: &Verdict, headers: HeaderFormat) {
    headers.write(verdict, response.headers_mut());
    insert_verdict(response, verdict);
}

fn insert_verdict<B>(response: &mut Response<B>, verdict: &Verdict) {
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
            State::Entering { .. } => "entering",
            State::Calling { .. } => "calling",
            State::Refunding { .. } => "refunding",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
