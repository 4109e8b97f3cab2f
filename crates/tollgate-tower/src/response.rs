//! What a client is told when its request is turned away.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use serde::Serialize;
use tollgate::{Decision, Rule, RuleDecision, Verdict};

use crate::rejection::Rejection;

/// Makes the response to a request that was turned away.
///
/// Any closure `Fn(&Rejection, &Parts) -> Response<B>` is one. The layer adds to whatever is made:
/// the headers of the limit, unless they are there, and the [`Rejection`] and its [`Verdict`] as
/// extensions, so that outer layers can tell why.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use http::request::Parts;
/// use tollgate_tower::Rejection;
///
/// let plain_text = |rejection: &Rejection, _: &Parts| {
///     let mut response = Response::new(format!("Slow down: {rejection}\n"));
///     *response.status_mut() = rejection.status();
///     response
/// };
/// # fn is_one<B>(_: impl tollgate_tower::RejectionResponse<B>) {}
/// # is_one::<String>(plain_text);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not make rejections with the response body `{B}`",
    note = "the default needs a body that is `From<String>`, such as `axum::body::Body` or \
            `http_body_util::Full<Bytes>`",
    note = "for tonic use `.on_rejection(GrpcRejection)`, for any other body a closure \
            `|rejection: &Rejection, request: &Parts| -> Response<{B}>`"
)]
pub trait RejectionResponse<B> {
    /// Makes the response to `request`, which was turned away because of `rejection`.
    fn response(&self, rejection: &Rejection, request: &Parts) -> Response<B>;
}

impl<F, B> RejectionResponse<B> for F
where
    F: Fn(&Rejection, &Parts) -> Response<B>,
{
    fn response(&self, rejection: &Rejection, request: &Parts) -> Response<B> {
        self(rejection, request)
    }
}

/// The default response: an `application/problem+json` body
/// ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) with the status of the rejection.
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Too Many Requests",
///   "status": 429,
///   "detail": "the rate limit is used up: try again in 3000 ms",
///   "rule": "login-per-ip",
///   "retry_after_ms": 3000,
///   "violated-policies": ["login-per-ip"]
/// }
/// ```
///
/// The type and `violated-policies` are those of the IETF draft on `RateLimit` headers, and tell of
/// a denial only; the other problems are `about:blank`. `rule` and `retry_after_ms` are left out
/// where there are none: a request that a rule blocks has no wait.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ProblemResponse;

impl<B: From<String>> RejectionResponse<B> for ProblemResponse {
    fn response(&self, rejection: &Rejection, _request: &Parts) -> Response<B> {
        Self::respond(rejection, rejection.status())
    }
}

impl ProblemResponse {
    pub(crate) fn respond<B: From<String>>(
        rejection: &Rejection,
        status: StatusCode,
    ) -> Response<B> {
        // A body of strings and numbers cannot fail to be written; without one the status speaks.
        let body = serde_json::to_string(&Problem::of(rejection, status)).unwrap_or_default();
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, problem);
        response
    }
}

#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
}

impl<'a> Problem<'a> {
    fn of(rejection: &'a Rejection, status: StatusCode) -> Self {
        Self {
            r#type: match rejection.verdict() {
                Some(_) => "https://iana.org/assignments/http-problem-types#quota-exceeded",
                None => "about:blank",
            },
            title: rejection.status().canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: rejection.to_string(),
            rule: rejection.rule().map(Rule::name),
            retry_after_ms: rejection.retry_after_ms(),
            violated_policies: rejection.verdict().map(refusing).unwrap_or_default(),
        }
    }
}

/// Returns the rules that denied, or that would have made the request wait too long.
fn refusing(verdict: &Verdict) -> Vec<&str> {
    let refuses = |rule: &&RuleDecision| match rule.decision() {
        Decision::Deny(_) => true,
        Decision::Allow(allow) => verdict.is_allowed() && !allow.delay.is_zero(),
    };
    let enforced = verdict.rules().iter().filter(|rule| !rule.rule().is_shadow());
    enforced.filter(refuses).map(|rule| rule.rule().name()).collect()
}
