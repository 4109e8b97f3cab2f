use tollgate::{
    Attributes, Cost, Limiter, ManualClock, Matcher, Quota, Rule, Timestamp, Treatment,
};

use super::*;

fn rule(name: &str, rate: &str, burst: u64) -> Rule {
    Rule::new(name, Quota::new(rate.parse().unwrap(), burst).unwrap())
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap(), clock)
}

async fn spend(limiter: &Limiter, units: u64) -> Verdict {
    limiter.check_n(&Attributes::new(), Cost::new(units)).await.unwrap()
}

/// The headers of a verdict as sorted lines, to be compared with a golden text.
fn text(verdict: &Verdict) -> String {
    let mut headers = HeaderMap::new();
    write_headers(verdict, &mut headers);
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines.concat()
}

#[tokio::test]
async fn an_allowance_tells_what_is_left() {
    let (limiter, _) = limiter([rule("login", "20/min", 5)]);
    assert_eq!(
        text(&spend(&limiter, 2).await),
        "ratelimit-policy: \"login\";q=5;w=15\n\
         ratelimit: \"login\";r=3;t=9\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 3\n\
         x-ratelimit-reset: 6\n"
    );
    assert_eq!(
        text(&spend(&limiter, 3).await),
        "ratelimit-policy: \"login\";q=5;w=15\n\
         ratelimit: \"login\";r=0;t=3\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 15\n"
    );
}

#[tokio::test]
async fn a_denial_tells_the_wait() {
    let (limiter, clock) = limiter([rule("login", "20/min", 5)]);
    assert!(spend(&limiter, 5).await.is_allowed());
    clock.advance(Duration::from_micros(1));
    assert_eq!(
        text(&spend(&limiter, 1).await),
        "ratelimit-policy: \"login\";q=5;w=15\n\
         ratelimit: \"login\";r=0;t=3\n\
         retry-after: 3\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 15\n\
         x-ratelimit-rule: login\n"
    );
    clock.advance(Duration::from_millis(2_000));
    let verdict = spend(&limiter, 1).await;
    assert!(text(&verdict).contains("retry-after: 1\n"), "{}", text(&verdict));
    assert_eq!(verdict.retry_after(), Some(Duration::from_micros(999_999)));
}

#[tokio::test]
async fn a_wait_below_a_second_is_one_second_and_never_0() {
    let (limiter, _) = limiter([rule("api", "1000/s", 1)]);
    assert!(spend(&limiter, 1).await.is_allowed());
    let denied = spend(&limiter, 1).await;
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(1)));
    assert_eq!(
        text(&denied),
        "ratelimit-policy: \"api\";q=1;w=1\n\
         ratelimit: \"api\";r=0;t=1\n\
         retry-after: 1\n\
         x-ratelimit-limit: 1\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 1\n\
         x-ratelimit-rule: api\n"
    );
}

#[test]
fn seconds_are_rounded_up_and_whole_ones_stay() {
    let mut headers = HeaderMap::new();
    for (wait_ms, seconds) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (60_000, "60")] {
        headers.clear();
        write_retry_after(Duration::from_millis(wait_ms), &mut headers);
        assert_eq!(headers["retry-after"], seconds, "{wait_ms} ms");
    }
    assert_eq!(whole_seconds(Duration::from_nanos(1)), 1);
    assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
}

#[tokio::test]
async fn every_enforced_rule_is_listed_and_the_most_restrictive_one_speaks() {
    let (limiter, _) = limiter([rule("all", "100/s", 500), rule("daily", "1000/day", 10)]);
    assert_eq!(
        text(&spend(&limiter, 4).await),
        "ratelimit-policy: \"all\";q=500;w=5, \"daily\";q=10;w=864\n\
         ratelimit: \"all\";r=496;t=5, \"daily\";r=6;t=519\n\
         x-ratelimit-limit: 10\n\
         x-ratelimit-remaining: 6\n\
         x-ratelimit-reset: 346\n"
    );
}

#[tokio::test]
async fn a_denial_lists_the_windows_of_the_denying_rules_only() {
    let (limiter, _) = limiter([rule("all", "1/min", 500), rule("burst", "1/s", 2)]);
    assert!(spend(&limiter, 2).await.is_allowed());
    let text = text(&spend(&limiter, 1).await);
    assert!(text.contains("ratelimit: \"burst\";r=0;t=1\n"), "{text}");
    assert!(
        text.contains("ratelimit-policy: \"all\";q=500;w=30000, \"burst\";q=2;w=2\n"),
        "{text}"
    );
    assert!(text.contains("retry-after: 1\n"), "{text}");
}

