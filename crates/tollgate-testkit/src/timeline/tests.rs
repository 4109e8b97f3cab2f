use super::*;

const HEAD: &str = r#""why": "w", "algorithm": "token_bucket", "start_us": 1000,
    "quota": {"units": 2, "period_us": 1000000, "burst": 2}"#;

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

fn message_of_step(step: &str) -> String {
    let peek = r#"{"at_us": 0, "cost": 0, "expect":
        {"outcome": "allow", "remaining": 2, "reset_after_us": 0}}"#;
    message(&format!(r#"[{{"name": "n", {HEAD}, "steps": [{peek}, {step}]}}]"#))
}

fn message_of_quota(algorithm: &str, quota: &str) -> String {
    message(&format!(
        r#"[{{"name": "n", "why": "w", "algorithm": {algorithm:?}, "start_us": 0,
        "quota": {quota}, "steps": []}}]"#
    ))
}

#[test]
fn every_file_of_tollgate_parses() {
    for (text, algorithm, timelines, steps) in [
        (TOKEN_BUCKET, "token_bucket", 12, 99),
        (LEAKY_BUCKET, "leaky_bucket", 3, 24),
        (FIXED_WINDOW, "fixed_window", 4, 41),
        (SLIDING_WINDOW, "sliding_window", 3, 20),
        (SLIDING_LOG, "sliding_log", 2, 17),
    ] {
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.len(), timelines, "{algorithm}");
        assert!(parsed.iter().all(|timeline| timeline.limit().algorithm() == algorithm));
        let total: usize = parsed.iter().map(|timeline| timeline.steps().len()).sum();
        assert_eq!(total, steps, "{algorithm}");
    }
}

#[test]
fn a_timeline_says_what_the_file_says() {
    let parsed = parse(LEAKY_BUCKET).unwrap();
    let timeline = &parsed[0];
    assert_eq!(timeline.name(), "paces-at-the-rate");
    assert!(timeline.why().starts_with("ten per second"));
    assert_eq!(timeline.start(), Timestamp::from_micros(1_700_000_000_000_000));
    assert_eq!(
        timeline.limit(),
        &Limit::LeakyBucket(Quota::new("10/s".parse().unwrap(), 5).unwrap())
    );
    assert_eq!(
        timeline.steps()[1],
        Step::Check {
            at: Duration::ZERO,
            cost: Cost::ONE,
            expect: Answer::Allow {
                remaining: 3,
                reset_after: Duration::from_millis(200),
                delay: Duration::from_millis(100),
            },
        }
    );
    let Limit::SlidingWindow { cells, .. } = parse(SLIDING_WINDOW).unwrap()[0].limit else {
        panic!("a sliding window")
    };
    assert_eq!(cells, 10);
}

#[test]
fn a_change_of_quota_is_a_step() {
    let text = format!(
        r#"[{{"name": "n", {HEAD}, "steps":
        [{{"set_quota": {{"units": 9, "period_us": 1000000, "burst": 4}}}}]}}]"#
    );
    let quota = Quota::new("9/s".parse().unwrap(), 4).unwrap();
    assert_eq!(parse(&text).unwrap()[0].steps(), [Step::SetQuota(Limit::TokenBucket(quota))]);
}

#[test]
fn text_that_is_not_json_is_reported_with_its_line() {
    assert_eq!(message("[\n{\"name\": }]"), "not a JSON list: expected value at line 2 column 10");
    assert!(message("{}").starts_with("not a JSON list: invalid type: map, expected a sequence"));
}

#[test]
fn a_timeline_without_a_name_is_reported_by_its_number() {
    assert_eq!(message("[{}]"), "timeline 0: missing field `name`");
}

