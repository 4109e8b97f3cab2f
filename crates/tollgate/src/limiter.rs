//! From a request to a verdict.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tollgate_core::{
    Attributes, Charge, Cost, Decisions, Operation, RuleSet, StoreError, Timestamp,
};
use tollgate_memory::MemoryStore;

use crate::any_store::AnyStore;
use crate::builder::LimiterBuilder;
use crate::charged::{AllCharged, Charged};
use crate::clock::Clock;
use crate::error::CheckError;
use crate::fallback;
use crate::verdict::{Mode, Verdict};

/// Judges requests by rules, and spends their cost in the buckets of a store.
///
/// Clones share rules, store and clock, so a limiter is made once and cloned into every task.
/// See the [crate docs](crate) for an example.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    rules: ArcSwap<RuleSet>,
    store: AnyStore,
    /// Decides for rules whose policy is `Local` while the store cannot answer.
    local: MemoryStore,
    clock: Arc<dyn Clock>,
    store_answers: AtomicBool,
}

impl Limiter {
    /// Starts to put a limiter together.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Quota, Rule};
    ///
    /// let quota = Quota::from_rate("20/min".parse()?)?;
    /// let limiter = Limiter::builder()
    ///     .rule(Rule::new("login-per-ip", quota).with_match("path", ["/login"]).with_key(["ip"]))
    ///     .build()?;
    /// assert_eq!(limiter.rules().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    pub(crate) fn new(rules: RuleSet, store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            rules: ArcSwap::from_pointee(rules),
            store,
            local: MemoryStore::new(),
            clock,
            store_answers: AtomicBool::new(true),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Decides whether a request that costs one unit may go on, and spends the unit if it may.
    ///
    /// Every rule that applies spends, or none does (G7). A denial changes nothing, so a caller
    /// may retry at once without harm (G3).
    ///
    /// # Errors
    ///
    /// [`CheckError`] if the store could not answer and a rule's policy is
    /// [`FailurePolicy::Closed`](crate::FailurePolicy::Closed). A denial is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after the request was sent to a remote store, the unit may have
    /// been spent.
    pub async fn check(&self, attributes: &Attributes) -> Result<Verdict, CheckError> {
        self.check_n(attributes, Cost::ONE).await
    }

