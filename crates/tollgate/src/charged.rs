//! What a request is charged to.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Allow, Applied, Attributes, Charge, Cost, Decision, Deny, LeaseTerms, Quota, Rule,
    Ticket,
};

use crate::error::CheckError;
use crate::sharded::Sharded;
use crate::verdict::{Mode, RuleDecision};

/// A rule that applies to a request, the bucket that it charges, and how much.
#[derive(Clone)]
pub(crate) struct Charged {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: String,
    /// `None` if the rule blocks the request.
    pub(crate) quota: Option<Quota>,
    pub(crate) exception: Option<usize>,
    pub(crate) cost: Cost,
    /// How many units the rule spends for each unit of the caller's cost.
    pub(crate) factor: u64,
    /// How the bucket is kept in shards, if it is.
    pub(crate) sharded: Option<Box<Sharded>>,
    /// On which terms slices of the bucket are leased, if they are. The quota is then that of the
    /// bucket in the store.
    pub(crate) lease: Option<Box<LeaseTerms>>,
}

/// All that one request is charged to, coarse to fine.
pub(crate) type AllCharged = SmallVec<[Charged; 2]>;

impl Charged {
    pub(crate) fn new(
        applied: Applied,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Self, CheckError> {
        let Applied { rule, key, quota, exception } = applied;
        let factor = rule.cost().cost(attributes, Cost::ONE).map_err(CheckError::cost)?.units();
        let cost = Cost::new(cost.units().saturating_mul(factor));
        Ok(Self { rule, key, quota, exception, cost, factor, sharded: None, lease: None })
    }

    /// Charges the bucket as it is kept in a store to which there is a way, where slices of it may be
    /// leased, and where it may be kept in shards.
    pub(crate) fn keep_in_remote_store(&mut self) {
        let terms = self.quota.as_ref().and_then(|quota| self.rule.shard_terms(quota));
        self.sharded = terms.map(|terms| Box::new(Sharded::new(terms)));
        let lease = self.quota.as_ref().and_then(|quota| self.rule.lease_terms(quota));
        self.lease = lease.map(Box::new);
        if let Some(lease) = &self.lease {
            self.quota = Some(*lease.quota());
        }
    }

    /// The attributes that decide which bucket and which quota of the rule a request is charged to.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &str> {
        let of_exceptions = self.rule.exceptions().iter().flat_map(|one| one.matcher.iter());
        self.rule.key().iter().map(String::as_str).chain(of_exceptions.map(|(name, _)| name))
    }

    /// The charge to the bucket in the store, or to the shard of it that is asked, unless the rule
    /// blocks the request.
    pub(crate) fn charge(&self, ticket: Option<Ticket>) -> Option<Charge<'_>> {
        let whole = self.whole_charge(ticket)?;
        Some(match self.sharded.as_ref().and_then(|sharded| sharded.bucket()) {
            Some((key, quota)) => Charge { key, quota, ..whole },
            None => whole,
        })
    }

    /// The charge to the bucket as if it had no shards.
    pub(crate) fn whole_charge(&self, ticket: Option<Ticket>) -> Option<Charge<'_>> {
        let quota = self.quota.as_ref()?;
        Some(Charge {
            shadow: self.rule.is_shadow(),
            ticket,
            ..Charge::new(&self.key, quota, self.cost)
        })
    }

    /// The largest cost that can ever be admitted.
    pub(crate) fn cost_max(&self) -> Cost {
        match (&self.sharded, &self.quota) {
            (Some(sharded), _) => sharded.terms().cost_max(),
            (None, Some(quota)) => Cost::new(quota.burst().into()),
            (None, None) => Cost::ZERO,
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.quota.is_none()
    }

    /// Whether the rule counts requests in flight.
    pub(crate) fn counts_slots(&self) -> bool {
        let algorithm = self.quota.as_ref().map(Quota::algorithm);
        matches!(algorithm, Some(Algorithm::Concurrency { .. }))
    }

    /// The longest time that the rule can delay a request that it allows.
    pub(crate) fn delay_max(&self) -> Duration {
        match &self.quota {
            Some(quota) if quota.algorithm() == Algorithm::LeakyBucket => quota.fill_time(),
            _ => Duration::ZERO,
        }
    }

    /// Whether the cost can ever be admitted.
    pub(crate) fn is_possible(&self) -> bool {
        self.quota.is_some() && self.cost <= self.cost_max()
    }

    pub(crate) fn decided(&self, decision: Decision, mode: Mode) -> RuleDecision {
        let (rule, exception) = (Arc::clone(&self.rule), self.exception);
        let shard = self.sharded.as_ref().and_then(|sharded| sharded.number());
        let decision = match (&self.quota, shard) {
            (Some(whole), Some(_)) if mode == Mode::Exact => with_limit(decision, whole.burst()),
            _ => decision,
        };
        RuleDecision { rule, exception, decision, mode, shard, retryable: self.is_possible() }
    }
}

/// What a shard says, with the limit of the whole.
const fn with_limit(decision: Decision, limit: u32) -> Decision {
    match decision {
        Decision::Allow(allow) => Decision::Allow(Allow { limit, ..allow }),
        Decision::Deny(deny) => Decision::Deny(Deny { limit, ..deny }),
    }
}