#[test]
fn a_wrong_step_is_reported_by_its_number_and_field() {
    for (step, expected) in [
        (
            r#"{"at_us": 0, "costs": 1}"#,
            "unknown field `costs`, expected one of `at_us`, `cost`, `expect`",
        ),
        (
            r#"{"set_quota": {"units": 1, "period_us": 1, "burst": 1}, "at_us": 0}"#,
            "unknown field `at_us`, expected `set_quota`",
        ),
        (r#"{"set_quota": {"units": 1, "period_us": 1000000}}"#, "a bucket needs `burst`"),
        (
            r#"{"at_us": 0, "cost": 1, "expect": {"outcome": "allow", "remainig": 1}}"#,
            "unknown field `remainig`, expected one of `outcome`, `remaining`, `reset_after_us`, \
             `retry_after_us`, `delay_us`",
        ),
        (
            r#"{"at_us": 0, "cost": 1, "expect": {"outcome": "allowed"}}"#,
            "unknown variant `allowed`, expected one of `allow`, `deny`, `impossible`",
        ),
        (
            r#"{"at_us": 0, "cost": 1, "expect": {"outcome": "allow", "remaining": 1}}"#,
            "an allow needs `reset_after_us`",
        ),
        (
            r#"{"at_us": 0, "cost": 1,
                "expect": {"outcome": "deny", "remaining": 1, "reset_after_us": 1}}"#,
            "a deny needs `retry_after_us`",
        ),
        (
            r#"{"at_us": 0, "cost": 1, "expect":
                {"outcome": "allow", "remaining": 1, "reset_after_us": 1, "retry_after_us": 1}}"#,
            "`retry_after_us`: only a deny has one",
        ),
        (
            r#"{"at_us": 0, "cost": 9, "expect": {"outcome": "impossible", "remaining": 1}}"#,
            "`remaining`: an impossible cost has nothing but its outcome",
        ),
        (
            r#"{"at_us": 9007199254740000, "cost": 1, "expect": {"outcome": "impossible"}}"#,
            "9007199254741000us is after the last instant, 9007199254740991us",
        ),
    ] {
        assert_eq!(message_of_step(step), format!("timeline \"n\": step 1: {expected}"));
    }
}

#[test]
fn a_wrong_quota_is_reported_with_the_reason() {
    for (algorithm, quota, expected) in [
        (
            "gcra",
            "{}",
            "unknown variant `gcra`, expected one of `token_bucket`, `leaky_bucket`, \
          `fixed_window`, `sliding_window`, `sliding_log`",
        ),
        (
            "token_bucket",
            r#"{"units": 0, "period_us": 1000000, "burst": 1}"#,
            "quota: rate 0/s is zero: give at least 1 unit per period",
        ),
        (
            "leaky_bucket",
            r#"{"units": 1, "period_us": 1000000, "burst": 0}"#,
            "quota: burst 0 would deny every request: give at least 1",
        ),
        (
            "fixed_window",
            r#"{"units": 1, "period_us": 1000000, "burst": 1}"#,
            "quota: `burst`: a window has no burst",
        ),
        (
            "sliding_log",
            r#"{"units": 1, "period_us": 1000000, "cells": 2}"#,
            "quota: `cells`: only a sliding_window has cells",
        ),
        (
            "sliding_window",
            r#"{"units": 1, "period_us": 1000000, "cells": 0}"#,
            "quota: `cells`: give at least 1",
        ),
    ] {
        assert_eq!(message_of_quota(algorithm, quota), format!("timeline \"n\": {expected}"));
    }
}

#[test]
fn a_file_is_named_in_its_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cases.json");
    let error = read(&path).unwrap_err();
    assert!(error.is_unreadable());
    assert_eq!(
        error.to_string(),
        format!("{}: cannot read it: No such file or directory (os error 2)", path.display())
    );

    std::fs::write(&path, "[{}]").unwrap();
    let error = read(&path).unwrap_err();
    assert!(!error.is_unreadable());
    assert_eq!(error.to_string(), format!("{}: timeline 0: missing field `name`", path.display()));
}
