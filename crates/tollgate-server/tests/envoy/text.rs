//! Requests and answers as lines of text.

use tollgate_envoy::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use tollgate_envoy::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate_envoy::proto::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};

/// Reads `[domain] descriptor [+ descriptor ...] [hits N]`. A descriptor is `key=value,...` and may
/// have `[hits N]`, `[refund]` and `[limit N UNIT]` behind it. The domain is `d` unless given.
pub(crate) fn request(text: &str) -> RateLimitRequest {
    let (domain, text) = match text.split_once(": ") {
        Some((domain, text)) => (domain, text),
        None => ("d", text),
    };
    let (text, hits_addend) = match text.split_once(" hits ") {
        Some((text, hits)) => (text, hits.parse().unwrap()),
        None => (text, 0),
    };
    let descriptors = text.split(" + ").map(descriptor).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend }
}

fn descriptor(text: &str) -> RateLimitDescriptor {
    let mut parts = text.split(" [");
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = parts.next().unwrap().split(',').map(entry).collect();
    let mut descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
    for option in parts {
        match option.trim_end_matches(']').split(' ').collect::<Vec<_>>()[..] {
            ["hits", hits] => descriptor.hits_addend = Some(hits.parse().unwrap()),
            ["refund"] => descriptor.is_negative_hits = true,
            ["limit", requests, unit] => {
                let unit = RateLimitUnit::from_str_name(unit).unwrap() as i32;
                let requests_per_unit = requests.parse().unwrap();
                descriptor.limit = Some(RateLimitOverride { requests_per_unit, unit });
            }
            _ => panic!("{option} is no option"),
        }
    }
    descriptor
}

/// Writes the overall code and every status: `OK | OK 19 of 20/MINUTE in 40s`.
pub(crate) fn answer(response: &RateLimitResponse) -> String {
    let statuses: Vec<_> = response.statuses.iter().map(status).collect();
    format!("{} | {}", response.overall_code().as_str_name(), statuses.join(" + "))
}

fn status(status: &DescriptorStatus) -> String {
    let mut text = match status.code() {
        Code::OverLimit => "OVER".to_owned(),
        code => code.as_str_name().to_owned(),
    };
    match &status.current_limit {
        Some(limit) => {
            let (left, of) = (status.limit_remaining, limit.requests_per_unit);
            text += &format!(" {left} of {of}/{}", limit.unit().as_str_name());
            if !limit.name.is_empty() {
                text += &format!(" {}", limit.name);
            }
        }
        None if status.limit_remaining == u32::MAX => text += " unlimited",
        None => assert_eq!(status.limit_remaining, 0),
    }
    if let Some(until) = &status.duration_until_reset {
        assert_eq!(until.nanos, 0, "Envoy would cut it off");
        text += &format!(" in {}s", until.seconds);
    }
    text
}
