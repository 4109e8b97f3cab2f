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
use crate::app::App;
use crate::edge::Edge;
use crate::http::problem::Problem;
use crate::http::request::Call;

const PROBLEM: &str = "application/problem+json";

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Room for all headers of an answer, those included that are added below: a map that grows is
/// hashed anew.
const HEADERS_MAX: usize = 12;

/// Room for the answer to a request to which a rule or two apply.
const ANSWER_LEN: usize = 512;

/// Reads what a call is asked.
pub(super) async fn read<C: Call>(app: &App, body: Body) -> Result<C, Problem> {
    Ok(C::parse(&receive(body, app.body_bytes_max).await?)?)
}

/// Receives a body of at most `len_max` bytes, in time.
pub(crate) async fn receive(body: Body, len_max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body is larger than {len_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    // A length that is announced is refused before anything is read.
    if body.size_hint().lower() > len_max as u64 {
        return Err(too_large());
    }
    match timeout(BODY_TIMEOUT, Limited::new(body, len_max).collect()).await {
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

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use futures_util::StreamExt;
    use futures_util::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_given_up() {
        let begun = stream::iter([std::io::Result::Ok("{")]);
        let body = Body::from_stream(begun.chain(stream::pending()));
        let start = tokio::time::Instant::now();
        let problem = receive(body, 1_024).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::from_secs(10));
        assert_eq!(problem.into_response().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
