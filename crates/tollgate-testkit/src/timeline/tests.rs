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
    let expected = [
        ("token_bucket", 12, 99),
        ("leaky_bucket", 3, 24),
        ("fixed_window", 4, 41),
        ("sliding_window", 3, 20),
        ("sliding_log", 2, 17),
        ("concurrency", 5, 40),
    ];
    for (text, (algorithm, timelines, steps)) in ALL.into_iter().zip(expected) {
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.len(), timelines, "{algorithm}");
        for timeline in &parsed {
            assert_eq!(timeline.algorithm(), algorithm);
            assert_eq!(timeline.quota().unwrap().algorithm().as_str(), algorithm);
        }
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
    assert_eq!(timeline.quota(), Some(&Quota::leaky_bucket("10/s".parse().unwrap(), 5).unwrap()));
    assert_eq!(
        timeline.steps()[1],
        Step::Request {
            at: Duration::ZERO,
            operation: Operation::Spend,
            ticket: None,
            cost: Cost::ONE,
            expect: Answer::Allow {
                remaining: 3,
                reset_after: Duration::from_millis(200),
                delay: Duration::from_millis(100),
            },
        }
    );
    let ten_cells =
        Quota::sliding_window("100/10s".parse().unwrap(), 10.try_into().unwrap()).unwrap();
    assert_eq!(parse(SLIDING_WINDOW).unwrap()[0].quota(), Some(&ten_cells));
}

#[test]
fn a_change_of_quota_is_a_step() {
    let text = format!(
        r#"[{{"name": "n", {HEAD}, "steps":
        [{{"set_quota": {{"units": 9, "period_us": 1000000, "burst": 4}}}}]}}]"#
    );
    let quota = Quota::new("9/s".parse().unwrap(), 4).unwrap();
    assert_eq!(parse(&text).unwrap()[0].steps(), [Step::SetQuota(quota)]);
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
            "unknown field `costs`, expected one of `at_us`, `do`, `ticket`, `ttl_us`, `cost`, \
             `expect`",
        ),
        (
            r#"{"set_quota": {"units": 1, "period_us": 1, "burst": 1}, "at_us": 0}"#,
            "unknown field `at_us`, expected `set_quota`",
        ),
        (r#"{"set_quota": {"units": 1, "period_us": 1000000}}"#, "missing field `burst`"),
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
        (r#"{"at_us": 0, "expect": {"outcome": "impossible"}}"#, "a request needs `cost`"),
        (
            r#"{"at_us": 0, "do": "renew", "expect": {"outcome": "impossible"}}"#,
            "`ticket`: name what is renewed, released, reserved or settled",
        ),
        (
            r#"{"at_us": 0, "do": "release", "ticket": "a", "cost": 1,
                "expect": {"outcome": "impossible"}}"#,
            "`cost`: a lease keeps what it holds",
        ),
        (
            r#"{"at_us": 0, "do": "settle", "ticket": "a", "ttl_us": 1, "cost": 1,
                "expect": {"outcome": "impossible"}}"#,
            "`ttl_us`: only a reserve has one",
        ),
        (
            r#"{"at_us": 0, "do": "reserve", "ticket": "a", "cost": 1,
                "expect": {"outcome": "impossible"}}"#,
            "a reserve needs `ttl_us`",
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
            "quota: unknown field `burst`, expected `units` or `period_us`",
        ),
        (
            "sliding_log",
            r#"{"units": 1, "period_us": 1000000, "cells": 2}"#,
            "quota: unknown field `cells`, expected `units` or `period_us`",
        ),
        (
            "sliding_window",
            r#"{"units": 1, "period_us": 1000000, "cells": 0}"#,
            "quota: invalid value: integer `0`, expected a nonzero u16",
        ),
        (
            "concurrency",
            r#"{"units": 1, "lease_ttl_us": 999}"#,
            "quota: lease of 999\u{b5}s is out of range: give 1ms to 1day",
        ),
    ] {
        assert_eq!(message_of_quota(algorithm, quota), format!("timeline \"n\": {expected}"));
    }
}

#[test]
fn an_algorithm_of_a_later_version_is_no_error_and_has_no_quota_and_no_steps() {
    let text = r#"[{"name": "n", "why": "w", "algorithm": "gcra", "start_us": 0,
        "quota": {"tau_us": 3}, "steps": [{"at_us": 0, "theta": 1}]}]"#;
    let parsed = parse(text).unwrap();
    assert_eq!(parsed[0].algorithm(), "gcra");
    assert_eq!(parsed[0].quota(), None);
    assert_eq!(parsed[0].steps(), []);
}

#[test]
fn what_a_request_does_and_under_which_ticket_is_in_the_file() {
    let text = format!(
        r#"[{{"name": "n", {HEAD}, "steps": [{{"at_us": 3, "do": "reserve", "ticket": "order-7",
        "ttl_us": 5, "cost": 2, "expect": {{"outcome": "impossible"}}}}]}}]"#
    );
    let step = Step::Request {
        at: Duration::from_micros(3),
        operation: Operation::Reserve { ttl: Duration::from_micros(5) },
        ticket: Some(Ticket::of("order-7")),
        cost: Cost::new(2),
        expect: Answer::Impossible,
    };
    assert_eq!(parse(&text).unwrap()[0].steps(), [step]);
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
