//! What Envoy's other filters and its access log are told: exact times, and who decided.

use std::collections::BTreeMap;
use std::time::Duration;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate::{Mode, RuleDecision};

use super::Told;
use crate::judge::Judged;
use crate::plan::Plan;
use crate::proto::rate_limit_response::Code;

type Fields = BTreeMap<String, Value>;

/// Tells of a request, and of each of its descriptors. `binding` is the most restrictive limit.
pub(super) fn of(
    domain: &str,
    plan: &Plan,
    judged: &Judged,
    told: &[Told<'_>],
    binding: Option<&RuleDecision>,
) -> Struct {
    let mut fields = head(domain, !judged.is_denied);
    match binding {
        Some(binding) => push_decision(&mut fields, binding),
        None => push(&mut fields, "mode", text(Mode::Unlimited.as_str())),
    }
    let descriptors = told.iter().map(|told| {
        let mut fields = Fields::new();
        push(&mut fields, "allowed", Kind::BoolValue(told.code != Code::OverLimit));
        if let Some((_, decided)) = told.spoken {
            push_decision(&mut fields, decided);
            push(&mut fields, "shadow", Kind::BoolValue(decided.rule().is_shadow()));
        }
        Value { kind: Some(Kind::StructValue(Struct { fields })) }
    });
    push(&mut fields, "descriptors", Kind::ListValue(ListValue { values: descriptors.collect() }));
    let configured = plan.descriptors.iter().zip(told);
    let passed = configured.filter(|(_, told)| told.code != Code::OverLimit);
    let metadata = passed
        .filter_map(|(planned, _)| planned.limit.as_ref()?.metadata.as_ref())
        .fold(Struct::default(), merged);
    if !metadata.fields.is_empty() {
        push(&mut fields, "metadata", Kind::StructValue(metadata));
    }
    Struct { fields }
}

/// Tells of a request that `rule` refuses because the store does not answer.
pub(super) fn of_failure(domain: &str, rule: Option<&str>, wait: Option<Duration>) -> Struct {
    let mut fields = head(domain, false);
    push(&mut fields, "mode", text(Mode::Closed.as_str()));
    if let Some(rule) = rule {
        push(&mut fields, "rule", text(rule));
    }
    if let Some(wait) = wait {
        push(&mut fields, "retry_after_us", micros(wait));
    }
    Struct { fields }
}

fn head(domain: &str, allowed: bool) -> Fields {
    let mut fields = Fields::new();
    push(&mut fields, "domain", text(domain));
    push(&mut fields, "allowed", Kind::BoolValue(allowed));
    fields
}

fn push_decision(fields: &mut Fields, decided: &RuleDecision) {
    let decision = decided.decision();
    push(fields, "rule", text(decided.rule().name()));
    push(fields, "mode", text(decided.mode().as_str()));
    push(fields, "limit", Kind::NumberValue(decision.limit().into()));
    push(fields, "remaining", Kind::NumberValue(decision.remaining().into()));
    push(fields, "reset_after_us", micros(decision.reset_after()));
    if let Some(wait) = decided.retry_after() {
        push(fields, "retry_after_us", micros(wait));
    }
    if !decision.delay().is_zero() {
        push(fields, "delay_us", micros(decision.delay()));
    }
}

fn push(fields: &mut Fields, name: &str, kind: Kind) {
    fields.insert(name.to_owned(), Value { kind: Some(kind) });
}

fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

/// Microseconds of up to 285 years are exact in a double.
fn micros(duration: Duration) -> Kind {
    Kind::NumberValue(duration.as_micros() as f64)
}

/// Adds what is new, mapping by mapping; of two other values of one name the first stays.
fn merged(mut all: Struct, more: &Struct) -> Struct {
    for (name, value) in &more.fields {
        match (all.fields.get_mut(name).and_then(|known| known.kind.as_mut()), &value.kind) {
            (Some(Kind::StructValue(known)), Some(Kind::StructValue(more))) => {
                *known = merged(std::mem::take(known), more);
            }
            (Some(_), _) => {}
            (None, _) => {
                all.fields.insert(name.clone(), value.clone());
            }
        }
    }
    all
}
