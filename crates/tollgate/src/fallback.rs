//! What the rules' failure policies answer when the store cannot (G10).

use std::num::NonZeroU32;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Allow, Charge, Decision, Decisions, FailurePolicy, Operation, Quota, StoreError,
    StoreErrorKind, Ticket, Timestamp,
};
use tollgate_memory::MemoryStore;

use crate::charged::{AllCharged, Charged};
use crate::decide::BLOCKED;
use crate::error::CheckError;
use crate::verdict::{Mode, Verdict};

/// Decides by the policy of each rule: `Closed` refuses the request, `Local` rules decide together
/// in this node's own buckets, or refuse if it has none, `Open` allows.
pub(crate) fn decide(
    local: Option<&MemoryStore>,
    operation: Operation,
    charged: &AllCharged,
    ticket: Option<Ticket>,
    now: Timestamp,
    failure: StoreError,
) -> Result<Verdict, CheckError> {
    let refuses = |one: &&Charged| {
        let refuses = match one.rule.failure_policy() {
            FailurePolicy::Closed => true,
            FailurePolicy::Local => local.is_none(),
            FailurePolicy::Open => false,
        };
        refuses && !one.rule.is_shadow() && !one.is_blocked()
    };
    if let Some(one) = charged.iter().find(refuses) {
        return Err(CheckError::store(Some(&one.rule), failure));
    }
    let kind = failure.kind();
    let decided = match local {
        Some(local) => decide_locally(local, operation, charged, ticket, now),
        None => Ok(Decisions::new()),
    };
    match decided {
        Ok(decisions) => {
            let mut local = decisions.into_iter();
            let decided = charged.iter().map(|one| {
                let Some(quota) = &one.quota else { return one.decided(BLOCKED, Mode::Exact) };
                let is_local = one.rule.failure_policy() == FailurePolicy::Local;
                match if is_local { local.next() } else { None } {
                    Some(decision) => one.decided(decision, Mode::Local),
                    None => one.decided(as_if_full(quota), Mode::Open),
                }
            });
            Ok(Verdict::new(decided.collect(), Some(kind)))
        }
        Err(error) => Err(CheckError::store(None, error.with_source(failure))),
    }
}

/// Applies an operation to what was taken here, and tells whether every enforced rule allowed it.
pub(crate) fn apply(
    local: &MemoryStore,
    operation: Operation,
    charged: &[Charged],
    ticket: Option<Ticket>,
    now: Timestamp,
) -> Result<bool, CheckError> {
    let decisions = decide_locally(local, operation, charged, ticket, now);
    let decisions = decisions.map_err(|error| CheckError::store(None, error))?;
    let mut decided = local_rules(charged).zip(decisions);
    Ok(decided.all(|(one, decision)| one.rule.is_shadow() || decision.is_allow()))
}

/// Those whose policy is `Local` and that are not blocked.
fn local_rules(charged: &[Charged]) -> impl Iterator<Item = &Charged> {
    let is_local = |one: &&Charged| one.rule.failure_policy() == FailurePolicy::Local;
    charged.iter().filter(is_local).filter(|one| !one.is_blocked())
}

/// Decides the rules whose policy is `Local`, in their order.
fn decide_locally(
    local: &MemoryStore,
    operation: Operation,
    charged: &[Charged],
    ticket: Option<Ticket>,
    now: Timestamp,
) -> Result<Decisions, StoreError> {
    let charges = || local_rules(charged).filter_map(|one| Some((one, one.charge(ticket)?)));
    let parts: SmallVec<[Quota; 2]> = charges()
        .map(|(one, charge)| one.rule.local_part(charge.quota, NonZeroU32::MIN))
        .collect::<Result<_, _>>()
        .map_err(|error| StoreError::new(StoreErrorKind::Refused, error.to_string()))?;
    let charges: SmallVec<[Charge<'_>; 2]> =
        charges().zip(&parts).map(|((_, charge), quota)| Charge { quota, ..charge }).collect();
    local.decide(operation, &charges, now)
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
