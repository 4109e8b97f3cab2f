//! How it stands with the store, for operators.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::{FailurePolicy, Quota, Rule, StoreErrorKind};

use crate::limiter::Limiter;
use crate::verdict::Mode;

/// How it stands between a limiter and its store, from [`Limiter::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// How the store fails, if it does.
    pub failure: Option<StoreErrorKind>,
    /// For how long the breaker is open and the store not asked, if it is not.
    pub open_for: Option<Duration>,
    /// How often the breaker has opened.
    pub openings: u64,
    /// The time since the store last answered; `None` if it never did. A store in memory is not
    /// asked over any distance and always has `None`.
    pub since_answer: Option<Duration>,
    /// The last number of live nodes that the store told; `None` if it never did, or tells none.
    pub nodes_known: Option<NonZeroU32>,
    /// Among how many nodes a quota is shared out while the store does not answer.
    pub nodes: NonZeroU32,
    /// How many buckets have spent on this node's own account what is not yet charged to the store.
    pub debts: usize,
    /// How many units of that kind were charged so far.
    pub debts_charged: u64,
    /// How often such a bucket could not be noted, since a million of them were.
    pub debts_forgotten: u64,
    /// How many checks were denied without asking the store, since it had denied them and the denial
    /// was to hold yet.
    pub denial_cache_hits: u64,
    /// The last 32 changes with the time since each, the oldest first. Failures now and then count
    /// as one change in ten seconds.
    pub changes: Vec<(Duration, StatusChange)>,
}

/// What changed between a limiter and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatusChange {
    /// The store failed after it had answered. The rules decide by their failure policies.
    Fails(StoreErrorKind),
    /// The store answers again.
    Answers,
    /// The store failed too often and is not asked any more.
    BreakerOpened(StoreErrorKind),
    /// The store is asked again, after a probe succeeded.
    BreakerClosed,
    /// So many nodes are alive.
    Nodes(NonZeroU32),
}

impl StatusChange {
    /// Returns the change as a lower-case word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fails(_) => "fails",
            Self::Answers => "answers",
            Self::BreakerOpened(_) => "breaker_opened",
            Self::BreakerClosed => "breaker_closed",
            Self::Nodes(_) => "nodes",
        }
    }
}

impl Limiter {
    /// Tells how it stands between the limiter and its store. It asks nobody.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Mode, Quota, Rule};
    ///
    /// let rule = Rule::new("all", Quota::from_rate("20/min".parse()?)?);
    /// let limiter = Limiter::builder().rule(rule.clone()).build()?;
    /// assert_eq!((limiter.status().failure, limiter.status().nodes.get()), (None, 1));
    /// assert_eq!(limiter.mode_of(&rule), Mode::Exact);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn status(&self) -> Status {
        let (health, debts) = (self.health(), self.debts());
        Status {
            failure: health.failure(),
            open_for: health.open_for(),
            openings: health.openings(),
            since_answer: health.since_answer(),
            nodes_known: self.nodes().known(),
            nodes: self.nodes().count(),
            debts: debts.len(),
            debts_charged: debts.charged(),
            debts_forgotten: debts.forgotten(),
            denial_cache_hits: self.denials().hits(),
            changes: health.changes(),
        }
    }

    /// Returns in which mode a rule decides at present: exactly, or by its failure policy.
    pub fn mode_of(&self, rule: &Rule) -> Mode {
        if self.store_failure().is_none() {
            return Mode::Exact;
        }
        match rule.failure_policy() {
            FailurePolicy::Local => Mode::Local,
            FailurePolicy::Closed if !rule.is_shadow() => Mode::Closed,
            _ => Mode::Open,
        }
    }

    /// Returns the part of a rule's quota that this node grants on its own while the store does not
    /// answer; `None` if the rule's policy is another than [`FailurePolicy::Local`].
    pub fn local_part_of(&self, rule: &Rule) -> Option<Quota> {
        match rule.failure_policy() {
            FailurePolicy::Local => rule.local_part(rule.quota(), self.nodes().count()).ok(),
            _ => None,
        }
    }
}
