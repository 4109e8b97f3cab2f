//! Checks that are decided without waiting: by a store in memory, or by a slice that is held of a bucket.
//!
//! It is the way of nearly all such checks, and the shortest: nothing is copied of the rules that
//! apply, and all keys are written into one text that each thread keeps.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Attributes, Charge, Cost, Decision, HotKeys, Operation, Quota, Rule, RuleSet, StoreError,
    Timestamp, Treatment,
};
use tollgate_memory::MemoryStore;

use crate::charged::{AllCharged, Charged};
use crate::decide::Unanswered;
use crate::error::CheckError;
use crate::limiter::Limiter;
use crate::store_parts::StoreParts;
use crate::verdict::{Mode, RuleDecision, Verdict};

/// The largest text for keys that a thread keeps, in bytes: that of requests which few rules apply to.
const KEPT_MAX: usize = 4_096;

thread_local! {
    static KEPT: Cell<String> = const { Cell::new(String::new()) };
}

/// A rule that applies to a request and does not block it.
struct Applying<'r> {
    rule: &'r Arc<Rule>,
    exception: Option<usize>,
    quota: &'r Quota,
    cost: Cost,
    factor: u64,
    /// Where the key of its bucket is in the text of all keys.
    key: Range<usize>,
}

/// All that apply to one request, coarse to fine.
type AllApplying<'r> = SmallVec<[Applying<'r>; 4]>;

/// The keys of one request, in the text that its thread keeps.
struct Keys(String);

impl Keys {
    fn take() -> Self {
        Self(KEPT.try_with(Cell::take).unwrap_or_default())
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT_MAX {
            self.0.clear();
            let text = std::mem::take(&mut self.0);
            // A thread that ends keeps none.
            let _ = KEPT.try_with(|kept| kept.set(text));
        }
    }
}

impl Limiter {
    /// Decides a check in a store in memory, or by a slice. `None` if the store is another one and there is
    /// no slice that has the cost, or if a rule blocks the request, cannot tell its cost or never admits it:
    /// nothing is decided then.
    pub(crate) fn decide_at_once(
        &self,
        operation: Operation,
        attributes: &Attributes,
        cost: Cost,
    ) -> Option<Result<Verdict, CheckError>> {
        let Some(store) = self.store().as_memory() else {
            return self.decide_by_slice(operation, attributes, cost).map(Ok);
        };
        let rules = self.rules_now();
        let mut keys = Keys::take();
        let mut applying = AllApplying::new();
        find_applying(&rules, attributes, cost, &mut keys, &mut applying)?;
        let mut verdict = Verdict::of_none();
        if applying.is_empty() {
            return Some(Ok(verdict));
        }
        let now = self.now();
        match ask(store, operation, (&keys.0, &applying), now, &mut verdict) {
            Ok(()) => Some(Ok(verdict.with_asked(true))),
            Err(error) => Some(self.not_answered(operation, (&keys.0, &applying), now, error)),
        }
    }

    /// Decides a check that one rule applies to by the slice that is held of its bucket.
    fn decide_by_slice(
        &self,
        operation: Operation,
        attributes: &Attributes,
        cost: Cost,
    ) -> Option<Verdict> {
        let rules = self.rules_now();
        let is_leased = |rule: &Arc<Rule>| rule.hot_keys() == HotKeys::Lease && !rule.is_shadow();
        // Where no rule leases, nothing is looked at twice.
        if operation != Operation::Spend
            || !rules.of_domain(attributes.domain()).iter().any(is_leased)
        {
            return None;
        }
        let mut keys = Keys::take();
        let mut applying = AllApplying::new();
        find_applying(&rules, attributes, cost, &mut keys, &mut applying)?;
        let [one] = &applying[..] else { return None };
        if !is_leased(one.rule) || one.cost.is_zero() {
            return None;
        }
        let key = &keys.0[one.key.clone()];
        let (allow, debit) = self.slices().take_held(key, one.quota, one.cost, Instant::now())?;
        if let Some((units, terms)) = debit {
            let (quota, lease) = (Some(*terms.quota()), Some(Box::new(terms)));
            self.debit(Charged { quota, lease, ..one.charged(&keys.0) }, units);
        }
        let mut verdict = Verdict::of_none();
        verdict.push(one.decided(Decision::Allow(allow), Mode::Lease));
        verdict.bind();
        Some(verdict)
    }

