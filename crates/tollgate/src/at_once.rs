//! Checks that a store in memory decides, which is there and never waits.
//!
//! It is the way of nearly all checks of such a store, and the shortest: nothing is copied of the
//! rules that apply, and all keys are written into one text that each thread keeps.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Attributes, Charge, Cost, Decision, Operation, Quota, Rule, StoreError, Timestamp, Treatment,
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
    /// Decides a check in a store in memory. `None` if the store is another one, or if a rule blocks
    /// the request, cannot tell its cost or never admits it: nothing is decided then.
    pub(crate) fn decide_at_once(
        &self,
        operation: Operation,
        attributes: &Attributes,
        cost: Cost,
    ) -> Option<Result<Verdict, CheckError>> {
        let store = self.store().as_memory()?;
        let rules = self.rules_now();
        let mut keys = Keys::take();
        let mut applying: SmallVec<[Applying<'_>; 4]> = SmallVec::new();
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
        verdict.push(one.decided(decision));
    } else {
        let charges: SmallVec<[Charge<'_>; 4]> =
            applying.iter().map(|one| one.charge(keys)).collect();
        let decisions = store.decide(operation, &charges, now)?;
        for (one, decision) in applying.iter().zip(&decisions) {
            verdict.push(one.decided(*decision));
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
    fn decided(&self, decision: Decision) -> RuleDecision {
        let retryable = self.quota.admits(self.cost);
        let (rule, exception) = (Arc::clone(self.rule), self.exception);
        RuleDecision { rule, exception, decision, mode: Mode::Exact, shard: None, retryable }
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
