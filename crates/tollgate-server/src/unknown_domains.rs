//! Requests for domains that nobody has rules for, which are not limited.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_core::key::NAME_LEN_MAX;

/// How many domains are remembered as told of. Callers can name any, so there is a bound.
const TOLD_MAX: usize = 64;

/// The least time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Tells of each unknown domain once in the log, with pauses in between.
#[derive(Debug, Default)]
pub(crate) struct UnknownDomains {
    hasher: RandomState,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// By their hashes, the first to be told of first.
    domains: VecDeque<u64>,
    last: Option<Instant>,
}

impl UnknownDomains {
    pub(crate) fn tell(&self, domain: &str, now: Instant) {
        if self.is_due(domain, now) {
            let domain = shortened(domain);
            tracing::warn!(
                ?domain,
                "a request names a domain that has no rules, so it is not limited: name one of \
                 the rules' domains, or none for \"default\""
            );
        }
    }

    /// Tells whether a domain has to be told of at `now`. One that comes in a pause is, when it comes again.
    fn is_due(&self, domain: &str, now: Instant) -> bool {
        let hash = self.hasher.hash_one(domain);
        // No code that holds the lock can leave the domains half changed.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.domains.contains(&hash)
            || told.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE)
        {
            return false;
        }
        if told.domains.len() == TOLD_MAX {
            told.domains.pop_front();
        }
        told.domains.push_back(hash);
        told.last = Some(now);
        true
    }
}

/// Returns what is logged of a domain: no more than a name can have, since Envoy may send anything.
fn shortened(domain: &str) -> String {
    match domain.char_indices().nth(NAME_LEN_MAX) {
        Some((end, _)) => format!("{}...", &domain[..end]),
        None => domain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unknown_domain_is_told_of_once_and_no_two_within_ten_seconds() {
        let (domains, start) = (UnknownDomains::default(), Instant::now());
        let due = |domain, seconds| domains.is_due(domain, start + Duration::from_secs(seconds));
        assert!(due("shpo", 0));
        assert!(!due("shpo", 100), "told of already");
        assert!(due("hsop", 101));
        assert!(!due("pohs", 110), "in the pause");
        assert!(due("pohs", 111));
        assert!(!due("hsop", 200));
    }

    #[test]
    fn g9_domains_that_a_caller_invents_take_no_memory_and_hide_no_other() {
        let (domains, start) = (UnknownDomains::default(), Instant::now());
        let mut told = 0;
        for second in 0..10_000_u32 {
            let now = start + Duration::from_secs(second.into());
            told += u32::from(domains.is_due(&second.to_string(), now));
        }
        assert_eq!(told, 1_000);
        assert_eq!(domains.told.lock().unwrap().domains.len(), TOLD_MAX);
        assert!(domains.is_due("shpo", start + Duration::from_secs(10_010)));
    }

    #[test]
    fn a_long_domain_is_cut() {
        assert_eq!(shortened("shop"), "shop");
        let long = shortened(&format!("x\n\u{1b}{}", "\u{e9}".repeat(50_000)));
        assert_eq!(long, format!("x\n\u{1b}{}...", "\u{e9}".repeat(61)));
    }
}
