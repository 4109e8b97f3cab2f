//! The response to Envoy.

mod body;
#[cfg(test)]
mod golden;
mod metadata;

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::encode_varint;
use prost::length_delimiter_len;
use prost_types::Struct;
use tollgate::{CheckError, RuleDecision, Timestamp, Verdict};
use tollgate_config::EnvoyHeaders;

use self::body::Reason;
use crate::client_reply::ClientReply;
use crate::judge::{Judged, restriction};
use crate::plan::{Plan, Planned, Use};
use crate::proto::rate_limit_response::{Code, DescriptorStatus};
use crate::proto::{HeaderValue, RateLimitResponse};

/// What one descriptor came to.
pub(crate) struct Told<'a> {
    /// What the most restrictive of its limits said, if it has one that is reported.
    pub(crate) spoken: Option<(&'a Use, &'a RuleDecision)>,
    pub(crate) code: Code,
}

/// An answer, whose metadata are written already.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The response without its metadata.
    response: RateLimitResponse,
    /// A `google.protobuf.Struct`.
    metadata: Vec<u8>,
}

/// The tag of `dynamic_metadata` in a response: its number, and that its length comes first.
const METADATA: u8 = 6 << 3 | 2;

impl Answer {
    pub(crate) fn into_response(self) -> RateLimitResponse {
        let metadata = Struct::decode(&self.metadata[..]).ok();
        debug_assert!(metadata.is_some(), "what was written can be read");
        RateLimitResponse { dynamic_metadata: metadata, ..self.response }
    }

    /// Writes the answer as a message of gRPC that is not compressed.
    pub(crate) fn into_message(self) -> Bytes {
        let Self { response, metadata } = self;
        let metadata_len = 1 + length_delimiter_len(metadata.len()) + metadata.len();
        let len = response.encoded_len() + metadata_len;
        let mut message = Vec::with_capacity(5 + len);
        message.push(0);
        message.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        response.encode_raw(&mut message);
        message.push(METADATA);
        encode_varint(metadata.len() as u64, &mut message);
        message.extend_from_slice(&metadata);
        message.into()
    }
}

/// Makes the answer of what was judged.
pub(crate) fn answer(
    domain: &str,
    plan: &Plan,
    judged: &Judged,
    reply: &ClientReply,
    when: EnvoyHeaders,
    now: Timestamp,
) -> Answer {
    let told: Vec<Told<'_>> = plan.descriptors.iter().map(|one| tell(one, plan, judged)).collect();
    let statuses =
        plan.descriptors.iter().zip(&told).map(|(planned, told)| status(planned, told)).collect();
    // Of the descriptors that are over, some may only deny together with others that are not.
    let spoken =
        || told.iter().filter_map(|told| told.spoken.map(|(_, decided)| (told.code, decided)));
    let denying = spoken().filter(|(code, _)| *code == Code::OverLimit).map(|(_, decided)| decided);
    let binding = if judged.is_denied {
        denying.min_by(|a, b| restriction(a).cmp(&restriction(b)))
    } else {
        let enforced = spoken().map(|(_, decided)| decided).filter(|one| !one.rule().is_shadow());
        enforced.min_by(|a, b| restriction(a).cmp(&restriction(b)))
    };
    let headers = reply.headers(&verdict(judged), judged.is_denied, when, now);
    let body = || {
        let rules: Vec<&str> = told
            .iter()
            .filter(|told| told.code == Code::OverLimit)
            .filter_map(|told| told.spoken.map(|(_, decided)| decided.rule().name()))
            .collect();
        body::denied(binding.map(|one| one.rule().name()), &rules, reason(plan, &told, binding))
    };
    let response = RateLimitResponse {
        overall_code: code(judged.is_denied) as i32,
        statuses,
        response_headers_to_add: list(&headers),
        raw_body: match judged.is_denied {
            true => reply.body(body).into_bytes().into(),
            false => Bytes::new(),
        },
        ..RateLimitResponse::default()
    };
    Answer { response, metadata: metadata::of(domain, plan, judged, &told, binding) }
}

/// Returns what the headers speak of: what every part said. Of a request that is let pass, a part
/// that is spent and denies only together with others does not speak.
fn verdict(judged: &Judged) -> Verdict {
    let all = judged.decided.iter().flatten();
    let speak = all.filter(|one| judged.is_denied || one.decision().is_allow());
    Verdict::from_rules(speak.cloned())
}

