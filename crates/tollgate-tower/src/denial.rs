//! Denials as an application wants them.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::rejection::Rejection;
use crate::response::{ProblemResponse, RejectionResponse};

/// What a denial says in its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialBody {
    /// The `application/problem+json` of [`ProblemResponse`].
    #[default]
    Problem,
    /// Nothing.
    Empty,
    /// A text of this media type.
    Text {
        /// The body, as it is sent.
        text: String,
        /// The `Content-Type`.
        content_type: HeaderValue,
    },
}

/// The response to a denial with a status, a body and headers of the application's choice.
///
/// Rejections that are no denials, such as a store failure, are answered as [`ProblemResponse`] does.
/// The [headers of the limits](crate::headers) are added to all, but for those that are set here.
///
/// # Examples
///
/// ```
/// use http::header::{CACHE_CONTROL, HeaderValue};
/// use http::{Request, Response, StatusCode};
/// use std::convert::Infallible;
/// use tollgate::{Limiter, ManualClock, Quota, Rule};
/// use tollgate_tower::{DenialBody, DenialResponse, RateLimitLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let denial = DenialResponse::new()
///     .with_status(StatusCode::SERVICE_UNAVAILABLE)
///     .with_body(DenialBody::Text {
///         text: "Please slow down.\n".to_owned(),
///         content_type: HeaderValue::from_static("text/plain"),
///     })
///     .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
///
/// let limiter = Limiter::builder()
///     .rule(Rule::new("all", Quota::new("1/min".parse()?, 1)?))
///     .clock(ManualClock::new())
///     .build()?;
/// let hello = service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new("hello".to_owned()))
/// });
/// let service = RateLimitLayer::new(limiter).on_rejection(denial).layer(hello);
/// assert_eq!(service.clone().oneshot(Request::new(())).await?.status(), StatusCode::OK);
///
/// let denied = service.oneshot(Request::new(())).await?;
/// assert_eq!(denied.status(), StatusCode::SERVICE_UNAVAILABLE);
/// assert_eq!(denied.headers()["cache-control"], "no-store");
/// assert_eq!(denied.headers()["retry-after"], "60");
/// assert_eq!(denied.body().get_ref(), "Please slow down.\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct DenialResponse {
    status: StatusCode,
    body: DenialBody,
    headers: HeaderMap,
}

impl DenialResponse {
    /// Makes the response of [`ProblemResponse`]: 429 with a problem document.
    pub fn new() -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            body: DenialBody::Problem,
            headers: HeaderMap::new(),
        }
    }

    /// Sets the status. A problem document names it too.
    pub const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: DenialBody) -> Self {
        self.body = body;
        self
    }

    /// Adds a header, in place of one of the same name.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Returns the body.
    pub const fn body(&self) -> &DenialBody {
        &self.body
    }

    /// Returns the headers that are added to denials.
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Makes the response to a rejection, without the headers of its limits.
    pub fn respond<B: From<String>>(&self, rejection: &Rejection) -> Response<B> {
        if !rejection.is_denied() {
            return ProblemResponse::respond(rejection, rejection.status());
        }
        let mut response = match &self.body {
            DenialBody::Problem => ProblemResponse::respond(rejection, self.status),
            DenialBody::Empty => Response::new(B::from(String::new())),
            DenialBody::Text { text, content_type } => {
                let mut response = Response::new(B::from(text.clone()));
                response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
                response
            }
        };
        *response.status_mut() = self.status;
        for (name, value) in &self.headers {
            response.headers_mut().insert(name, value.clone());
        }
        response
    }
}

impl Default for DenialResponse {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: From<String>> RejectionResponse<B> for DenialResponse {
    fn response(&self, rejection: &Rejection, _request: &Parts) -> Response<B> {
        self.respond(rejection)
    }
}
