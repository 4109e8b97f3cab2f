//! `/v1/check`, `/v1/peek`, `/v1/refund` and `/v1/reset`.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, StatusCode};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;
use tollgate::{Cost, Verdict};
use tollgate_tower::headers::write_headers;

use crate::answer::Answer;
use crate::app::App;
use crate::http::problem::Problem;
use crate::http::request::{ApiRequest, BODY_LEN_MAX};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn check(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, cost } = read(request.into_body()).await?;
    let verdict = app.check(&attributes, cost.unwrap_or_default()).await?;
    let status = if verdict.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    Ok(answer(status, &verdict))
}

pub(crate) async fn peek(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, cost } = read(request.into_body()).await?;
    let peeked = app.limiter.peek_n(&attributes, cost.unwrap_or(Cost::ZERO)).await;
    Ok(answer(StatusCode::OK, &app.answered(peeked)?))
}

pub(crate) async fn refund(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, cost } = read(request.into_body()).await?;
    let refunded = app.limiter.refund(&attributes, cost.unwrap_or_default()).await;
    Ok(answer(StatusCode::OK, &app.answered(refunded)?))
}

pub(crate) async fn reset(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let ApiRequest { attributes, .. } = read(request.into_body()).await?;
    let reset = app.limiter.reset(&attributes).await;
    Ok(answer(StatusCode::OK, &app.answered(reset)?))
}

async fn read(body: Body) -> Result<ApiRequest, Problem> {
    Ok(ApiRequest::parse(&receive(body).await?)?)
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

fn answer(status: StatusCode, verdict: &Verdict) -> Response {
    // Writing strings and numbers to memory cannot fail.
    let body = serde_json::to_vec(&Answer::new(verdict)).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    write_headers(verdict, headers);
    response
}