#[tokio::test]
async fn the_window_of_a_denial_never_outlasts_its_retry_after() {
    let (limiter, clock) = limiter([rule("bulk", "1/s", 10)]);
    assert!(spend(&limiter, 1).await.is_allowed());
    clock.advance(Duration::from_millis(900));
    let denied = spend(&limiter, 10).await;
    assert_eq!(denied.remaining(), Some(9));
    let text = text(&denied);
    assert!(text.contains("ratelimit: \"bulk\";r=9;t=1\n"), "{text}");
    assert!(text.contains("retry-after: 1\n"), "{text}");
}

#[tokio::test]
async fn an_empty_bucket_has_a_window_of_the_time_to_one_unit() {
    // 7 per 3 s with a burst of 4 has times that are no whole microseconds.
    let (limiter, clock) = limiter([rule("odd", "7/3s", 4), rule("slow", "1/3s", 4)]);
    assert!(spend(&limiter, 4).await.is_allowed());
    let denied = text(&spend(&limiter, 1).await);
    assert!(denied.contains("ratelimit: \"odd\";r=0;t=1, \"slow\";r=0;t=3\n"), "{denied}");
    clock.advance(Duration::from_secs(1));
    let denied = text(&spend(&limiter, 1).await);
    assert!(denied.contains("ratelimit: \"slow\";r=0;t=2\n"), "{denied}");
}

#[tokio::test]
async fn a_window_tells_when_all_that_was_spent_comes_back() {
    // The clock stands 20 s after the begin of a minute.
    let fixed = Quota::fixed_window("10/min".parse().unwrap()).unwrap();
    let (limiter, clock) = limiter([Rule::new("fixed", fixed)]);
    assert_eq!(
        text(&spend(&limiter, 0).await),
        "ratelimit-policy: \"fixed\";q=10;w=60\n\
         ratelimit: \"fixed\";r=10;t=60\n\
         x-ratelimit-limit: 10\n\
         x-ratelimit-remaining: 10\n\
         x-ratelimit-reset: 0\n"
    );
    assert_eq!(
        text(&spend(&limiter, 3).await),
        "ratelimit-policy: \"fixed\";q=10;w=60\n\
         ratelimit: \"fixed\";r=7;t=40\n\
         x-ratelimit-limit: 10\n\
         x-ratelimit-remaining: 7\n\
         x-ratelimit-reset: 40\n"
    );
    clock.advance(Duration::from_micros(1));
    let denied = text(&spend(&limiter, 8).await);
    assert!(denied.contains("ratelimit: \"fixed\";r=7;t=40\n"), "{denied}");
    assert!(denied.contains("retry-after: 40\n"), "{denied}");

    let log = Quota::sliding_log("10/min".parse().unwrap()).unwrap();
    let (limiter, clock) = self::limiter([Rule::new("log", log)]);
    assert!(spend(&limiter, 8).await.is_allowed());
    clock.advance(Duration::from_secs(20));
    assert!(spend(&limiter, 2).await.is_allowed());
    let denied = text(&spend(&limiter, 1).await);
    assert!(denied.contains("retry-after: 40\n"), "{denied}");
    assert!(denied.contains("ratelimit: \"log\";r=0;t=40\n"), "no later than the wait: {denied}");
    assert!(denied.contains("x-ratelimit-reset: 60\n"), "{denied}");
}

#[tokio::test]
async fn a_leaky_bucket_is_told_as_a_bucket() {
    let sms = Quota::leaky_bucket("20/min".parse().unwrap(), 5).unwrap();
    let (limiter, _) = limiter([Rule::new("sms", sms)]);
    assert_eq!(
        text(&spend(&limiter, 2).await),
        "ratelimit-policy: \"sms\";q=5;w=15\n\
         ratelimit: \"sms\";r=3;t=9\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 3\n\
         x-ratelimit-reset: 6\n"
    );
}

