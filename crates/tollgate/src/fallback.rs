//! What the rules' failure policies answer when the store cannot (G10).

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Allow, Charge, Decision, Decisions, Deny, FailurePolicy, Operation, Quota, StoreError,
    StoreErrorKind, Ticket, Timestamp,
};

use crate::charged::{AllCharged, Charged};
use crate::debts::{Debt, Place};
use crate::decide::BLOCKED;
use crate::error::CheckError;
use crate::limiter::Limiter;
use crate::verdict::{Mode, Verdict};

impl Limiter {
    /// Decides by the policy of each rule: `Closed` refuses the request, `Local` rules decide
    /// together in this node's own buckets, or refuse if it has none, `Open` allows.
    pub(crate) fn decide_by_policy(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
        now: Timestamp,
        failure: StoreError,
    ) -> Result<Verdict, CheckError> {
        // A store in memory fails when it is full; a second one beside it would take as much memory
        // again, so there is none (G9).
        let has_local = !self.store().answers_at_once();
        let refuses = |one: &&Charged| {
            let refuses = match one.rule.failure_policy() {
                FailurePolicy::Closed => true,
                FailurePolicy::Local => !has_local,
                FailurePolicy::Open => false,
            };
            refuses && !one.rule.is_shadow() && !one.is_blocked()
        };
        if let Some(one) = charged.iter().find(refuses) {
            return Err(CheckError::store(Some(&one.rule), failure));
        }
        let kind = failure.kind();
        let decided = match has_local {
            true => self.decide_locally(operation, charged, ticket, now),
            false => Ok(Decisions::new()),
        };
        match decided {
            Ok(decisions) => {
                let mut local = decisions.into_iter();
                let decided = charged.iter().map(|one| {
                    let Some(quota) = &one.quota else { return one.decided(BLOCKED, Mode::Exact) };
                    let is_local = one.rule.failure_policy() == FailurePolicy::Local;
                    match if is_local { local.next() } else { None } {
                        Some(decision) => one.decided(patient(decision), Mode::Local),
                        None => one.decided(as_if_full(quota), Mode::Open),
                    }
                });
                Ok(Verdict::new(decided.collect(), Some(kind)))
            }
            Err(error) => Err(CheckError::store(None, error.with_source(failure))),
        }
    }

    /// Applies an operation to what was taken here, and tells whether every enforced rule allowed
    /// it; if there is none, whether every shadow rule did. Where no rule is decided here, nothing
    /// was taken.
    pub(crate) fn apply_locally(
        &self,
        operation: Operation,
        charged: &[Charged],
        ticket: Option<Ticket>,
    ) -> Result<bool, CheckError> {
        let decisions = self.decide_locally(operation, charged, ticket, self.now());
        let decisions = decisions.map_err(|error| CheckError::store(None, error))?;
        let has_enforced = local_rules(charged).any(|one| !one.rule.is_shadow());
        let counts = |one: &Charged| !has_enforced || !one.rule.is_shadow();
        let all =
            local_rules(charged).zip(&decisions).all(|(one, said)| !counts(one) || said.is_allow());
        Ok(all && !decisions.is_empty())
    }

    /// Decides the rules whose policy is `Local`, in their order, and notes what they spend.
    fn decide_locally(
        &self,
        operation: Operation,
        charged: &[Charged],
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let nodes = self.nodes().count();
        let charges =
            || local_rules(charged).filter_map(|one| Some((one, one.whole_charge(ticket)?)));
        let parts: SmallVec<[Quota; 2]> = charges()
            .map(|(one, charge)| one.rule.local_part(charge.quota, nodes))
            .collect::<Result<_, _>>()
            .map_err(|error| StoreError::new(StoreErrorKind::Refused, error.to_string()))?;
        let here: SmallVec<[Charge<'_>; 2]> =
            charges().zip(&parts).map(|((_, charge), quota)| Charge { quota, ..charge }).collect();
        let decisions = self.local_store().decide(operation, &here, now)?;
        if matches!(operation, Operation::Spend | Operation::Reserve { .. }) {
            let admitted =
                here.iter().zip(&decisions).all(|(one, said)| one.shadow || said.is_allow());
            for (((one, charge), part), said) in charges().zip(&parts).zip(&decisions) {
                let spends = said.is_allow() && (admitted || charge.shadow);
                // Slots end by themselves; units would come back only from a bucket.
                if spends && !charge.cost.is_zero() && !one.counts_slots() {
                    let (quota, shadow) = (*charge.quota, charge.shadow);
                    let (part, spent) = (*part, charge.cost.units());
                    let terms = one.sharded.as_ref().map(|sharded| *sharded.terms());
                    let place = terms.map_or(Place::Whole, |terms| Place::Shards(Box::new(terms)));
                    self.debts().add(charge.key, Debt { quota, part, shadow, spent, place });
                }
            }
        }
        Ok(decisions)
    }
}

/// Those whose policy is `Local` and that are not blocked.
fn local_rules(charged: &[Charged]) -> impl Iterator<Item = &Charged> {
    let is_local = |one: &&Charged| one.rule.failure_policy() == FailurePolicy::Local;
    charged.iter().filter(is_local).filter(|one| !one.is_blocked())
}

/// How soon a request may come back that costs more than this node's share of the burst: the store
/// may then be back.
const RETRY_LOCAL: Duration = Duration::from_secs(1);

/// A denial that no time helps here, since the cost is above the share.
fn patient(decision: Decision) -> Decision {
    match decision {
        Decision::Deny(deny) if deny.retry_after.is_zero() => {
            Decision::Deny(Deny { retry_after: RETRY_LOCAL, ..deny })
        }
        said => said,
    }
}

/// The allowance of a rule that lets requests pass: nothing is known of its bucket, so it is
/// reported as full.
const fn as_if_full(quota: &Quota) -> Decision {
    Decision::Allow(Allow {
        limit: quota.burst(),
        remaining: quota.burst(),
        reset_after: Duration::ZERO,
        delay: Duration::ZERO,
    })
}
