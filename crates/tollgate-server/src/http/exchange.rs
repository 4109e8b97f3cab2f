//! How a body is received and an answer is written.

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, StatusCode};
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use tokio::time::timeout;
use tollgate::Verdict;
use tollgate_tower::{DenialResponse, Rejection};

use crate::answer::Answer;
use crate::edge::Edge;
use crate::http::problem::Problem;
use crate::http::request::{BODY_LEN_MAX, Call};

const PROBLEM: &str = "application/problem+json";

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads what a call is asked.
pub(super) async fn read<C: Call>(body: Body) -> Result<C, Problem> {
    Ok(C::parse(&receive(body).await?)?)
}

async fn receive(body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body is larger than {BODY_LEN_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    // A length that is announced is refused before anything is read.
    if body.size_hint().lower() > BODY_LEN_MAX as u64 {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, Limited::new(body, BODY_LEN_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_) => {
            let detail = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

/// Answers 200 or 429, as the verdict is, with the verdict.
pub(super) fn decided(edge: &Edge, verdict: &Verdict) -> Response {
    if verdict.is_allowed() {
        return told(edge, verdict);
    }
    json(StatusCode::TOO_MANY_REQUESTS, denial_headers(edge, verdict), &Answer::new(verdict))
}

/// Answers 429 with a problem document that the caller can pass on to its client.
pub(super) fn problem(edge: &Edge, verdict: Verdict) -> Response {
    let headers = denial_headers(edge, &verdict);
    let mut response: Response = DenialResponse::new().respond(&Rejection::denied(verdict));
    response.headers_mut().extend(headers);
    response
}

/// Tells whether the caller would have a problem document in place of a verdict.
pub(super) fn accepts_problem(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(','));
    types.any(|one| one.split(';').next().unwrap_or_default().trim() == PROBLEM)
}

/// Answers 200 with a verdict that tells what is there.
pub(super) fn told(edge: &Edge, verdict: &Verdict) -> Response {
    json(StatusCode::OK, verdict_headers(edge, verdict), &Answer::new(verdict))
}

/// Returns the headers of a verdict's limits.
pub(super) fn verdict_headers(edge: &Edge, verdict: &Verdict) -> HeaderMap {
    let mut headers = HeaderMap::new();
    edge.headers.write(verdict, &mut headers);
    headers
}

fn denial_headers(edge: &Edge, verdict: &Verdict) -> HeaderMap {
    let mut headers = HeaderMap::new();
    edge.mark_denial(&mut headers);
    edge.headers.write(verdict, &mut headers);
    headers
}

/// Answers with JSON.
pub(super) fn json(status: StatusCode, headers: HeaderMap, answer: &impl Serialize) -> Response {
    // Writing strings and numbers to memory cannot fail.
    let body = serde_json::to_vec(answer).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response.headers_mut().extend(headers);
    response
}