#[tokio::test]
async fn requests_in_flight_have_a_unit_of_their_own_and_no_times() {
    let exports = Quota::concurrency(5, Duration::from_secs(30)).unwrap();
    let (limiter, _) = limiter([Rule::new("exports", exports)]);
    let held = limiter.enter(&Attributes::new(), Cost::new(2)).await.unwrap();
    assert_eq!(
        text(held.verdict()),
        "ratelimit-policy: \"exports\";q=5;qu=\"concurrent-requests\"\n\
         ratelimit: \"exports\";r=3\n\
         x-ratelimit-limit: 5\n\
         x-ratelimit-remaining: 3\n\
         x-ratelimit-reset: 30\n"
    );
}

#[tokio::test]
async fn an_exception_is_told_by_its_own_quota() {
    let acme = Quota::new("60/min".parse().unwrap(), 90).unwrap();
    let acme_only = Matcher::new().with("account", ["acme"]);
    let rule = rule("api", "20/min", 5).with_exception(acme_only, Treatment::Quota(acme));
    let (limiter, _) = limiter([rule]);
    let verdict = limiter.check(&Attributes::from([("account", "acme")])).await.unwrap();
    let text = text(&verdict);
    assert!(text.contains("ratelimit-policy: \"api\";q=90;w=90\n"), "{text}");
    assert!(text.contains("ratelimit: \"api\";r=89;t=89\n"), "{text}");
    assert!(text.contains("x-ratelimit-limit: 90\n"), "{text}");
}

#[tokio::test]
async fn a_blocked_request_has_a_limit_of_0_and_no_wait() {
    let evil = Matcher::new().with("account", ["evil"]);
    let blocking = rule("api", "20/min", 5).with_exception(evil, Treatment::Blocked);
    let (limiter, _) = limiter([blocking, rule("all", "1/s", 1)]);
    let request = Attributes::from([("account", "evil")]);
    let verdict = limiter.check(&request).await.unwrap();
    assert_eq!(
        text(&verdict),
        "ratelimit-policy: \"api\";q=0, \"all\";q=1;w=1\n\
         ratelimit: \"api\";r=0\n\
         x-ratelimit-limit: 0\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 0\n\
         x-ratelimit-rule: api\n"
    );
}

#[tokio::test]
async fn a_wait_that_was_too_long_is_told_though_the_rules_allow() {
    let sms = Quota::leaky_bucket("1/min".parse().unwrap(), 5).unwrap();
    let (limiter, _) = limiter([Rule::new("sms", sms)]);
    assert!(spend(&limiter, 1).await.is_allowed());
    let refused = limiter.acquire(&Attributes::new(), Cost::ONE, Duration::ZERO).await.unwrap();
    assert!(!refused.is_granted() && refused.verdict().is_allowed());
    let mut headers = HeaderMap::new();
    HeaderFormat::new().write_refused(refused.verdict(), refused.retry_after(), &mut headers);
    assert_eq!(headers["retry-after"], "60");
    assert_eq!(headers["ratelimit"], "\"sms\";r=4;t=60", "no later than the wait");
}

#[tokio::test]
async fn a_window_is_at_least_one_second() {
    let (limiter, _) = limiter([rule("fast", "1000000000/s", 2)]);
    let text = text(&spend(&limiter, 2).await);
    assert!(text.contains("ratelimit-policy: \"fast\";q=2;w=1\n"), "{text}");
    assert!(text.contains("ratelimit: \"fast\";r=0;t=1\n"), "{text}");
}

