//! The response to Envoy.

mod body;
#[cfg(test)]
mod golden;
mod metadata;
mod status;
mod wire;

use http::HeaderMap;
use prost::Message;
use prost::bytes::Bytes;
use smallvec::SmallVec;
use tollgate::{CheckError, RuleDecision, Timestamp, Verdict};
use tollgate_config::EnvoyHeaders;

use self::body::Reason;
use self::status::Status;
use self::wire::{Wire, delimited, varint};
use crate::client_reply::ClientReply;
use crate::judge::{Judged, restriction};
use crate::plan::{Plan, Planned, Use};
use crate::proto::RateLimitResponse;
use crate::proto::rate_limit_response::Code;

/// What one descriptor came to.
pub(crate) struct Told<'a> {
    /// What the most restrictive of its limits said, if it has one that is reported.
    pub(crate) spoken: Option<(&'a Use, &'a RuleDecision)>,
    pub(crate) code: Code,
}

/// An answer: a message of gRPC that is not compressed, with the bytes before it.
#[derive(Debug)]
pub(crate) struct Answer(Vec<u8>);

/// The tags of the fields of a response.
const OVERALL_CODE: u8 = varint(1);
const STATUS: u8 = delimited(2);
const HEADER: u8 = delimited(3);
const RAW_BODY: u8 = delimited(5);
const METADATA: u8 = delimited(6);

/// Those of a header.
const HEADER_KEY: u8 = delimited(1);
const HEADER_VALUE: u8 = delimited(2);

/// An answer of this length needs no more room.
const LEN: usize = 512;

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX_LEN: usize = 5;

impl Answer {
    fn new(write: impl FnOnce(&mut Wire)) -> Self {
        let mut wire = Wire(Vec::with_capacity(LEN));
        wire.0.extend_from_slice(&[0; PREFIX_LEN]);
        write(&mut wire);
        let Wire(mut message) = wire;
        let len = u32::try_from(message.len() - PREFIX_LEN).unwrap_or(u32::MAX);
        message[1..PREFIX_LEN].copy_from_slice(&len.to_be_bytes());
        Self(message)
    }

    pub(crate) fn into_response(self) -> RateLimitResponse {
        let response = RateLimitResponse::decode(&self.0[PREFIX_LEN..]);
        debug_assert!(response.is_ok(), "what was written can be read");
        response.unwrap_or_default()
    }

    pub(crate) fn into_message(self) -> Bytes {
        self.0.into()
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
    let descriptors = plan.descriptors.iter();
    let told: SmallVec<[Told<'_>; 2]> = descriptors.map(|one| tell(one, plan, judged)).collect();
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
    let headers = reply.headers(|| verdict(judged), judged.is_denied, when, now);
    let body = || {
        let rules: Vec<&str> = told
            .iter()
            .filter(|told| told.code == Code::OverLimit)
            .filter_map(|told| told.spoken.map(|(_, decided)| decided.rule().name()))
            .collect();
        body::denied(binding.map(|one| one.rule().name()), &rules, reason(plan, &told, binding))
    };
    Answer::new(|wire| {
        wire.varint(OVERALL_CODE, code(judged.is_denied) as u64);
        for (planned, told) in plan.descriptors.iter().zip(&told) {
            wire.nested(STATUS, |wire| write_status(wire, planned, plan, told));
        }
        write_headers(wire, &headers);
        if judged.is_denied {
            wire.some_bytes(RAW_BODY, reply.body(body).as_bytes());
        }
        wire.nested(METADATA, |wire| metadata::write(wire, domain, plan, judged, &told, binding));
    })
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
    let headers = ClientReply::headers_unavailable(wait, when);
    Answer::new(|wire| {
        wire.varint(OVERALL_CODE, Code::OverLimit as u64);
        for planned in &plan.descriptors {
            let is_it = |used: &&Use| rule.is_none_or(|name| plan.part(used).rule().name() == name);
            wire.nested(STATUS, |wire| match planned.uses.iter().find(is_it) {
                Some(used) => {
                    let status =
                        Status { limit: Some(plan.reported(used)), remaining: 0, until: wait };
                    status.write(wire, Code::OverLimit);
                }
                None => Status::default().write(wire, Code::Ok),
            });
        }
        write_headers(wire, &headers);
        wire.some_bytes(RAW_BODY, body::unavailable(rule, wait).as_bytes());
        wire.nested(METADATA, |wire| metadata::write_failure(wire, domain, rule, wait));
    })
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

fn write_status(wire: &mut Wire, planned: &Planned, plan: &Plan, told: &Told<'_>) {
    let status = match told.spoken {
        Some((used, decided)) => {
            let decision = decided.decision();
            let until = match decision.is_deny() {
                true => decided.retry_after(),
                false => Some(decision.reset_after()),
            };
            let limit = Some(plan.reported(used));
            Status { limit, remaining: decision.remaining(), until }
        }
        None if planned.unlimited => Status { remaining: u32::MAX, ..Status::default() },
        None => Status::default(),
    };
    status.write(wire, told.code);
}

const fn code(is_over: bool) -> Code {
    if is_over { Code::OverLimit } else { Code::Ok }
}

fn write_headers(wire: &mut Wire, headers: &HeaderMap) {
    for (name, value) in headers {
        wire.nested(HEADER, |wire| {
            wire.some_bytes(HEADER_KEY, name.as_str().as_bytes());
            wire.some_bytes(HEADER_VALUE, String::from_utf8_lossy(value.as_bytes()).as_bytes());
        });
    }
}
