//! Files in the format of envoyproxy/ratelimit.

use tollgate::{Limiter, ManualClock};
use tollgate_config::{EnvoyConfig, EnvoyDescriptor, EnvoyLimits};
use tollgate_envoy::RateLimiter;
use tollgate_envoy::proto::rate_limit_descriptor::Entry;
use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};

/// Checks that a file is refused with errors that point into it, or gives limits that can be asked.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match EnvoyLimits::parse(&text, "limits.yaml") {
        Ok(limits) => {
            let limiter = Limiter::builder().clock(ManualClock::new()).build().unwrap();
            let service = RateLimiter::new(limiter, &limits, EnvoyConfig::default());
            for domain in &limits.domains {
                let descriptors = first_path(&domain.descriptors);
                let request =
                    RateLimitRequest { domain: domain.name.clone(), descriptors, hits_addend: 0 };
                crate::envoy_request::ask(&service, &request);
            }
        }
        Err(errors) => {
            let lines = text.lines().count().max(1);
            for error in errors.iter().chain(errors.warnings()) {
                let in_text = (1..=lines + 1).contains(&error.line()) && error.column() > 0;
                assert!(in_text, "{}:{} of {text:?}", error.line(), error.column());
            }
            assert!(!errors.to_string().is_empty(), "{text:?}");
        }
    }
}

/// A descriptor for each level of the first path.
fn first_path(mut descriptors: &[EnvoyDescriptor]) -> Vec<RateLimitDescriptor> {
    let (mut entries, mut all) = (Vec::new(), Vec::new());
    while let Some(first) = descriptors.first() {
        let value = first.value.clone().unwrap_or_else(|| "any".to_owned());
        entries.push(Entry { key: first.key.clone(), value });
        all.push(RateLimitDescriptor { entries: entries.clone(), ..Default::default() });
        descriptors = &first.descriptors;
    }
    all
}
