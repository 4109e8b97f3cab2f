//! A verdict as JSON.

use std::time::Duration;

use serde::Serialize;
use tollgate::{RuleDecision, Verdict};

/// A [`Verdict`] as the HTTP API writes it in JSON.
///
/// Milliseconds are rounded up, so that a caller who waits them never comes too early. The
/// top-level fields are those of the most restrictive enforced rule, and null if no enforced rule
/// applies; `rules` lists every rule that applies, shadow rules included.
///
/// # Examples
///
/// ```
/// use tollgate::{Attributes, Limiter, ManualClock, Quota, Rule};
/// use tollgate_server::Answer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .rule(Rule::new("everyone", Quota::new("20/min".parse()?, 20)?))
///     .clock(ManualClock::new())
///     .build()?;
/// let verdict = limiter.check(&Attributes::new()).await?;
/// assert_eq!(
///     serde_json::to_string(&Answer::new(&verdict))?,
///     r#"{"allowed":true,"mode":"exact","rule":"everyone","limit":20,"remaining":19,"retry_after_ms":null,"reset_after_ms":3000,"delay_ms":0,"rules":[{"rule":"everyone","allowed":true,"limit":20,"remaining":19,"retry_after_ms":null,"reset_after_ms":3000,"delay_ms":0,"shadow":false}]}"#
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    allowed: bool,
    mode: &'static str,
    rule: Option<&'a str>,
    limit: Option<u32>,
    remaining: Option<u32>,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
    delay_ms: u64,
    rules: Vec<RuleAnswer<'a>>,
}

#[derive(Debug, Serialize)]
struct RuleAnswer<'a> {
    rule: &'a str,
    allowed: bool,
    limit: u32,
    remaining: u32,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
    delay_ms: u64,
    shadow: bool,
}

impl<'a> Answer<'a> {
    /// Makes the JSON form of `verdict`.
    pub fn new(verdict: &'a Verdict) -> Self {
        let decision = verdict.decision();
        Self {
            allowed: verdict.is_allowed(),
            mode: verdict.mode().as_str(),
            rule: verdict.rule().map(|rule| rule.name()),
            limit: decision.map(|decision| decision.limit()),
            remaining: verdict.remaining(),
            retry_after_ms: verdict.retry_after().map(millis),
            reset_after_ms: decision.map(|decision| millis(decision.reset_after())),
            delay_ms: millis(verdict.delay()),
            rules: verdict.rules().iter().map(RuleAnswer::from).collect(),
        }
    }

    /// Makes the JSON form of the verdict on a request that was made to wait for too long, and is
    /// refused though its rules may allow it; see
    /// [`Acquisition::retry_after`](tollgate::Acquisition::retry_after).
    pub(crate) fn refused(verdict: &'a Verdict, retry_after: Option<Duration>) -> Self {
        let retry_after_ms = retry_after.map(millis);
        Self { allowed: false, retry_after_ms, ..Self::new(verdict) }
    }

    /// Makes the JSON form of the verdict on a request whose delay has been waited out.
    pub(crate) fn waited_out(verdict: &'a Verdict) -> Self {
        let mut answer = Self { delay_ms: 0, ..Self::new(verdict) };
        answer.rules.iter_mut().for_each(|rule| rule.delay_ms = 0);
        answer
    }
}

impl<'a> From<&'a RuleDecision> for RuleAnswer<'a> {
    fn from(decided: &'a RuleDecision) -> Self {
        let (rule, decision) = (decided.rule(), decided.decision());
        Self {
            rule: rule.name(),
            allowed: decision.is_allow(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after_ms: decided.retry_after().map(millis),
            reset_after_ms: millis(decision.reset_after()),
            delay_ms: millis(decision.delay()),
            shadow: rule.is_shadow(),
        }
    }
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_micros(1)), 1);
        assert_eq!(millis(Duration::from_millis(3_000)), 3_000);
        assert_eq!(millis(Duration::from_micros(3_000_001)), 3_001);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
