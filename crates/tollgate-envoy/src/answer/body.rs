//! The body of a denial: `application/problem+json`, as every other edge of Tollgate writes it.

use std::time::Duration;

use serde::Serialize;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Without the status, which is Envoy's to choose.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<&'a str>,
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// The same request can pass after this time.
    UsedUp(Duration),
    /// It has more hits than the limit ever admits.
    TooMany {
        hits: u64,
        limit: u32,
    },
    Blocked,
}

/// Writes what a client is told whose request is denied by `rule` first of all, and by `rules`.
pub(super) fn denied(rule: Option<&str>, rules: &[&str], reason: Reason) -> String {
    let (text, wait) = match reason {
        Reason::UsedUp(wait) => ("the rate limit is used up".to_owned(), Some(wait)),
        Reason::TooMany { hits, limit } => {
            (format!("{hits} hits can never pass: the limit is {limit}"), None)
        }
        Reason::Blocked => ("such requests are blocked".to_owned(), None),
    };
    let mut violated_policies = rules.to_vec();
    violated_policies.dedup();
    let problem = problem(&text, rule, wait);
    let title = "Too Many Requests";
    written(&Problem { r#type: QUOTA_EXCEEDED, title, violated_policies, ..problem })
}

/// Writes what a client is told whose request nobody can judge.
pub(super) fn unavailable(rule: Option<&str>, wait: Option<Duration>) -> String {
    written(&problem("the rate limit cannot be checked at the moment", rule, wait))
}

fn problem<'a>(text: &str, rule: Option<&'a str>, wait: Option<Duration>) -> Problem<'a> {
    let wait_ms = wait.map(|wait| wait.as_nanos().div_ceil(1_000_000));
    let retry_after_ms = wait_ms.map(|wait_ms| u64::try_from(wait_ms).unwrap_or(u64::MAX));
    let detail = match retry_after_ms {
        Some(wait_ms) => format!("{text}: try again in {wait_ms} ms"),
        None => text.to_owned(),
    };
    let violated_policies = Vec::new();
    // Envoy answers with 429 whatever the reason, and the title is that of the status.
    let (r#type, title) = ("about:blank", "Too Many Requests");
    Problem { r#type, title, detail, rule, retry_after_ms, violated_policies }
}

fn written(problem: &Problem<'_>) -> String {
    // A body of strings and numbers cannot fail to be written; without one the code speaks.
    serde_json::to_string(problem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_denial_names_its_rules_and_the_wait_in_milliseconds_rounded_up() {
        let used_up = Reason::UsedUp(Duration::from_micros(2_999_001));
        let body: Value = serde_json::from_str(&denied(Some("a"), &["a", "b"], used_up)).unwrap();
        assert_eq!(
            body,
            json!({
                "type": QUOTA_EXCEEDED,
                "title": "Too Many Requests",
                "detail": "the rate limit is used up: try again in 3000 ms",
                "rule": "a",
                "retry_after_ms": 3000,
                "violated-policies": ["a", "b"],
            })
        );
        let too_many = Reason::TooMany { hits: 9, limit: 5 };
        for (reason, detail) in [
            (Reason::Blocked, "such requests are blocked"),
            (too_many, "9 hits can never pass: the limit is 5"),
        ] {
            let body: Value = serde_json::from_str(&denied(Some("a"), &["a"], reason)).unwrap();
            assert_eq!(body["detail"], detail);
            assert_eq!(body.get("retry_after_ms"), None);
        }
    }
}
