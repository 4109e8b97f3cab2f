//! Why a limiter gives no verdict.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Cost, CostError, Rule, StoreError, StoreErrorKind};

use crate::charged::Charged;

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
    Impossible { rule: Arc<Rule>, cost: Cost, limit: Cost },
    Invalid(StoreError),
    Cost(CostError),
    NotHeld,
    Store { rule: Option<Arc<Rule>>, source: StoreError },
}

impl CheckError {
    pub(crate) fn impossible(charged: &Charged) -> Self {
        let limit = charged.cost_max();
        let rule = Arc::clone(&charged.rule);
        Self { kind: Kind::Impossible { rule, cost: charged.cost, limit } }
    }

    pub(crate) const fn cost(error: CostError) -> Self {
        Self { kind: Kind::Cost(error) }
    }

    pub(crate) const fn not_held() -> Self {
        Self { kind: Kind::NotHeld }
    }

    /// Sorts a store's error: a call that broke its contract stems from the caller.
    pub(crate) fn store(rule: Option<&Arc<Rule>>, source: StoreError) -> Self {
        if source.is_invalid() {
            return Self { kind: Kind::Invalid(source) };
        }
        Self { kind: Kind::Store { rule: rule.cloned(), source } }
    }

    /// Tells whether the cost is above the burst of a rule, so that it can never succeed. Nothing
    /// was spent.
    pub const fn is_impossible(&self) -> bool {
        matches!(self.kind, Kind::Impossible { .. })
    }

    /// Tells whether the request cannot be charged at all: an attribute that should tell the cost
    /// does not, or more rules apply than one request may be charged to. Nothing was spent.
    pub const fn is_invalid(&self) -> bool {
        matches!(self.kind, Kind::Invalid(_) | Kind::Cost(_))
    }

    /// Tells whether what should be renewed, committed or cancelled is not held: it was never, it
    /// was given back, or it ended. Nothing was changed.
    pub const fn is_not_held(&self) -> bool {
        matches!(self.kind, Kind::NotHeld)
    }

    /// Returns the attribute that should tell the cost and does not, if that is the mistake.
    pub fn attribute(&self) -> Option<&str> {
        match &self.kind {
            Kind::Cost(error) => Some(error.attribute()),
            _ => None,
        }
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
            _ => None,
        }
    }

    /// Returns how the store failed, if it did.
    pub const fn store_failure(&self) -> Option<StoreErrorKind> {
        match &self.kind {
            Kind::Store { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Returns when it is worth to try again after a store failure: in one second.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            Kind::Store { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Impossible { rule, cost, limit } => write!(
                f,
                "cost {cost} can never succeed: rule {:?} admits at most {limit} at once",
                rule.name(),
            ),
            Kind::Invalid(source) => source.fmt(f),
            Kind::Cost(error) => error.fmt(f),
            Kind::NotHeld => {
                f.write_str("nothing is held under this id: it was given back, or it ended")
            }
            Kind::Store { rule, source } => {
                f.write_str(if source.is_full() {
                    "the store has no room for another bucket or record until some have ended"
                } else {
                    "the store cannot decide"
                })?;
                match rule {
                    Some(rule) => {
                        write!(f, ", and rule {:?} refuses requests until it can", rule.name())
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Store { source, .. } => Some(source),
            _ => None,
        }
    }
}
