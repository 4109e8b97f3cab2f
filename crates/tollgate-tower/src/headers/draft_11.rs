//! `RateLimit` and `RateLimit-Policy` by draft 11: structured-field lists of strings with
//! parameters.

use std::fmt::Write;
use std::time::Duration;

use http::header::HeaderMap;
use tollgate::{Algorithm, Decision, Quota, RuleDecision, Verdict};

use super::{RATELIMIT, RATELIMIT_POLICY, insert, whole_seconds};

/// The largest integer of a structured field (RFC 9651): 15 digits.
const INTEGER_MAX: u128 = 999_999_999_999_999;

const MICROS_PER_SECOND: u128 = 1_000_000;

/// Writes both; `wait` is the `Retry-After`, which no window must outlast.
pub(super) fn write(verdict: &Verdict, wait: Option<Duration>, headers: &mut HeaderMap) {
    let latest = wait.map(|wait| u128::from(whole_seconds(wait).max(1)));
    let denied = verdict.decision().is_some_and(Decision::is_deny);
    let (mut policies, mut limits) = (String::new(), String::new());
    for rule in verdict.rules().iter().filter(|rule| !rule.rule().is_shadow()) {
        let quota = rule.quota();
        push_policy(&mut policies, rule, quota.as_ref());
        if !denied || rule.decision().is_deny() {
            push_limit(&mut limits, rule, quota.as_ref(), latest);
        }
    }
    insert(headers, RATELIMIT_POLICY, policies);
    insert(headers, RATELIMIT, limits);
}

/// Appends the quota, or one of 0 for a rule that blocks.
fn push_policy(list: &mut String, rule: &RuleDecision, quota: Option<&Quota>) {
    push_string(list, rule.rule().name());
    push_integer(list, 'q', quota.map_or(0, |quota| u128::from(quota.burst())));
    match quota.map(|quota| (quota, quota.algorithm())) {
        None => {}
        Some((_, Algorithm::Concurrency { .. })) => list.push_str(";qu=\"concurrent-requests\""),
        Some((quota, _)) => {
            push_integer(list, 'w', seconds_to_refill(u128::from(quota.burst()), quota));
        }
    }
}

/// Appends what is left; `latest` is the `Retry-After` that the window must not outlast.
fn push_limit(list: &mut String, rule: &RuleDecision, quota: Option<&Quota>, latest: Option<u128>) {
    let decision = rule.decision();
    let remaining = u128::from(decision.remaining());
    push_string(list, rule.rule().name());
    push_integer(list, 'r', remaining);
    let window = match quota.map(|quota| (quota, quota.algorithm())) {
        None | Some((_, Algorithm::Concurrency { .. })) => return,
        Some((quota, Algorithm::TokenBucket | Algorithm::LeakyBucket)) => match remaining {
            0 => seconds_to_one(decision, quota),
            _ => seconds_to_refill(remaining, quota),
        },
        // Nothing was spent, so the window begins with the next unit.
        Some((quota, _)) if decision.reset_after().is_zero() => {
            seconds_to_refill(u128::from(quota.burst()), quota)
        }
        Some(_) => u128::from(whole_seconds(decision.reset_after())),
    };
    push_integer(list, 't', window.max(1).min(latest.unwrap_or(INTEGER_MAX)));
}

/// Counts the seconds, rounded up, in which a bucket gains `units`.
pub(super) fn seconds_to_refill(units: u128, quota: &Quota) -> u128 {
    let rate = quota.rate();
    (units * rate.period().as_micros()).div_ceil(u128::from(rate.units()) * MICROS_PER_SECOND)
}

/// Counts the seconds, rounded up, until an empty bucket has one unit.
///
/// That is the time until it is full less the time that the other units take. The former is
/// already rounded up to a microsecond, so the difference is rounded down to one: a wait of
/// exactly 3 s stays 3 s.
fn seconds_to_one(decision: &Decision, quota: &Quota) -> u128 {
    let rate = quota.rate();
    let others = u128::from(quota.burst() - 1) * rate.period().as_micros();
    let others = others.div_ceil(u128::from(rate.units()));
    decision.reset_after().as_micros().saturating_sub(others).div_ceil(MICROS_PER_SECOND)
}

/// Appends a string item. What may stand in a rule's name needs no escape; these two characters
/// would end the string early.
pub(super) fn push_string(list: &mut String, text: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            list.push('\\');
        }
        list.push(character);
    }
    list.push('"');
}

fn push_integer(list: &mut String, name: char, value: u128) {
    // Writing to a String cannot fail.
    let _ = write!(list, ";{name}={}", value.min(INTEGER_MAX));
}
