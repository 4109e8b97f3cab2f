//! The response to Envoy.

mod body;
mod metadata;

use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::encode_varint;
use prost::length_delimiter_len;
use prost_types::Struct;
use tollgate::{CheckError, RuleDecision};
use tollgate_config::EnvoyHeaders;

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
pub(crate) fn answer(domain: &str, plan: &Plan, judged: &Judged, headers: EnvoyHeaders) -> Answer {
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
    let mut response = RateLimitResponse {
        overall_code: code(judged.is_denied) as i32,
        statuses,
        ..RateLimitResponse::default()
    };
    if headers == EnvoyHeaders::All
        && let Some(binding) = binding
    {
        push_limits(binding, &mut response.response_headers_to_add);
    }
    if judged.is_denied {
        let wait = binding.and_then(RuleDecision::retry_after);
        let rules: Vec<&str> = told
            .iter()
            .filter(|told| told.code == Code::OverLimit)
            .filter_map(|told| told.spoken.map(|(_, decided)| decided.rule().name()))
            .collect();
        let body = body::denied(binding.map(|one| one.rule().name()), &rules, wait);
        deny(&mut response, headers, wait, body);
    }
    Answer { response, metadata: metadata::of(domain, plan, judged, &told, binding) }
}

/// Makes the answer to a request that a rule refuses because the store does not answer.
///
/// It is a denial, not an RPC error: to an error Envoy answers by a setting of its own, which lets
/// requests pass by default.
pub(crate) fn refused(
    domain: &str,
    plan: &Plan,
    error: &CheckError,
    headers: EnvoyHeaders,
) -> Answer {
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
    let mut response = RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: statuses.collect(),
        ..RateLimitResponse::default()
    };
    deny(&mut response, headers, wait, body::unavailable(rule, wait));
    Answer { response, metadata: metadata::of_failure(domain, rule, wait) }
}

fn deny(
    response: &mut RateLimitResponse,
    headers: EnvoyHeaders,
    wait: Option<Duration>,
    body: String,
) {
    response.raw_body = body.into_bytes().into();
    if headers == EnvoyHeaders::None {
        return;
    }
    let list = &mut response.response_headers_to_add;
    if let Some(wait) = wait {
        push(list, "retry-after", whole_seconds(wait).seconds.max(1).to_string());
    }
    push(list, "content-type", body::CONTENT_TYPE.to_owned());
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

/// Adds the limit that is closest to denying.
fn push_limits(binding: &RuleDecision, list: &mut Vec<HeaderValue>) {
    let decision = binding.decision();
    push(list, "x-ratelimit-limit", decision.limit().to_string());
    push(list, "x-ratelimit-remaining", decision.remaining().to_string());
    let reset = whole_seconds(decision.reset_after()).seconds;
    push(list, "x-ratelimit-reset", reset.to_string());
}

fn push(list: &mut Vec<HeaderValue>, name: &str, value: String) {
    list.push(HeaderValue { key: name.to_owned(), value, raw_value: Bytes::new() });
}