/// Makes the answer to a request that a rule refuses because the store does not answer.
///
/// It is a denial, not an RPC error: to an error Envoy answers by a setting of its own, which lets
/// requests pass by default.
pub(crate) fn refused(domain: &str, plan: &Plan, error: &CheckError, when: EnvoyHeaders) -> Answer {
    let wait = error.retry_after();
    let rule = error.rule().map(tollgate_core::Rule::name);
    let statuses = plan.descriptors.iter().map(|planned| {
        let is_it = |used: &&Use| rule.is_none_or(|name| plan.part(used).rule().name() == name);
        match planned.uses.iter().find(is_it) {
            Some(used) => DescriptorStatus {
                code: Code::OverLimit as i32,
                current_limit: Some(used.reported.clone().into_message()),
                limit_remaining: 0,
                duration_until_reset: wait.map(whole_seconds),
            },
            None => DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() },
        }
    });
    let response = RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: statuses.collect(),
        response_headers_to_add: list(&ClientReply::headers_unavailable(wait, when)),
        raw_body: body::unavailable(rule, wait).into_bytes().into(),
        ..RateLimitResponse::default()
    };
    Answer { response, metadata: metadata::of_failure(domain, rule, wait) }
}

/// Tells why a request is denied whose most restrictive limit is `binding`.
fn reason(plan: &Plan, told: &[Told<'_>], binding: Option<&RuleDecision>) -> Reason {
    if let Some(wait) = binding.and_then(RuleDecision::retry_after) {
        return Reason::UsedUp(wait);
    }
    let is_binding =
        |decided: &RuleDecision| binding.is_some_and(|binding| std::ptr::eq(binding, decided));
    let mut spoken = told.iter().filter_map(|told| told.spoken);
    let hits = spoken
        .find(|(_, decided)| is_binding(decided))
        .map_or(0, |(used, _)| plan.part(used).cost().units());
    match binding.map_or(0, |binding| binding.decision().limit()) {
        limit if limit > 0 && hits > u64::from(limit) => Reason::TooMany { hits, limit },
        _ => Reason::Blocked,
    }
}

/// Finds what the most restrictive limit of a descriptor said.
fn tell<'a>(planned: &'a Planned, plan: &Plan, judged: &'a Judged) -> Told<'a> {
    let reported = planned.uses.iter().filter(|used| {
        let traits = plan.traits[used.group as usize][used.index];
        traits.reported_in_shadow || !plan.part(used).rule().is_shadow()
    });
    let decided = reported.filter_map(|used| {
        judged.decided[used.group as usize].get(used.index).map(|decided| (used, decided))
    });
    let is_shadow = |decided: &RuleDecision| decided.rule().is_shadow();
    let spoken = decided.min_by(|(_, a), (_, b)| {
        (is_shadow(a), restriction(a)).cmp(&(is_shadow(b), restriction(b)))
    });
    let is_over =
        spoken.is_some_and(|(_, decided)| !is_shadow(decided) && decided.decision().is_deny());
    Told { spoken, code: code(is_over) }
}

fn status(planned: &Planned, told: &Told<'_>) -> DescriptorStatus {
    let code = told.code as i32;
    match told.spoken {
        Some((used, decided)) => {
            let decision = decided.decision();
            let until = match decision.is_deny() {
                true => decided.retry_after(),
                false => Some(decision.reset_after()),
            };
            DescriptorStatus {
                code,
                current_limit: Some(used.reported.clone().into_message()),
                limit_remaining: decision.remaining(),
                duration_until_reset: until.map(whole_seconds),
            }
        }
        None => DescriptorStatus {
            code,
            limit_remaining: if planned.unlimited { u32::MAX } else { 0 },
            ..DescriptorStatus::default()
        },
    }
}

const fn code(is_over: bool) -> Code {
    if is_over { Code::OverLimit } else { Code::Ok }
}

/// Rounds up: Envoy cuts fractions off, and a client that obeys would come too early.
fn whole_seconds(duration: Duration) -> prost_types::Duration {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    prost_types::Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

fn list(headers: &HeaderMap) -> Vec<HeaderValue> {
    let written = |(name, value): (&HeaderName, &http::HeaderValue)| HeaderValue {
        key: name.as_str().to_owned(),
        value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        raw_value: Bytes::new(),
    };
    headers.iter().map(written).collect()
}
