//! How a body is received and an answer is written.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use serde::Serialize;
use tollgate::Verdict;
use tollgate_tower::{DenialResponse, Rejection};

use crate::answer::Answer;
use crate::app::App;
use crate::arriving::Arriving;
use crate::body::{self, Lost};
use crate::edge::Edge;
use crate::http::problem::Problem;
use crate::http::request::Call;

const PROBLEM: &str = "application/problem+json";

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a caller had better wait for whose body there is no room.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// Room for all headers of an answer, those included that are added below: a map that grows is
/// hashed anew.
const HEADERS_MAX: usize = 12;

/// Room for the answer to a request to which a rule or two apply.
const ANSWER_LEN: usize = 512;

/// Reads what a call is asked.
pub(super) async fn read<C: Call>(
    app: &App,
    request: Request<impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin>,
) -> Result<C, Problem> {
    // The head of the request is not held meanwhile.
    let (version, mut body) = (request.version(), request.into_body());
    read_body(app, version, &mut body).await
}

/// Reads what a call is asked, from its body.
pub(super) async fn read_body<C: Call>(
    app: &App,
    version: Version,
    body: &mut (impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin),
) -> Result<C, Problem> {
    let received = receive_body(version, body, app.body_bytes_max, &app.arriving).await;
    Ok(C::parse(&received?)?)
}

/// Receives the body of a request, of at most `len_max` bytes, in time.
pub(crate) async fn receive(
    request: Request<impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin>,
    len_max: usize,
    arriving: &Arc<Arriving>,
) -> Result<Bytes, Problem> {
    // The head of the request is not held meanwhile.
    let (version, mut body) = (request.version(), request.into_body());
    receive_body(version, &mut body, len_max, arriving).await
}

async fn receive_body(
    version: Version,
    body: &mut (impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin),
    len_max: usize,
    arriving: &Arc<Arriving>,
) -> Result<Bytes, Problem> {
    let received = body::receive(body, len_max, BODY_TIMEOUT, version, arriving, || 0).await;
    received.map_err(|lost| match lost {
        Lost::TooLarge => {
            let detail = format!("the body is larger than {len_max} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        Lost::TooSlow => {
            let detail = format!("the body took longer than {} s", BODY_TIMEOUT.as_secs());
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
        }
        Lost::NoRoom => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests have begun and not arrived: send the body with the head",
        )
        .with_retry_after(NO_ROOM_WAIT),
        Lost::BrokenOff => Problem::new(StatusCode::BAD_REQUEST, "the body broke off"),
    })
}

/// Answers 200 or 429, as the verdict is, with the verdict.
pub(super) fn decided(edge: &Edge, verdict: &Verdict) -> Response {
    if verdict.is_allowed() {
        return told(edge, verdict);
    }
    let mut headers = json_headers();
    write_denial_headers(edge, verdict, &mut headers);
    json(StatusCode::TOO_MANY_REQUESTS, headers, &Answer::new(verdict))
}

/// Answers 429 with a problem document that the caller can pass on to its client.
pub(super) fn problem(edge: &Edge, verdict: Verdict) -> Response {
    let mut headers = HeaderMap::new();
    write_denial_headers(edge, &verdict, &mut headers);
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

/// Returns the headers of an answer in JSON, those of a verdict's limits included.
pub(super) fn verdict_headers(edge: &Edge, verdict: &Verdict) -> HeaderMap {
    let mut headers = json_headers();
    edge.headers.write(verdict, &mut headers);
    headers
}

fn write_denial_headers(edge: &Edge, verdict: &Verdict, headers: &mut HeaderMap) {
    edge.mark_denial(headers);
    edge.headers.write(verdict, headers);
}

/// Returns the headers of an answer in JSON.
pub(super) fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(HEADERS_MAX);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}

/// Answers with JSON, and with headers that say so.
pub(super) fn json(status: StatusCode, headers: HeaderMap, answer: &impl Serialize) -> Response {
    let mut body = Vec::with_capacity(ANSWER_LEN);
    // Writing strings and numbers to memory cannot fail.
    let _ = serde_json::to_writer(&mut body, answer);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
