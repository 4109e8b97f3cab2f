//! Which headers are written, and how.

use std::time::Duration;

use http::header::{HeaderMap, HeaderValue};
use tollgate::{Algorithm, Clock, RuleDecision, SystemClock, Timestamp, Verdict};

use super::{
    RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET,
    X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET, X_RATELIMIT_RULE, draft_07,
    draft_11, insert, whole_seconds, write_retry_after,
};

const MICROS_PER_SECOND: u64 = 1_000_000;

/// A version of the IETF draft of `RateLimit` and `RateLimit-Policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateLimitDraft {
    /// `draft-ietf-httpapi-ratelimit-headers-06` of December 2022, and 03 to 05 before it:
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` beside `RateLimit-Policy`.
    Draft06,
    /// `draft-ietf-httpapi-ratelimit-headers-07` of June 2023: one `RateLimit` with `limit`,
    /// `remaining` and `reset`, beside `RateLimit-Policy`.
    Draft07,
    /// `draft-ietf-httpapi-ratelimit-headers-11` of May 2026: lists of quoted policy names with the
    /// parameters `q` and `w`, `r` and `t`.
    Draft11,
}

/// What `X-RateLimit-Reset` counts. Services differ in it, and a client cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reset {
    /// The seconds from now.
    #[default]
    Delta,
    /// The seconds since the epoch, by the clock of this machine.
    Epoch,
}

/// Which headers are written, and how.
///
/// The default is all of them, with a reset in seconds from now and by draft 11.
///
/// # Examples
///
/// ```
/// use tollgate_tower::headers::{HeaderFormat, RateLimitDraft, Reset};
///
/// let standard_only = HeaderFormat::new().with_legacy(None);
/// assert_eq!(standard_only.draft(), Some(RateLimitDraft::Draft11));
/// assert_eq!(standard_only.legacy(), None);
///
/// let as_github = HeaderFormat::new().with_legacy(Reset::Epoch).with_draft(None);
/// assert_eq!(as_github.legacy(), Some(Reset::Epoch));
/// assert!(as_github.rule());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct HeaderFormat {
    draft: Option<RateLimitDraft>,
    legacy: Option<Reset>,
    rule: bool,
}

impl HeaderFormat {
    /// Makes the default format.
    pub const fn new() -> Self {
        Self { draft: Some(RateLimitDraft::Draft11), legacy: Some(Reset::Delta), rule: true }
    }

    /// Sets the draft by which the headers that begin with `RateLimit` are written; `None` leaves
    /// them out.
    pub fn with_draft(mut self, draft: impl Into<Option<RateLimitDraft>>) -> Self {
        self.draft = draft.into();
        self
    }

    /// Sets what the reset of `X-RateLimit-Limit`, `-Remaining` and `-Reset` counts; `None` leaves
    /// all three out.
    pub fn with_legacy(mut self, reset: impl Into<Option<Reset>>) -> Self {
        self.legacy = reset.into();
        self
    }

    /// Sets whether a denial names its rule in `X-RateLimit-Rule`. The draft and
    /// [`ProblemResponse`](crate::ProblemResponse) name rules too.
    pub const fn with_rule(mut self, rule: bool) -> Self {
        self.rule = rule;
        self
    }

    /// Returns the draft by which the headers that begin with `RateLimit` are written.
    pub const fn draft(&self) -> Option<RateLimitDraft> {
        self.draft
    }

    /// Returns what the reset of `X-RateLimit-Limit`, `-Remaining` and `-Reset` counts, if they are
    /// written.
    pub const fn legacy(&self) -> Option<Reset> {
        self.legacy
    }

    /// Tells whether a denial names its rule in `X-RateLimit-Rule`.
    pub const fn rule(&self) -> bool {
        self.rule
    }

    /// Writes the headers of `verdict`. Headers that are already there stay; see the
    /// [module docs](super).
    pub fn write(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        self.write_refused(verdict, verdict.retry_after(), headers);
    }

    /// Writes the headers of a request that was turned away, with the wait that its
    /// [`Acquisition`](tollgate::Acquisition::retry_after) tells: the rules may have allowed it,
    /// and only the delay was too long.
    pub fn write_refused(
        &self,
        verdict: &Verdict,
        wait: Option<Duration>,
        headers: &mut HeaderMap,
    ) {
        self.write_refused_at(verdict, wait, headers, SystemClock.now());
    }

    /// Writes as [`write_refused`](Self::write_refused) does at the time `now`, from which
    /// [`Reset::Epoch`] counts.
    pub fn write_refused_at(
        &self,
        verdict: &Verdict,
        wait: Option<Duration>,
        headers: &mut HeaderMap,
        now: Timestamp,
    ) {
        let Some(binding) = verdict.most_restrictive() else { return };
        let decision = binding.decision();
        if let Some(wait) = wait {
            write_retry_after(wait, headers);
        }
        if let Some(reset) = self.legacy {
            write_legacy(binding, reset, headers, now);
        }
        if let Some(draft) = self.draft {
            write_draft(draft, verdict, wait, headers);
        }
        let is_refused = decision.is_deny() || wait.is_some();
        if self.rule && is_refused && !headers.contains_key(X_RATELIMIT_RULE) {
            let name = verdict.rule().map(|rule| rule.name().to_owned());
            insert(headers, X_RATELIMIT_RULE, name.unwrap_or_default());
        }
    }
}

impl Default for HeaderFormat {
    fn default() -> Self {
        Self::new()
    }
}

fn write_legacy(binding: &RuleDecision, reset: Reset, headers: &mut HeaderMap, now: Timestamp) {
    let names = [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];
    if names.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    let decision = binding.decision();
    let reset = match reset {
        Reset::Delta => whole_seconds(decision.reset_after()),
        Reset::Epoch => reset_at_us(binding, now).div_ceil(MICROS_PER_SECOND),
    };
    headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(decision.limit()));
    headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(decision.remaining()));
    headers.insert(X_RATELIMIT_RESET, HeaderValue::from(reset));
}

/// Returns when the bucket is full, in microseconds since the epoch.
///
/// The decision was made a little before `now`, or by the clock of another machine, so the sum is
/// not exact. A fixed window ends at a multiple of its period, often on a whole second, which a sum
/// that is a microsecond late would round up to the next.
fn reset_at_us(binding: &RuleDecision, now: Timestamp) -> u64 {
    let reset_after = binding.decision().reset_after();
    let at_us = now.saturating_add(reset_after).as_micros();
    let quota = binding.quota().filter(|quota| quota.algorithm() == Algorithm::FixedWindow);
    let Some(quota) = quota.filter(|_| !reset_after.is_zero()) else { return at_us };
    let period_us = u64::try_from(quota.rate().period().as_micros()).unwrap_or(u64::MAX).max(1);
    let late_us = at_us % period_us;
    let early_us = period_us - late_us;
    let off_us = late_us.min(early_us);
    match off_us {
        MICROS_PER_SECOND.. => at_us,
        _ if off_us == late_us => at_us - late_us,
        _ => at_us.saturating_add(early_us),
    }
}

fn write_draft(
    draft: RateLimitDraft,
    verdict: &Verdict,
    wait: Option<Duration>,
    headers: &mut HeaderMap,
) {
    let names =
        [RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET];
    if names.iter().any(|name| headers.contains_key(name)) {
        return;
    }
    match draft {
        RateLimitDraft::Draft06 => draft_07::write_apart(verdict, wait, headers),
        RateLimitDraft::Draft07 => draft_07::write(verdict, wait, headers),
        RateLimitDraft::Draft11 => draft_11::write(verdict, wait, headers),
    }
}
