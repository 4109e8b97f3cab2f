//! What Envoy is asked to tell clients.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use std::time::Duration;

use tollgate::{Timestamp, Verdict};
use tollgate_config::EnvoyHeaders;
use tollgate_tower::headers::{HeaderFormat, write_retry_after};
use tollgate_tower::{DenialBody, DenialResponse};

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The form of what Envoy tells clients of their limits: the format of the headers, and the body
/// and the headers of a denial. The status of a denial is Envoy's to choose, so that of the
/// [`DenialResponse`] has no effect.
///
/// The default is that of [`HeaderFormat`] and [`DenialResponse`].
#[derive(Clone, Debug, Default)]
pub struct ClientReply {
    format: HeaderFormat,
    denial: DenialResponse,
}

impl ClientReply {
    /// Makes a form of these two.
    pub const fn new(format: HeaderFormat, denial: DenialResponse) -> Self {
        Self { format, denial }
    }

    /// Returns the headers of an answer, of those that `when` asks for; only then there need be a verdict.
    pub(crate) fn headers(
        &self,
        verdict: impl FnOnce() -> Verdict,
        is_denied: bool,
        when: EnvoyHeaders,
        now: Timestamp,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if when == EnvoyHeaders::None {
            return headers;
        }
        if is_denied {
            match self.denial.body() {
                DenialBody::Problem => drop(headers.insert(CONTENT_TYPE, PROBLEM)),
                DenialBody::Text { content_type, .. } => {
                    headers.insert(CONTENT_TYPE, content_type.clone());
                }
                _ => {}
            }
            headers.extend(self.denial.headers().clone());
        }
        let format = match when {
            EnvoyHeaders::All => self.format,
            _ => self.format.with_legacy(None).with_draft(None),
        };
        if is_denied || when == EnvoyHeaders::All {
            let verdict = verdict();
            format.write_refused_at(&verdict, verdict.retry_after(), &mut headers, now);
        }
        headers
    }

    /// Returns the body of a denial, whose problem document is `problem`.
    pub(crate) fn body(&self, problem: impl FnOnce() -> String) -> String {
        match self.denial.body() {
            DenialBody::Problem => problem(),
            DenialBody::Text { text, .. } => text.clone(),
            _ => String::new(),
        }
    }

    /// Returns the headers of a request that nobody can judge. That is no denial, and has a form of
    /// its own.
    pub(crate) fn headers_unavailable(wait: Option<Duration>, when: EnvoyHeaders) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if when != EnvoyHeaders::None {
            headers.insert(CONTENT_TYPE, PROBLEM);
            if let Some(wait) = wait {
                write_retry_after(wait, &mut headers);
            }
        }
        headers
    }
}
