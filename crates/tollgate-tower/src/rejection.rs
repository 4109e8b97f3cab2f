//! Why a request did not reach the service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tollgate::{Acquisition, Algorithm, CheckError, Rule, RuleDecision, Verdict};

/// Why a request was turned away. It never reached the inner service.
///
/// The text ([`Display`](fmt::Display)) is fit for the client: it names the rule, never a bucket, a
/// server or the error of a store. What went wrong inside is in [`error`](Self::error).
#[derive(Clone, Debug)]
pub struct Rejection {
    reason: Reason,
}

#[derive(Clone, Debug)]
enum Reason {
    Denied { verdict: Arc<Verdict>, retry_after: Option<Duration> },
    Failed(Arc<CheckError>),
}

impl Rejection {
    pub(crate) fn refused(acquisition: Acquisition) -> Self {
        let retry_after = acquisition.retry_after();
        let (verdict, _) = acquisition.into_parts();
        Self { reason: Reason::Denied { verdict: Arc::new(verdict), retry_after } }
    }

    /// Makes the rejection of a request that `verdict` denies, for one who asks the limiter without
    /// the layer.
    pub fn denied(verdict: Verdict) -> Self {
        let retry_after = verdict.retry_after();
        Self { reason: Reason::Denied { verdict: Arc::new(verdict), retry_after } }
    }

    pub(crate) fn failed(error: CheckError) -> Self {
        Self { reason: Reason::Failed(Arc::new(error)) }
    }

    /// Tells whether a rule denied the request, or would have made it wait too long (429). It can
    /// succeed later, unless a rule [blocks](Self::is_blocked) it.
    pub const fn is_denied(&self) -> bool {
        matches!(self.reason, Reason::Denied { .. })
    }

    /// Tells whether a rule blocks such requests, so that no wait helps (429, without a
    /// `Retry-After`).
    pub const fn is_blocked(&self) -> bool {
        matches!(self.reason, Reason::Denied { retry_after: None, .. })
    }

    /// Tells whether the cost is above the burst of a rule, so that the request can never succeed
    /// (422).
    pub fn is_impossible(&self) -> bool {
        self.error().is_some_and(CheckError::is_impossible)
    }

    /// Tells whether the store could not answer and a rule refuses requests then (503).
    pub fn is_store_failure(&self) -> bool {
        self.error().is_some_and(CheckError::is_store_failure)
    }

    /// Tells whether an attribute should tell the cost and does not (400).
    pub fn is_bad_cost(&self) -> bool {
        self.error().is_some_and(|error| error.attribute().is_some())
    }

    /// Returns the HTTP status: 429, 422, 503 or 400, or 500 if the request cannot be charged
    /// because too many rules apply to it.
    pub fn status(&self) -> StatusCode {
        match &self.reason {
            Reason::Denied { .. } => StatusCode::TOO_MANY_REQUESTS,
            Reason::Failed(error) if error.is_impossible() => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::Failed(error) if error.is_store_failure() => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Failed(_) if self.is_bad_cost() => StatusCode::BAD_REQUEST,
            Reason::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns when it is worth to try again: exactly when the same request can succeed without a
    /// wait if it was denied, in a second after a store failure, never if it is blocked or
    /// impossible. For a concurrency rule that is when the leases end; a slot that is released
    /// comes sooner.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.reason {
            Reason::Denied { retry_after, .. } => *retry_after,
            Reason::Failed(error) => error.retry_after(),
        }
    }

    /// Returns the rule that turned the request away, if it was one rule.
    pub fn rule(&self) -> Option<&Rule> {
        match &self.reason {
            Reason::Denied { verdict, .. } => verdict.rule(),
            Reason::Failed(error) => error.rule(),
        }
    }

    /// Returns the verdict, if a rule denied the request. It is an allowance if the request would
    /// have had to wait too long.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.reason {
            Reason::Denied { verdict, .. } => Some(verdict),
            Reason::Failed(_) => None,
        }
    }

    /// Returns the error, if there is no verdict. Its text is for operators; do not send it to a
    /// client.
    pub fn error(&self) -> Option<&CheckError> {
        match &self.reason {
            Reason::Denied { .. } => None,
            Reason::Failed(error) => Some(error),
        }
    }

    /// Returns the wait in whole milliseconds, rounded up.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        let wait = self.retry_after()?.as_nanos().div_ceil(1_000_000);
        Some(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

fn counts_slots(verdict: &Verdict) -> bool {
    let quota = verdict.most_restrictive().and_then(RuleDecision::quota);
    quota.is_some_and(|quota| matches!(quota.algorithm(), Algorithm::Concurrency { .. }))
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Denied { retry_after: None, .. } => f.write_str("such requests are blocked")?,
            Reason::Denied { verdict, .. } if counts_slots(verdict) => {
                f.write_str("too many requests are in flight")?;
            }
            Reason::Denied { .. } => f.write_str("the rate limit is used up")?,
            Reason::Failed(error) if error.is_impossible() || self.is_bad_cost() => error.fmt(f)?,
            Reason::Failed(error) if error.is_store_failure() => {
                f.write_str("the rate limit cannot be checked at the moment")?;
            }
            Reason::Failed(_) => f.write_str("the request cannot be charged to its rate limits")?,
        }
        match self.retry_after_ms() {
            Some(wait_ms) => write!(f, ": try again in {wait_ms} ms"),
            None => Ok(()),
        }
    }
}
