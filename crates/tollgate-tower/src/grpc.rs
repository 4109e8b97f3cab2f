//! Rejections that gRPC clients understand.

use http::Response;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::rejection::Rejection;
use crate::response::RejectionResponse;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a `grpc-message` escapes: all but the printable ASCII characters, and `%`.
const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// The response to a gRPC call: HTTP 200 with the status in the headers and an empty body.
///
/// A gRPC client reads `grpc-status`, not the HTTP status; to a bare 429 it answers with
/// `UNAVAILABLE` and without the wait.
///
/// | rejection | `grpc-status` |
/// | --- | --- |
/// | denied | 8 `RESOURCE_EXHAUSTED` |
/// | store failure | 14 `UNAVAILABLE` |
/// | impossible cost, or an attribute that does not tell the cost | 3 `INVALID_ARGUMENT` |
/// | too many rules apply | 13 `INTERNAL` |
///
/// `grpc-message` is the text of the rejection. `grpc-retry-pushback-ms` is the wait: a client whose
/// retry policy lists the status tries again after it, and not at all if it is -1, as for a request
/// that a rule blocks. The other headers of the limit come as metadata.
///
/// # Examples
///
/// The body needs only be `Default`, as that of tonic is:
///
/// ```
/// use tollgate::Limiter;
/// use tollgate_tower::{GrpcRejection, RateLimitLayer};
///
/// let limiter = Limiter::builder().build()?;
/// let layer = RateLimitLayer::new(limiter).on_rejection(GrpcRejection);
/// // tonic::transport::Server::builder().layer(layer).add_service(...)
/// # let _ = layer;
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcRejection;

impl<B: Default> RejectionResponse<B> for GrpcRejection {
    fn response(&self, rejection: &Rejection, _request: &Parts) -> Response<B> {
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(code(rejection)));
        if let Ok(message) = HeaderValue::try_from(message(rejection)) {
            headers.insert(GRPC_MESSAGE, message);
        }
        if let Some(wait_ms) = rejection.retry_after_ms() {
            headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from(wait_ms));
        } else if rejection.is_blocked() {
            headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from_static("-1"));
        }
        response
    }
}

fn message(text: impl ToString) -> String {
    utf8_percent_encode(&text.to_string(), MESSAGE).to_string()
}

fn code(rejection: &Rejection) -> u16 {
    if rejection.is_denied() {
        8
    } else if rejection.is_impossible() || rejection.is_bad_cost() {
        3
    } else if rejection.is_store_failure() {
        14
    } else {
        13
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn a_message_is_percent_encoded() {
        assert_eq!(message("rule \"a\": 100% of ü\n"), "rule \"a\": 100%25 of %C3%BC%0A");
    }
}
