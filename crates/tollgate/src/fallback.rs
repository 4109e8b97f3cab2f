//! What the rules' failure policies answer when the store cannot (G10).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Allow, Cost, Decision, FailurePolicy, Operation, Quota, StoreError, StoreErrorKind, Timestamp,
};
use tollgate_memory::MemoryStore;

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::verdict::{Mode, Verdict};

/// Decides by the policy of each rule: `Closed` refuses the request, `Local` rules decide together
/// in this node's own buckets, `Open` allows.
pub(crate) fn decide(
    local: &MemoryStore,
    operation: Operation,
    charged: AllCharged,
    cost: Cost,
    now: Timestamp,
    failure: StoreError,
) -> Result<Verdict, CheckError> {
    let refuses = |one: &&Charged| {
        one.rule.failure_policy() == FailurePolicy::Closed && !one.rule.is_shadow()
    };
    if let Some(one) = charged.iter().find(refuses) {
        return Err(CheckError::store(Some(Arc::clone(&one.rule)), failure));
    }
    let kind = failure.kind();
    match decide_locally(local, operation, &charged, cost, now) {
        Ok(mut local) => {
            let decided = charged.into_iter().map(|one| {
                let (decision, mode) = match one.rule.failure_policy() {
                    FailurePolicy::Local => (local.next(), Mode::Local),
                    FailurePolicy::Open | FailurePolicy::Closed => (None, Mode::Open),
                };
                let decision = decision.unwrap_or_else(|| as_if_full(one.rule.quota()));
                one.decided(decision, cost, mode)
            });
            Ok(Verdict::new(decided.collect(), Some(kind)))
        }
        Err(error) => Err(CheckError::store(None, error.with_source(failure))),
    }
}

/// Decides the rules whose policy is `Local`, in their order.
fn decide_locally(
    local: &MemoryStore,
    operation: Operation,
    charged: &[Charged],
    cost: Cost,
    now: Timestamp,
) -> Result<impl Iterator<Item = Decision> + use<>, StoreError> {
    let local_rules =
        || charged.iter().filter(|one| one.rule.failure_policy() == FailurePolicy::Local);
    let quotas: SmallVec<[Quota; 2]> = local_rules()
        .map(|one| one.rule.local_quota(NonZeroU32::MIN))
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error.to_string()))?;
    let charges: SmallVec<[_; 2]> =
        local_rules().zip(&quotas).map(|(one, quota)| one.charge(quota, cost)).collect();
    Ok(local.decide(operation, &charges, now)?.into_iter())
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
