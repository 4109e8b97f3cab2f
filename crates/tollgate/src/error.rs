//! Why a limiter gives no verdict.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Cost, Rule, StoreError, StoreErrorKind};

/// A request without a verdict: the caller's mistake, or a store failure that a rule does not let
/// pass.
///
/// A denial is not an error; it is a [`Verdict`](crate::Verdict).
#[derive(Debug)]
pub struct CheckError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Impossible { rule: Arc<Rule>, cost: Cost },
    Invalid(StoreError),
    Store { rule: Option<Arc<Rule>>, source: StoreError },
}

impl CheckError {
    pub(crate) const fn impossible(rule: Arc<Rule>, cost: Cost) -> Self {
        Self { kind: Kind::Impossible { rule, cost } }
    }

    /// Sorts a store's error: a call that broke its contract stems from the caller.
    pub(crate) fn store(rule: Option<Arc<Rule>>, source: StoreError) -> Self {
        if source.is_invalid() {
            return Self { kind: Kind::Invalid(source) };
        }
        Self { kind: Kind::Store { rule, source } }
    }

    /// Tells whether the cost is above the burst of a rule, so that it can never succeed. Nothing
    /// was spent.
    pub const fn is_impossible(&self) -> bool {
        matches!(self.kind, Kind::Impossible { .. })
    }

    /// Tells whether the request cannot be charged at all, for instance because more rules apply
    /// to it than one request may be charged to. Nothing was spent.
    pub const fn is_invalid(&self) -> bool {
        matches!(self.kind, Kind::Invalid(_))
    }

    /// Tells whether the store could not answer and a rule's policy is
    /// [`FailurePolicy::Closed`](crate::FailurePolicy::Closed), or the operation was not a check.
    pub const fn is_store_failure(&self) -> bool {
        matches!(self.kind, Kind::Store { .. })
    }

    /// Returns the rule that the cost or the failure concerns, if it is one rule.
    pub fn rule(&self) -> Option<&Rule> {
        match &self.kind {
            Kind::Impossible { rule, .. } => Some(rule),
            Kind::Store { rule, .. } => rule.as_deref(),
            Kind::Invalid(_) => None,
        }
    }

    /// Returns how the store failed, if it did.
    pub const fn store_failure(&self) -> Option<StoreErrorKind> {
        match &self.kind {
            Kind::Store { source, .. } => Some(source.kind()),
            Kind::Impossible { .. } | Kind::Invalid(_) => None,
        }
    }

    /// Returns when it is worth to try again after a store failure: in one second.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::Store { .. } => Some(Duration::from_secs(1)),
            Kind::Impossible { .. } | Kind::Invalid(_) => None,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Impossible { rule, cost } => write!(
                f,
                "cost {cost} can never succeed: rule {:?} admits at most {} at once",
                rule.name(),
                rule.quota().burst()
            ),
            Kind::Invalid(source) => source.fmt(f),
            Kind::Store { rule: Some(rule), .. } => {
                write!(f, "the store could not answer, and rule {:?} refuses then", rule.name())
            }
            Kind::Store { rule: None, .. } => f.write_str("the store could not answer"),
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Store { source, .. } => Some(source),
            Kind::Impossible { .. } | Kind::Invalid(_) => None,
        }
    }
}