    /// Decides what the store in memory has no answer to.
    #[cold]
    fn not_answered(
        &self,
        operation: Operation,
        (keys, applying): (&str, &[Applying<'_>]),
        now: Timestamp,
        error: StoreError,
    ) -> Result<Verdict, CheckError> {
        self.health().note_failure(StoreParts::one(0), &error);
        let charged: AllCharged = applying.iter().map(|one| one.charged(keys)).collect();
        let unanswered = Unanswered { error, asked: true };
        self.decide_unanswered(operation, &charged, None, now, unanswered)
    }
}

/// Finds the rules that apply, and writes their keys. `None` if one blocks the request, cannot tell its cost
/// or never admits it.
#[inline(always)]
fn find_applying<'r>(
    rules: &'r RuleSet,
    attributes: &Attributes,
    cost: Cost,
    keys: &mut Keys,
    applying: &mut AllApplying<'r>,
) -> Option<()> {
    for rule in rules.of_domain(attributes.domain()) {
        if !rule.matcher().matches(attributes) {
            continue;
        }
        let exception = rule.exception(attributes);
        let treatment = exception.and_then(|index| rule.exceptions().get(index));
        let quota = match treatment.map(|one| &one.treatment) {
            None => rule.quota(),
            Some(Treatment::Quota(quota)) => quota,
            Some(Treatment::Unlimited) => continue,
            Some(_) => return None,
        };
        let start = keys.0.len();
        if !rule.push_bucket_key(&mut keys.0, attributes, quota) {
            continue;
        }
        let factor = rule.cost().cost(attributes, Cost::ONE).ok()?.units();
        let cost = Cost::new(cost.units().saturating_mul(factor));
        if !quota.admits(cost) && !rule.is_shadow() {
            return None;
        }
        let key = start..keys.0.len();
        applying.push(Applying { rule, exception, quota, cost, factor, key });
    }
    Some(())
}

/// Puts what the store says to each of the rules into a verdict.
#[inline(always)]
fn ask(
    store: &MemoryStore,
    operation: Operation,
    (keys, applying): (&str, &[Applying<'_>]),
    now: Timestamp,
    verdict: &mut Verdict,
) -> Result<(), StoreError> {
    if let [one] = applying {
        let decision = store.decide_one(operation, &one.charge(keys), now)?;
        verdict.push(one.decided(decision, Mode::Exact));
    } else {
        let charges: SmallVec<[Charge<'_>; 4]> =
            applying.iter().map(|one| one.charge(keys)).collect();
        let decisions = store.decide(operation, &charges, now)?;
        for (one, decision) in applying.iter().zip(&decisions) {
            verdict.push(one.decided(*decision, Mode::Exact));
        }
    }
    verdict.bind();
    Ok(())
}

impl Applying<'_> {
    #[inline]
    fn charge<'c>(&'c self, keys: &'c str) -> Charge<'c> {
        let charge = Charge::new(&keys[self.key.clone()], self.quota, self.cost);
        charge.with_shadow(self.rule.is_shadow())
    }

    #[inline]
    fn decided(&self, decision: Decision, mode: Mode) -> RuleDecision {
        let retryable = self.quota.admits(self.cost);
        let (rule, exception) = (Arc::clone(self.rule), self.exception);
        RuleDecision { rule, exception, decision, mode, shard: None, retryable }
    }

    fn charged(&self, keys: &str) -> Charged {
        let (cost, factor) = (self.cost, self.factor);
        let (rule, quota) = (Arc::clone(self.rule), Some(*self.quota));
        let (key, exception) = (keys[self.key.clone()].to_owned(), self.exception);
        Charged { rule, key, quota, exception, cost, factor, sharded: None, lease: None }
    }
}

#[cfg(test)]
mod tests;
