//! Every format asks Envoy for what stands in `fixtures/headers`.

use std::fs;
use std::path::Path;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use tollgate::{Limiter, ManualClock};
use tollgate_config::EnvoyLimits;
use tollgate_tower::headers::{HeaderFormat, RateLimitDraft, Reset};
use tollgate_tower::{DenialBody, DenialResponse};

use super::*;
use crate::judge::Judge;
use crate::limits::Limits;
use crate::observer::Nobody;
use crate::plan::Planner;
use crate::proto::rate_limit_descriptor::Entry;
use crate::proto::{RateLimitDescriptor, RateLimitRequest};

/// 20.25 s after a whole minute.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_420_250_000);

const LIMITS: &str = "
domain: shop
descriptors:
  - { key: ip, rate_limit: { unit: minute, requests_per_unit: 20, algorithm: token_bucket, burst: 3 } }
  - { key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: trial, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: banned, rate_limit: { unit: day, requests_per_unit: 0 } }
";

/// Each with its name, its descriptors and its hits.
const REQUESTS: [(&str, &[&str], u32); 5] = [
    ("allowed", &["ip", "tenant", "trial"], 2),
    ("used up", &["ip", "tenant", "trial"], 1),
    ("denied", &["ip", "tenant", "trial"], 1),
    ("blocked", &["tenant", "banned"], 1),
    ("no limit", &["path"], 1),
];

fn request(keys: &[&str], hits: u32) -> RateLimitRequest {
    let descriptors = keys.iter().map(|key| RateLimitDescriptor {
        entries: vec![Entry { key: (*key).to_owned(), value: "x".to_owned() }],
        ..RateLimitDescriptor::default()
    });
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: hits,
    }
}

/// Writes the headers and the body of the answer to each request.
async fn written(reply: &ClientReply, when: EnvoyHeaders) -> String {
    let clock = ManualClock::new();
    clock.set(NOW);
    let limiter = Limiter::builder().clock(clock).build().unwrap();
    let (rules, limits) =
        (limiter.rules(), Limits::new(&EnvoyLimits::parse(LIMITS, "shop.yaml").unwrap()));
    let planner = Planner::new("shop", &rules, &limits, false);
    let observer = &Nobody;
    let judge = Judge { limiter: &limiter, observer, spend_on_denial: false, patience: None };
    let mut text = String::new();
    for (name, keys, hits) in REQUESTS {
        let plan = planner.plan(&mut request(keys, hits)).unwrap();
        let judged = judge.judge(&plan).await.unwrap();
        let response = answer("shop", &plan, &judged, reply, when, NOW).into_response();
        text.push_str(&format!("# {name}\n"));
        for header in &response.response_headers_to_add {
            text.push_str(&format!("{}: {}\n", header.key, header.value));
        }
        if !response.raw_body.is_empty() {
            text.push_str(&format!("\n{}\n", String::from_utf8_lossy(&response.raw_body)));
        }
    }
    text
}

#[tokio::test]
async fn every_format_asks_for_what_its_file_says() {
    let none = HeaderFormat::new().with_legacy(None).with_draft(None).with_rule(false);
    let problem = DenialResponse::new();
    let own = DenialResponse::new()
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .with_body(DenialBody::Text {
            text: "<p>Slow down</p>".to_owned(),
            content_type: HeaderValue::from_static("text/html"),
        })
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
        .with_header(http::header::RETRY_AFTER, HeaderValue::from_static("120"));
    let empty = DenialResponse::new().with_body(DenialBody::Empty);
    let (all, denials) = (EnvoyHeaders::All, EnvoyHeaders::Denials);
    let bless = std::env::var_os("BLESS").is_some();
    let mut differing = Vec::new();
    for (file, when, format, denial) in [
        ("default", denials, HeaderFormat::new(), &problem),
        ("all", all, HeaderFormat::new(), &problem),
        ("none", EnvoyHeaders::None, HeaderFormat::new(), &problem),
        ("x_ratelimit_delta", all, none.with_legacy(Reset::Delta), &problem),
        ("x_ratelimit_epoch", all, none.with_legacy(Reset::Epoch), &problem),
        ("draft_06", all, none.with_draft(RateLimitDraft::Draft06), &problem),
        ("draft_07", all, none.with_draft(RateLimitDraft::Draft07), &problem),
        ("draft_11", all, none.with_draft(RateLimitDraft::Draft11), &problem),
        ("rule_off", denials, HeaderFormat::new().with_rule(false), &problem),
        ("own_denial", denials, HeaderFormat::new(), &own),
        ("empty_denial", denials, HeaderFormat::new(), &empty),
    ] {
        let text = written(&ClientReply::new(format, denial.clone()), when).await;
        let path = Path::new("fixtures/headers").join(format!("{file}.txt"));
        if bless {
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            differing.push(format!("{}:\n{text}", path.display()));
        }
    }
    assert!(differing.is_empty(), "not as expected: {}", differing.join("\n"));
}
