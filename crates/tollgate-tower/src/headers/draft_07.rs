//! `RateLimit` by draft 07, and its parts as headers of their own by drafts 03 to 06.
//!
//! They tell the limit of one rule, the most restrictive, and the quotas of all.

use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use tollgate::{Algorithm, Verdict};

use super::draft_11::seconds_to_refill;
use super::{
    RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET, insert,
    whole_seconds,
};

struct Limit {
    limit: u32,
    remaining: u32,
    reset: u64,
}

/// Writes `RateLimit` and `RateLimit-Policy` by draft 07.
pub(super) fn write(verdict: &Verdict, wait: Option<Duration>, headers: &mut HeaderMap) {
    let Some(Limit { limit, remaining, reset }) = limit(verdict, wait) else { return };
    insert(headers, RATELIMIT, format!("limit={limit}, remaining={remaining}, reset={reset}"));
    write_policies(verdict, headers);
}

/// Writes `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy` by drafts 03 to 06. What draft 03
/// has of the policy stands in `RateLimit-Limit`, where it is optional.
pub(super) fn write_apart(verdict: &Verdict, wait: Option<Duration>, headers: &mut HeaderMap) {
    let Some(Limit { limit, remaining, reset }) = limit(verdict, wait) else { return };
    headers.insert(RATELIMIT_LIMIT, HeaderValue::from(limit));
    headers.insert(RATELIMIT_REMAINING, HeaderValue::from(remaining));
    headers.insert(RATELIMIT_RESET, HeaderValue::from(reset));
    write_policies(verdict, headers);
}

/// Returns the limit of the most restrictive rule. Its reset is not later than `Retry-After`, which
/// the drafts ask for.
fn limit(verdict: &Verdict, wait: Option<Duration>) -> Option<Limit> {
    let decision = verdict.decision()?;
    let latest = wait.map_or(u64::MAX, |wait| whole_seconds(wait).max(1));
    Some(Limit {
        limit: decision.limit(),
        remaining: decision.remaining(),
        reset: whole_seconds(decision.reset_after()).min(latest),
    })
}

/// Writes the quota of every enforced rule that has a window.
fn write_policies(verdict: &Verdict, headers: &mut HeaderMap) {
    let mut policies = Vec::new();
    for rule in verdict.rules().iter().filter(|rule| !rule.rule().is_shadow()) {
        let Some(quota) = rule.quota() else { continue };
        if matches!(quota.algorithm(), Algorithm::Concurrency { .. }) {
            continue;
        }
        let window = seconds_to_refill(u128::from(quota.burst()), &quota);
        policies.push(format!("{};w={window}", quota.burst()));
    }
    if !policies.is_empty() {
        insert(headers, RATELIMIT_POLICY, policies.join(", "));
    }
}