#[test]
fn names_are_escaped_as_strings_of_structured_fields() {
    let mut list = String::new();
    draft_11::push_string(&mut list, "login");
    draft_11::push_string(&mut list, r#"a"b\c"#);
    assert_eq!(list, r#""login", "a\"b\\c""#);
}

#[tokio::test]
async fn shadow_rules_and_requests_without_a_rule_leave_no_trace() {
    let (unlimited, _) = limiter([rule("cart", "1/s", 1).with_match("path", ["/cart"])]);
    assert_eq!(text(&spend(&unlimited, 1).await), "");

    let (shadow, _) = limiter([rule("trial", "1/s", 1).with_shadow(true)]);
    assert!(spend(&shadow, 1).await.is_allowed());
    assert_eq!(text(&spend(&shadow, 1).await), "");

    let (both, _) = limiter([rule("trial", "1/s", 1).with_shadow(true), rule("login", "1/s", 9)]);
    assert!(spend(&both, 2).await.is_allowed());
    let text = text(&spend(&both, 2).await);
    assert!(text.contains("x-ratelimit-limit: 9\n") && !text.contains("trial"), "{text}");
}

#[tokio::test]
async fn values_stay_inside_the_15_digits_of_structured_fields() {
    let (limiter, _) = limiter([rule("slowest", "1/366d", 256)]);
    assert_eq!(
        text(&spend(&limiter, 256).await),
        "ratelimit-policy: \"slowest\";q=256;w=8095334400\n\
         ratelimit: \"slowest\";r=0;t=31622400\n\
         x-ratelimit-limit: 256\n\
         x-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 8095334400\n"
    );
    let (limiter, _) = self::limiter([rule("widest", "1/48d", Quota::BURST_MAX)]);
    let text = text(&spend(&limiter, 0).await);
    // 2^31 - 1 times 48 days are 8,906,044,180,838,400 s, one digit too many.
    assert!(text.contains("\"widest\";q=2147483647;w=999999999999999\n"), "{text}");
    assert!(text.contains("\"widest\";r=2147483647;t=999999999999999\n"), "{text}");
}

#[tokio::test]
async fn each_group_can_be_left_out() {
    let (limiter, _) = limiter([rule("login", "1/s", 1)]);
    assert!(spend(&limiter, 1).await.is_allowed());
    let denied = spend(&limiter, 1).await;
    let names = |format: HeaderFormat| {
        let mut headers = HeaderMap::new();
        format.write(&denied, &mut headers);
        let mut names: Vec<String> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(
        names(HeaderFormat::new().with_legacy(None)),
        "ratelimit ratelimit-policy retry-after x-ratelimit-rule"
    );
    assert_eq!(
        names(HeaderFormat::new().with_draft(None)),
        "retry-after x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-ratelimit-rule"
    );
}

#[tokio::test]
async fn a_group_that_is_there_stays_as_it_is() {
    let (limiter, _) = limiter([rule("login", "1/s", 1)]);
    assert!(spend(&limiter, 1).await.is_allowed());
    let denied = spend(&limiter, 1).await;
    for (present, missing) in [
        ("retry-after", ""),
        ("x-ratelimit-remaining", "x-ratelimit-limit x-ratelimit-reset"),
        ("ratelimit", "ratelimit-policy"),
        ("ratelimit-policy", "ratelimit"),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(present, HeaderValue::from_static("77"));
        write_headers(&denied, &mut headers);
        assert_eq!(headers[present], "77", "{present}");
        for name in missing.split_whitespace() {
            assert!(!headers.contains_key(name), "{name} next to {present}");
        }
        assert_eq!(headers.len(), 7 - missing.split_whitespace().count(), "{present}");
    }
}

#[tokio::test]
async fn a_reset_as_a_time_is_the_end_of_the_window_however_late_it_is_written() {
    let format = HeaderFormat::new().with_legacy(Reset::Epoch).with_draft(None);
    let reset = |verdict: &Verdict, written| {
        let mut headers = HeaderMap::new();
        format.write_refused_at(verdict, None, &mut headers, Timestamp::from_micros(written));
        headers["x-ratelimit-reset"].to_str().unwrap().to_owned()
    };
    let decided = 1_700_000_000_250_000;
    for (rate, end) in [("500/min", "1700000040"), ("5/s", "1700000001"), ("5/7s", "1700000001")] {
        let quota = Quota::fixed_window(rate.parse().unwrap()).unwrap();
        let (limiter, clock) = limiter([Rule::new("window", quota)]);
        clock.set(Timestamp::from_micros(decided));
        let verdict = spend(&limiter, 1).await;
        for written in [decided, decided + 1, decided + 300, decided + 400_000, decided - 300] {
            assert_eq!(reset(&verdict, written), end, "{rate} {written}");
        }
        // A clock that is further off is the only one there is.
        if rate == "500/min" {
            assert_eq!(reset(&verdict, decided + 1_000_001), "1700000042");
        }
    }
    // What comes back at any time is rounded up, so that nobody is early.
    let (limiter, clock) = limiter([rule("bucket", "1/s", 5)]);
    clock.set(Timestamp::from_micros(1_700_000_000_000_000));
    assert_eq!(reset(&spend(&limiter, 1).await, 1_700_000_000_000_001), "1700000002");
}
