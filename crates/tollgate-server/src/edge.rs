//! What the answers say of the limits, as configured.

use ::http::header::{HeaderName, HeaderValue};
use ::http::{HeaderMap, StatusCode};
use tollgate_config::{Config, DenialContent, IetfDraft, ResetUnit};
use tollgate_envoy::ClientReply;
use tollgate_tower::headers::{HeaderFormat, RateLimitDraft, Reset};
use tollgate_tower::{DenialBody, DenialResponse};

/// The headers of answers and the form of denials.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) headers: HeaderFormat,
    pub(crate) denial: DenialResponse,
    /// What Envoy is told of them.
    pub(crate) envoy: ClientReply,
}

impl Edge {
    pub(crate) fn new(config: &Config) -> Self {
        let headers = format(config);
        let envoy = ClientReply::new(headers, denial(config, DenialBody::Problem));
        Self { headers, denial: denial(config, DenialBody::Empty), envoy }
    }

    /// Adds what a denial has beyond the headers of its limits, which have yet to be written.
    pub(crate) fn mark_denial(&self, headers: &mut HeaderMap) {
        headers.extend(self.denial.headers().clone());
    }
}

fn format(config: &Config) -> HeaderFormat {
    HeaderFormat::new()
        .with_legacy(config.headers.x_ratelimit.map(|reset| match reset {
            ResetUnit::Epoch => Reset::Epoch,
            _ => Reset::Delta,
        }))
        .with_draft(config.headers.ietf.map(|draft| match draft {
            IetfDraft::Draft06 => RateLimitDraft::Draft06,
            IetfDraft::Draft07 => RateLimitDraft::Draft07,
            _ => RateLimitDraft::Draft11,
        }))
        .with_rule(config.headers.rule)
}

/// What cannot stand in a response has been refused with the configuration.
fn denial(config: &Config, usual: DenialBody) -> DenialResponse {
    let status = StatusCode::from_u16(config.denial.status);
    let mut denial = DenialResponse::new()
        .with_status(status.unwrap_or(StatusCode::TOO_MANY_REQUESTS))
        .with_body(match &config.denial.body {
            DenialContent::Usual => usual,
            DenialContent::Problem => DenialBody::Problem,
            DenialContent::Text { text, content_type } => DenialBody::Text {
                text: text.clone(),
                content_type: HeaderValue::from_str(content_type)
                    .unwrap_or(HeaderValue::from_static("text/plain")),
            },
            _ => DenialBody::Empty,
        });
    for (name, value) in &config.denial.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            denial = denial.with_header(name, value);
        }
    }
    denial
}
