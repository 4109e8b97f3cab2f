//! What a request is charged to.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Charge, Cost, Decision, Quota, Rule};

use crate::verdict::{Mode, RuleDecision};

/// A rule that applies to a request, and the key of the bucket that it charges.
pub(crate) struct Charged {
    pub(crate) rule: Arc<Rule>,
    pub(crate) key: String,
}

/// All that one request is charged to, coarse to fine.
pub(crate) type AllCharged = SmallVec<[Charged; 2]>;

impl Charged {
    pub(crate) fn charge<'a>(&'a self, quota: &'a Quota, cost: Cost) -> Charge<'a> {
        Charge { shadow: self.rule.is_shadow(), ..Charge::new(&self.key, quota, cost) }
    }

    pub(crate) fn decided(self, decision: Decision, cost: Cost, mode: Mode) -> RuleDecision {
        RuleDecision { rule: self.rule, decision, cost, mode }
    }
}
