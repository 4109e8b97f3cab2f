//! Refusals as `application/problem+json` (RFC 9457).

use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, StatusCode};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate::CheckError;
use tollgate_tower::headers::write_retry_after;

use crate::http::request::Mistake;

/// Why a call got no verdict.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    field: Option<String>,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), field: None, retry_after: None }
    }

    pub(crate) const fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Makes the answer to an error on what is held under the id in `field`.
    pub(crate) fn of_hold(error: CheckError, field: &str) -> Self {
        if error.is_not_held() {
            let problem = Self::new(StatusCode::NOT_FOUND, error.to_string());
            return Self { field: Some(field.to_owned()), ..problem };
        }
        error.into()
    }

    /// Returns the same answer without a body, for a gateway that looks at the status only.
    pub(crate) fn into_headers(self) -> Response {
        let mut response = Response::new(Body::empty());
        self.write_head(&mut response);
        response
    }

    fn write_head(&self, response: &mut Response) {
        *response.status_mut() = self.status;
        if let Some(wait) = self.retry_after {
            write_retry_after(wait, response.headers_mut());
        }
    }
}

impl From<Mistake> for Problem {
    fn from(mistake: Mistake) -> Self {
        Self { field: mistake.field, ..Self::new(StatusCode::BAD_REQUEST, mistake.detail) }
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        // The sources of the error name keys and servers, and stay here. Its own text does not,
        // except for a call that the store finds invalid.
        if let Some(attribute) = error.attribute() {
            let problem = Self::new(StatusCode::BAD_REQUEST, error.to_string());
            return Self { field: Some(format!("attributes.{attribute}")), ..problem };
        }
        if error.is_impossible() {
            let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
            return Self { field: Some("cost".to_owned()), ..problem };
        }
        if error.is_store_failure() {
            let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
            return Self { retry_after: error.retry_after(), ..problem };
        }
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "more rules apply to this request than one request can be charged to, which is 64",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        // Writing strings and a number to memory cannot fail.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        self.write_head(&mut response);
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}
