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
//! | `X-RateLimit-Rule` | denials | the name of the rule that denied |
//!
//! [`HeaderFormat`] chooses: each of the last three lines can be left out or written in another
//! way, and `X-RateLimit-Reset` can be a point in time.
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
//! By default both follow draft 11 of
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
//! The older drafts know one limit at a time, that of the most restrictive rule, and no names:
//!
//! | | by draft 06 | by draft 07 |
//! | --- | --- | --- |
//! | the limit | `RateLimit-Limit: 5` | `RateLimit: limit=5, remaining=3, reset=6` |
//! | what is left | `RateLimit-Remaining: 3` | |
//! | until it is full | `RateLimit-Reset: 6` | |
//! | every rule | `RateLimit-Policy: 5;w=15` | `RateLimit-Policy: 5;w=15` |
//!
//! There the reset is the time until the bucket is full, and on a denial no later than
//! `Retry-After`. A rule that counts requests in flight or blocks has no window and so no policy.
//!
//! # Headers that are already there
//!
//! A group of headers that the response already has is left as it is: the inner service, an inner
//! layer or a rejection of your own has the last word. The groups are `Retry-After`, the three
//! `X-RateLimit-*` with numbers, all that begin with `RateLimit`, and `X-RateLimit-Rule`; they are
//! not mixed, so that numbers of two limits never stand in one group.
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

mod draft_07;
mod draft_11;
mod format;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tollgate::Verdict;

pub use self::format::{HeaderFormat, RateLimitDraft, Reset};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RATELIMIT_RULE: HeaderName = HeaderName::from_static("x-ratelimit-rule");

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

/// Rounds up to whole seconds.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Inserts a value that was made of numbers and of names of rules.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    // Only a name outside of ASCII could fail here, and a rule cannot have one.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}
