//! Every format writes what stands in `fixtures/headers`.

use std::fs;
use std::path::Path;

use tollgate::{
    Attributes, Cost, Limiter, ManualClock, Matcher, Quota, Rule, Timestamp, Treatment,
};

use super::*;

/// 20.25 s after a whole minute.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_420_250_000);

/// Verdicts of all kinds, each with its name.
async fn verdicts() -> Vec<(&'static str, Verdict)> {
    let rule = |name: &str, rate: &str, burst| {
        Rule::new(name, Quota::new(rate.parse().unwrap(), burst).unwrap())
    };
    let evil = Matcher::new().with("account", ["evil"]);
    let rules = [
        rule("login", "20/min", 5).with_exception(evil, Treatment::Blocked),
        Rule::new("hourly", Quota::fixed_window("1000/hour".parse().unwrap()).unwrap()),
        rule("trial", "1/s", 1).with_shadow(true),
    ];
    let slots = Rule::new("exports", Quota::concurrency(1, Duration::from_secs(30)).unwrap());
    let clock = ManualClock::new();
    let limiter = Limiter::builder().rules(rules).clock(clock.clone()).build().unwrap();
    let exports = Limiter::builder().rule(slots).clock(clock).build().unwrap();
    let everybody = Attributes::new();
    let spend = async |units| limiter.check_n(&everybody, Cost::new(units)).await.unwrap();
    let blocked = limiter.check(&Attributes::from([("account", "evil")])).await.unwrap();
    let held = exports.enter(&everybody, Cost::ONE).await.unwrap();
    let full = exports.check(&everybody).await.unwrap();
    vec![
        ("allowed", spend(2).await),
        ("used up", spend(3).await),
        ("denied", spend(1).await),
        ("blocked", blocked),
        ("in flight", held.verdict().clone()),
        ("too many in flight", full),
    ]
}

#[tokio::test]
async fn every_format_writes_what_its_file_says() {
    let none = HeaderFormat::new().with_legacy(None).with_draft(None).with_rule(false);
    let bless = std::env::var_os("BLESS").is_some();
    let mut differing = Vec::new();
    for (file, format) in [
        ("default", HeaderFormat::new()),
        ("retry_after_only", none),
        ("x_ratelimit_delta", none.with_legacy(Reset::Delta)),
        ("x_ratelimit_epoch", none.with_legacy(Reset::Epoch)),
        ("draft_06", none.with_draft(RateLimitDraft::Draft06)),
        ("draft_07", none.with_draft(RateLimitDraft::Draft07)),
        ("draft_11", none.with_draft(RateLimitDraft::Draft11)),
        ("rule", none.with_rule(true)),
    ] {
        let mut text = String::new();
        for (name, verdict) in verdicts().await {
            let mut headers = HeaderMap::new();
            format.write_refused_at(&verdict, verdict.retry_after(), &mut headers, NOW);
            text.push_str(&format!("# {name}\n"));
            for (name, value) in &headers {
                text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
            }
        }
        let path = Path::new("fixtures/headers").join(format!("{file}.txt"));
        if bless {
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap() != text {
            differing.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected: {}", differing.join("\n"));
}
