//! The headers that tell a client about its limits.
//!
//! [`write_headers`] writes them on every response to which an enforced rule applied, allowed or
//! denied, and writes nothing when none did. A shadow rule never shows.
//!
//! | header | on | value |
//! | --- | --- | --- |
//! | `Retry-After` | denials that a wait helps | seconds until the same request can succeed, at least 1 |
//! | `X-RateLimit-Limit` | all | the burst of the most restrictive rule, or its slots |
//! | `X-RateLimit-Remaining` | all | the whole units left under that rule, or its free slots |
//! | `X-RateLimit-Reset` | all | seconds until that rule's bucket is full |
//! | `RateLimit-Policy` | all | every rule that applies: its burst `q` and the seconds `w` that refill it |
//! | `RateLimit` | all | the units left `r`, and `t`, the seconds to spread them over |
//!
//! All seconds are counted from now and rounded up, so that a client that waits them is never
//! early. The wait of a denial is at least 1 even if it is a millisecond: `Retry-After: 0` invites
//! a client to spin.
//!
//! - A request that a rule **blocks** can never succeed, so its denial has no `Retry-After`, and a
//!   limit of 0.
//! - For a rule that counts requests **in flight**, `Retry-After` and `X-RateLimit-Reset` are those
//!   of the leases: the latest that a slot is free, and that all are. A request that is done frees
//!   its slot sooner.
//!
//! # RateLimit and RateLimit-Policy
//!
//! Both follow draft 11 of
//! [RateLimit header fields for HTTP](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/),
//! which is still moving: the version is named by [`RateLimitDraft`], and another one does not
//! replace it silently. A quota is put into its terms like this:
//!
//! - `r` units are there now. While a token bucket or a leaky bucket has some, `t` is the time in
//!   which it gains as many, so a client that spends `r` in `t` again and again keeps to the rate.
//!   When there are none, `t` is the time to the next one.
//! - Where units come back in windows, `w` is the window and `t` the time until all that was spent
//!   has come back.
//! - A rule that counts requests in flight has the quota unit `qu="concurrent-requests"` and no
//!   times. A rule that blocks has a quota of 0.
//! - The quota is the one that holds for the request: that of an exception, if one matches.
//! - On an allowance every enforced rule is listed. On a denial only those that denied are, since
//!   the others are not what the client waits for, and `t` is never later than `Retry-After`.
//!
//! # Headers that are already there
//!
//! A group of headers that the response already has is left as it is: the inner service, an inner
//! layer or a rejection of your own has the last word. The groups are `Retry-After`, the three
//! `X-RateLimit-*`, and `RateLimit` with `RateLimit-Policy`; they are not mixed, so that numbers of
//! two limits never stand in one group.
//!
//! # Examples
//!
//! ```
//! use http::HeaderMap;
//! use tollgate::{Attributes, Limiter, ManualClock, Quota, Rule};
//! use tollgate_tower::headers::write_headers;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder()
//!     .rule(Rule::new("login", Quota::new("20/min".parse()?, 20)?))
//!     .clock(ManualClock::new())
//!     .build()?;
//! let verdict = limiter.check(&Attributes::new()).await?;
//!
//! let mut headers = HeaderMap::new();
//! write_headers(&verdict, &mut headers);
//! assert_eq!(headers["x-ratelimit-limit"], "20");
//! assert_eq!(headers["x-ratelimit-remaining"], "19");
//! assert_eq!(headers["x-ratelimit-reset"], "3");
//! assert_eq!(headers["ratelimit-policy"], r#""login";q=20;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""login";r=19;t=57"#);
//! # Ok(())
//! # }
//! ```

mod draft_11;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tollgate::Verdict;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Writes the headers of `verdict` in the default format.
///
/// Headers that are already there stay; see the [module docs](self).
pub fn write_headers(verdict: &Verdict, headers: &mut HeaderMap) {
    HeaderFormat::default().write(verdict, headers);
}

/// Writes `Retry-After`, in whole seconds, rounded up and at least 1, unless it is already there.
///
/// For responses that have a wait but no verdict, such as that to a store failure.
pub fn write_retry_after(wait: Duration, headers: &mut HeaderMap) {
    if !headers.contains_key(RETRY_AFTER) {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait).max(1)));
    }
}

/// A version of the IETF draft of `RateLimit` and `RateLimit-Policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateLimitDraft {
    /// `draft-ietf-httpapi-ratelimit-headers-11` of May 2026: lists of quoted policy names with the
    /// parameters `q` and `w`, `r` and `t`.
    Draft11,
}

/// Which headers are written.
///
/// The default is all of them, by draft 11.
///
/// # Examples
///
/// ```
/// use tollgate_tower::headers::{HeaderFormat, RateLimitDraft};
///
/// let standard_only = HeaderFormat::new().with_legacy(false);
/// assert_eq!(standard_only.draft(), Some(RateLimitDraft::Draft11));
/// assert!(!standard_only.legacy());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct HeaderFormat {
    draft: Option<RateLimitDraft>,
    legacy: bool,
}

impl HeaderFormat {
    /// Makes the default format.
    pub const fn new() -> Self {
        Self { draft: Some(RateLimitDraft::Draft11), legacy: true }
    }

    /// Sets the draft by which `RateLimit` and `RateLimit-Policy` are written; `None` leaves them
    /// out.
    pub const fn with_draft(mut self, draft: Option<RateLimitDraft>) -> Self {
        self.draft = draft;
        self
    }

    /// Sets whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written.
    pub const fn with_legacy(mut self, legacy: bool) -> Self {
        self.legacy = legacy;
        self
    }

    /// Returns the draft by which `RateLimit` and `RateLimit-Policy` are written.
    pub const fn draft(&self) -> Option<RateLimitDraft> {
        self.draft
    }

    /// Tells whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written.
    pub const fn legacy(&self) -> bool {
        self.legacy
    }

    /// Writes the headers of `verdict`. Headers that are already there stay; see the
    /// [module docs](self).
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
        let Some(decision) = verdict.decision() else { return };
        if let Some(wait) = wait {
            write_retry_after(wait, headers);
        }
        let legacy = [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];
        if self.legacy && !legacy.iter().any(|name| headers.contains_key(name)) {
            headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(decision.limit()));
            headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(decision.remaining()));
            let reset = whole_seconds(decision.reset_after());
            headers.insert(X_RATELIMIT_RESET, HeaderValue::from(reset));
        }
        let drafted = headers.contains_key(RATELIMIT) || headers.contains_key(RATELIMIT_POLICY);
        match self.draft {
            Some(RateLimitDraft::Draft11) if !drafted => draft_11::write(verdict, wait, headers),
            _ => {}
        }
    }
}

impl Default for HeaderFormat {
    fn default() -> Self {
        Self::new()
    }
}

/// Rounds up to whole seconds.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}