    /// Decides whether a request that costs `cost` may go on, and spends the cost if it may.
    ///
    /// A cost of 0 is a [`peek`](Self::peek).
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check), and [`CheckError::is_impossible`] if the cost is above the
    /// burst of an enforced rule that applies.
    ///
    /// # Cancel safety
    ///
    /// As for [`check`](Self::check).
    pub async fn check_n(
        &self,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Verdict, CheckError> {
        self.decide(Operation::Spend, attributes, cost).await
    }

    /// Tells what is left for a request, spends nothing and is never denied.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn peek(&self, attributes: &Attributes) -> Result<Verdict, CheckError> {
        self.peek_n(attributes, Cost::ZERO).await
    }

    /// Tells whether a request that costs `cost` would be allowed now, and spends nothing.
    ///
    /// # Errors
    ///
    /// As for [`check_n`](Self::check_n).
    pub async fn peek_n(&self, attributes: &Attributes, cost: Cost) -> Result<Verdict, CheckError> {
        self.decide(Operation::Look, attributes, cost).await
    }

    /// Gives `cost` back to every bucket that a request is charged to, never beyond its burst.
    ///
    /// The verdict is an allowance that tells the state after the refund.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] if the store could not answer, whatever the policies of
    /// the rules are: they answer checks only.
    ///
    /// # Cancel safety
    ///
    /// As for [`check`](Self::check): the refund may or may not have been made.
    pub async fn refund(&self, attributes: &Attributes, cost: Cost) -> Result<Verdict, CheckError> {
        let charged = self.charged(attributes);
        let now = self.shared.clock.now();
        let decisions = self.apply(Operation::Refund, &charged, cost, now).await;
        let decisions = decisions.map_err(|source| CheckError::store(None, source))?;
        Ok(exact(charged, decisions, cost))
    }

    /// Fills every bucket that a request is charged to.
    ///
    /// The verdict tells the state after the reset. Buckets of other requests stay as they are.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] if the store could not answer; some of the buckets may
    /// have been filled.
    pub async fn reset(&self, attributes: &Attributes) -> Result<Verdict, CheckError> {
        let charged = self.charged(attributes);
        let keys: SmallVec<[&str; 2]> = charged.iter().map(|one| one.key.as_str()).collect();
        self.shared.local.forget(&keys);
        let done = self.shared.store.reset(&keys).await;
        done.map_err(|source| CheckError::store(None, source))?;
        drop(keys);
        let now = self.shared.clock.now();
        let decisions = self.apply(Operation::Look, &charged, Cost::ZERO, now).await;
        let decisions = decisions.map_err(|source| CheckError::store(None, source))?;
        Ok(exact(charged, decisions, Cost::ZERO))
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.shared.rules.load_full()
    }

    /// Puts other rules in force, from the next check on.
    ///
    /// The units in the buckets of a rule that keeps its name and key stay, capped at its new
    /// burst (G11).
    pub fn replace_rules(&self, rules: RuleSet) {
        self.shared.rules.store(Arc::new(rules));
    }

    /// Returns the store.
    pub fn store(&self) -> &AnyStore {
        &self.shared.store
    }

    async fn decide(
        &self,
        operation: Operation,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Verdict, CheckError> {
        let charged = self.charged(attributes);
        if charged.is_empty() {
            return Ok(Verdict::new(SmallVec::new(), None));
        }
        let never =
            charged.iter().find(|one| !one.rule.is_shadow() && !one.rule.quota().admits(cost));
        if let Some(one) = never {
            return Err(CheckError::impossible(Arc::clone(&one.rule), cost));
        }
        let now = self.shared.clock.now();
        match self.apply(operation, &charged, cost, now).await {
            Ok(decisions) => Ok(exact(charged, decisions, cost)),
            Err(error) if error.is_invalid() => Err(CheckError::store(None, error)),
            Err(error) => {
                let local = &self.shared.local;
                fallback::decide(local, operation, charged, cost, now, error)
            }
        }
    }

    fn charged(&self, attributes: &Attributes) -> AllCharged {
        let rules = self.shared.rules.load();
        let charges = rules.charges(attributes);
        charges.map(|(rule, key)| Charged { rule: Arc::clone(rule), key }).collect()
    }

    async fn apply(
        &self,
        operation: Operation,
        charged: &[Charged],
        cost: Cost,
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        if charged.is_empty() {
            return Ok(Decisions::new());
        }
        let charges: SmallVec<[Charge<'_>; 2]> =
            charged.iter().map(|one| one.charge(one.rule.quota(), cost)).collect();
        let answer = self.shared.store.apply(operation, &charges, now).await;
        self.note(answer.as_ref().err());
        answer
    }

    /// Logs when the store stops or starts to answer, never each failure.
    fn note(&self, error: Option<&StoreError>) {
        // Full, corrupt and invalid concern one key, and say nothing about the store as a whole.
        let answers = !error.is_some_and(|error| error.is_timeout() || error.is_unavailable());
        if self.shared.store_answers.load(Ordering::Relaxed) == answers {
            return;
        }
        if self.shared.store_answers.swap(answers, Ordering::Relaxed) == answers {
            return;
        }
        let store = self.shared.store.kind();
        match error {
            Some(error) if !answers => {
                tracing::warn!(store, %error, "store does not answer, rules decide by their policy");
            }
            _ => tracing::info!(store, "store answers again, decisions are exact"),
        }
    }
}

fn exact(charged: AllCharged, decisions: Decisions, cost: Cost) -> Verdict {
    let decided = charged
        .into_iter()
        .zip(decisions)
        .map(|(one, decision)| one.decided(decision, cost, Mode::Exact));
    Verdict::new(decided.collect(), None)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("rules", &self.shared.rules.load().len())
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}
