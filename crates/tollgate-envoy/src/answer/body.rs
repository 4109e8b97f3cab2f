//! The body of a denial: `application/problem+json`, as every other edge of Tollgate writes it.

use std::time::Duration;

use serde_json::{Map, Value, json};

pub(super) const CONTENT_TYPE: &str = "application/problem+json";

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Writes what a client is told whose request is denied by `rule` first of all, and by `rules`.
pub(super) fn denied(rule: Option<&str>, rules: &[&str], wait: Option<Duration>) -> String {
    let text =
        if wait.is_some() { "the rate limit is used up" } else { "such requests are blocked" };
    let mut document = document(QUOTA_EXCEEDED, "Too Many Requests", text, rule, wait);
    let mut named: Vec<&str> = rules.to_vec();
    named.dedup();
    document.insert("violated-policies".to_owned(), json!(named));
    Value::Object(document).to_string()
}

/// Writes what a client is told whose request nobody can judge.
pub(super) fn unavailable(rule: Option<&str>, wait: Option<Duration>) -> String {
    let text = "the rate limit cannot be checked at the moment";
    Value::Object(document("about:blank", "Service Unavailable", text, rule, wait)).to_string()
}

fn document(
    kind: &str,
    title: &str,
    text: &str,
    rule: Option<&str>,
    wait: Option<Duration>,
) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("type".to_owned(), json!(kind));
    fields.insert("title".to_owned(), json!(title));
    let wait_ms = wait.map(|wait| wait.as_nanos().div_ceil(1_000_000));
    let wait_ms = wait_ms.map(|wait_ms| u64::try_from(wait_ms).unwrap_or(u64::MAX));
    let detail = match wait_ms {
        Some(wait_ms) => format!("{text}: try again in {wait_ms} ms"),
        None => text.to_owned(),
    };
    fields.insert("detail".to_owned(), json!(detail));
    if let Some(rule) = rule {
        fields.insert("rule".to_owned(), json!(rule));
    }
    if let Some(wait_ms) = wait_ms {
        fields.insert("retry_after_ms".to_owned(), json!(wait_ms));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_its_rules_and_the_wait_in_milliseconds_rounded_up() {
        let wait = Some(Duration::from_micros(2_999_001));
        let body: Value = serde_json::from_str(&denied(Some("a"), &["a", "b"], wait)).unwrap();
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
        let body: Value = serde_json::from_str(&denied(Some("a"), &["a"], None)).unwrap();
        assert_eq!(body["detail"], "such requests are blocked");
        assert_eq!(body.get("retry_after_ms"), None);
    }
}
