//! Requests whose buckets the caller chooses.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::timeout;
use tollgate_core::{
    Applied, Attributes, Cost, Decision, Deny, FailurePolicy, HotKeys, Operation, Quota, Rule,
    StoreError, StoreErrorKind,
};

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::limiter::Limiter;
use crate::verdict::{Mode, RuleDecision, Verdict};

/// How long a caller must have waited in vain for it to count against the store. A shorter wait tells
/// more of the caller, who would open the breaker for all others.
const PATIENCE_NOTED: Duration = Duration::from_millis(10);

/// One bucket that a request is charged to, for callers who choose the buckets of a request
/// themselves: by rules of their own, or by those in force for several attribute sets at once.
///
/// See [`Limiter::check_parts`].
#[derive(Clone)]
pub struct Part {
    charged: Charged,
    alone: bool,
}

impl Part {
    /// Makes the part of a request that a rule charges `cost`, times what the rule makes of the
    /// attributes.
    ///
    /// The rule need not be in force; the key names the bucket, and the quota of `applied` is the
    /// one that counts.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_invalid`] if an attribute should tell the cost and does not.
    pub fn new(applied: Applied, attributes: &Attributes, cost: Cost) -> Result<Self, CheckError> {
        Ok(Self { charged: Charged::new(applied, attributes, cost)?, alone: false })
    }

    /// Makes the part spend whenever it is itself allowed, whatever the other parts say; and its
    /// denial keeps none of them from spending.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Sets the units that are spent.
    #[must_use]
    pub const fn with_cost(mut self, cost: Cost) -> Self {
        self.charged.cost = cost;
        self
    }

    /// Returns the rule.
    pub fn rule(&self) -> &Rule {
        &self.charged.rule
    }

    /// Returns the key of the bucket.
    pub fn key(&self) -> &str {
        &self.charged.key
    }

    /// Returns the quota of the bucket, or `None` if the rule blocks the request.
    pub const fn quota(&self) -> Option<Quota> {
        self.charged.quota
    }

    /// Returns the units that are spent.
    pub const fn cost(&self) -> Cost {
        self.charged.cost
    }

    fn is_enforced_on_all(&self) -> bool {
        !self.alone && !self.charged.rule.is_shadow()
    }

    /// Whether the cost is above the burst of the quota that there is.
    fn is_impossible(&self) -> bool {
        !self.charged.is_blocked() && !self.charged.is_possible()
    }

    /// The charge that makes the store do what is asked for: a shadow charge spends on its own, and
    /// what can never succeed is only looked at.
    fn to_charged(&self) -> Charged {
        let mut charged = self.charged.clone();
        if self.alone && !charged.rule.is_shadow() {
            charged.rule = Arc::new(in_shadow(&charged.rule));
        }
        if self.is_impossible() {
            charged.cost = Cost::ZERO;
        }
        charged
    }

    fn decided(&self, decided: &RuleDecision) -> RuleDecision {
        let decision = match decided.decision {
            Decision::Allow(allow) if self.is_impossible() => Decision::Deny(Deny {
                limit: allow.limit,
                remaining: allow.remaining,
                reset_after: allow.reset_after,
                retry_after: Duration::ZERO,
            }),
            decision => decision,
        };
        self.charged.decided(decision, decided.mode)
    }
}

/// The rule as the store and the failure policies see one that spends on its own. What else it has
/// may be much, and concerns neither.
fn in_shadow(rule: &Rule) -> Rule {
    Rule::new(rule.name(), *rule.quota())
        .with_domain(rule.domain())
        .with_failure_policy(rule.failure_policy())
        .with_local_share(rule.local_share())
        .with_shadow(true)
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("rule", &self.charged.rule.name())
            .field("key", &self.charged.key)
            .field("quota", &self.charged.quota)
            .field("cost", &self.charged.cost)
            .field("alone", &self.alone)
            .finish()
    }
}

impl Limiter {
    /// Decides a request that is charged to `parts`, and spends if it may go on.
    ///
    /// Every part spends, or none does (G7), but for those that are [alone](Part::alone) and those
    /// of shadow rules. The verdict's rules are those of the parts, in their order. A cost above a
    /// burst is a denial here, which no wait helps, so that a caller with several parts learns of
    /// each.
    ///
    /// `patience` is how long the caller can wait for the store, which has a deadline of its own;
    /// after the shorter of the two the failure policies of the rules decide.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] as for [`check`](Self::check), and
    /// [`CheckError::is_invalid`] if two parts name one bucket, or if there are more than
    /// [`Charge::COUNT_MAX`](crate::Charge::COUNT_MAX).
    ///
    /// # Cancel safety
    ///
    /// As for [`check`](Self::check).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::{Applied, Attributes, Cost, Limiter, ManualClock, Part, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().clock(ManualClock::new()).build()?;
    /// let quota = Quota::from_rate("2/min".parse()?)?;
    /// let rule = Arc::new(Rule::new("per-tenant", quota));
    /// let part = |tenant: &str| {
    ///     let key = format!("shop:per-tenant:{tenant}");
    ///     let applied =
    ///         Applied { rule: Arc::clone(&rule), key, quota: Some(quota), exception: None };
    ///     Part::new(applied, &Attributes::new(), Cost::ONE)
    /// };
    /// let both = [part("a")?, part("b")?];
    /// assert!(limiter.check_parts(&both[..1], None).await?.is_allowed());
    /// assert!(limiter.check_parts(&both, None).await?.is_allowed());
    ///
    /// let denied = limiter.check_parts(&both, None).await?;
    /// assert!(!denied.is_allowed());
    /// assert_eq!(denied.rules()[0].decision().remaining(), 0);
    /// assert_eq!(denied.rules()[1].decision().remaining(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_parts(
        &self,
        parts: &[Part],
        patience: Option<Duration>,
    ) -> Result<Verdict, CheckError> {
        self.judge_parts(Operation::Spend, parts, patience).await
    }

    /// Tells whether a request that is charged to `parts` would be allowed now, and spends nothing.
    ///
    /// # Errors
    ///
    /// As for [`check_parts`](Self::check_parts).
    pub async fn peek_parts(
        &self,
        parts: &[Part],
        patience: Option<Duration>,
    ) -> Result<Verdict, CheckError> {
        self.judge_parts(Operation::Look, parts, patience).await
    }

    /// Gives the costs of `parts` back, never beyond a burst.
    ///
    /// # Errors
    ///
    /// As for [`refund`](Self::refund).
    pub async fn refund_parts(&self, parts: &[Part]) -> Result<Verdict, CheckError> {
        let parts = self.parts_as_kept(parts);
        let charged: AllCharged = parts.iter().map(|part| part.charged.clone()).collect();
        self.apply_exactly(Operation::Refund, &charged, None).await
    }

    /// The parts, as their buckets are kept in this limiter's store.
    fn parts_as_kept<'p>(&self, parts: &'p [Part]) -> Cow<'p, [Part]> {
        let is_exact = |part: &Part| part.charged.rule.hot_keys() == HotKeys::Exact;
        if self.store().answers_at_once() || parts.iter().all(is_exact) {
            return Cow::Borrowed(parts);
        }
        let kept = |part: &Part| Part { charged: self.kept(part.charged.clone()), ..*part };
        parts.iter().map(kept).collect()
    }

    /// Decides by the store, or by the rules' policies if it takes longer than the caller can wait.
    async fn decide_within(
        &self,
        patience: Duration,
        operation: Operation,
        charged: &AllCharged,
    ) -> Result<Verdict, CheckError> {
        if let Ok(decided) = timeout(patience, self.decide(operation, charged, None)).await {
            return decided;
        }
        let late = StoreError::new(
            StoreErrorKind::Timeout,
            format!("the store took longer than the {patience:?} that the caller has"),
        );
        let counts = patience >= PATIENCE_NOTED;
        if counts && self.health().note_failure(self.parts_of(charged), &late) {
            self.keep_probing();
        }
        let decided = self.decide_by_policy(operation, charged, None, self.now(), late);
        decided.map(|verdict| verdict.with_asked(true))
    }

    async fn judge_parts(
        &self,
        operation: Operation,
        parts: &[Part],
        patience: Option<Duration>,
    ) -> Result<Verdict, CheckError> {
        let parts = self.parts_as_kept(parts);
        let is_hopeless = |part: &Part| {
            part.is_enforced_on_all() && (part.charged.is_blocked() || part.is_impossible())
        };
        let mut charged: AllCharged = parts.iter().map(Part::to_charged).collect();
        let mut operation = operation;
        if parts.iter().any(is_hopeless) {
            charged = self.on_some_shards(&charged).into_owned();
            operation = Operation::Look;
        }
        let verdict = match patience.filter(|_| !self.store().answers_at_once()) {
            None => self.decide(operation, &charged, None).await?,
            Some(patience) => Box::pin(self.decide_within(patience, operation, &charged)).await?,
        };
        // What is alone was charged as a shadow rule, which its policy does not concern.
        let is_refused = |(part, decided): &(&Part, &RuleDecision)| {
            part.alone
                && !part.charged.rule.is_shadow()
                && decided.mode == Mode::Open
                && part.charged.rule.failure_policy() != FailurePolicy::Open
        };
        let failure = verdict.store_failure();
        let mut both = parts.iter().zip(verdict.rules());
        if let (Some(kind), Some((part, _))) = (failure, both.find(is_refused)) {
            let source = StoreError::new(kind, "the store gave no answer");
            return Err(CheckError::store(Some(&part.charged.rule), source));
        }
        let rules: SmallVec<[RuleDecision; 2]> = parts
            .iter()
            .zip(verdict.rules())
            .map(|(part, decided)| part.decided(decided))
            .collect();
        Ok(Verdict::new(rules, failure).with_asked(verdict.asked_store()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn part(name: &str, rate: &str, cost: u64) -> Part {
        let quota = Quota::from_rate(rate.parse().unwrap()).unwrap();
        let rule = Arc::new(Rule::new(name, quota));
        let applied = Applied { rule, key: name.to_owned(), quota: Some(quota), exception: None };
        Part::new(applied, &Attributes::new(), Cost::new(cost)).unwrap()
    }

    fn blocked(name: &str) -> Part {
        let mut part = part(name, "1/s", 1);
        part.charged.quota = None;
        part
    }

    async fn remaining(limiter: &Limiter, parts: &[Part]) -> Vec<u32> {
        let peeks: Vec<_> = parts.iter().cloned().map(|part| part.with_cost(Cost::ZERO)).collect();
        let verdict = limiter.peek_parts(&peeks, None).await.unwrap();
        verdict.rules().iter().map(|rule| rule.decision().remaining()).collect()
    }

    #[tokio::test]
    async fn a_cost_above_a_burst_is_a_denial_that_no_wait_helps_and_nothing_is_spent() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build().unwrap();
        let parts = [part("a", "5/min", 1), part("b", "5/min", 6)];
        let verdict = limiter.check_parts(&parts, None).await.unwrap();
        assert!(!verdict.is_allowed());
        assert_eq!(verdict.rule().map(Rule::name), Some("b"));
        assert_eq!(verdict.retry_after(), None);
        assert_eq!(remaining(&limiter, &parts).await, [5, 5]);
    }

    #[tokio::test]
    async fn a_blocked_part_keeps_the_others_from_spending_unless_it_is_alone() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build().unwrap();
        let open = part("a", "5/min", 1);
        let verdict = limiter.check_parts(&[open.clone(), blocked("b")], None).await.unwrap();
        assert!(!verdict.is_allowed());
        assert_eq!(verdict.rules()[0].decision().remaining(), 5);
        let alone = [open.clone(), blocked("b").alone()];
        let verdict = limiter.check_parts(&alone, None).await.unwrap();
        assert!(!verdict.is_allowed());
        assert_eq!(remaining(&limiter, &[open]).await, [4]);
    }

    #[tokio::test]
    async fn parts_that_are_alone_spend_whatever_the_others_say() {
        let limiter = Limiter::builder().clock(ManualClock::new()).build().unwrap();
        let (wide, narrow) = (part("a", "9/min", 1).alone(), part("b", "1/min", 1).alone());
        let both = [wide, narrow];
        for (allowed, left) in [(true, [8, 0]), (false, [7, 0]), (false, [6, 0])] {
            let verdict = limiter.check_parts(&both, None).await.unwrap();
            assert_eq!(verdict.is_allowed(), allowed);
            assert_eq!(remaining(&limiter, &both).await, left);
        }
        let refunded = limiter.refund_parts(&both).await.unwrap();
        assert_eq!(refunded.rules()[0].decision().remaining(), 7);
        assert_eq!(refunded.rules()[1].decision().remaining(), 1);
    }

    /// Never answers.
    struct Silent;

    impl tollgate_core::Store for Silent {
        async fn apply(
            &self,
            _: Operation,
            _: &[tollgate_core::Charge<'_>],
            _: tollgate_core::Timestamp,
        ) -> Result<tollgate_core::Decisions, StoreError> {
            std::future::pending().await
        }

        async fn reset(&self, _: &[&str]) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn with_policy(mut part: Part, policy: FailurePolicy) -> Part {
        let rule = part.charged.rule.as_ref().clone().with_failure_policy(policy);
        part.charged.rule = Arc::new(rule);
        part
    }

    #[tokio::test(start_paused = true)]
    async fn g10_the_policies_decide_when_the_patience_of_the_caller_ends() {
        let limiter = Limiter::builder()
            .store(crate::AnyStore::new(Silent))
            .clock(ManualClock::new())
            .build()
            .unwrap();
        let patience = Some(Duration::from_millis(15));
        let start = tokio::time::Instant::now();
        let local = with_policy(part("a", "2/min", 1), FailurePolicy::Local);
        for allowed in [true, true, false] {
            let verdict =
                limiter.check_parts(std::slice::from_ref(&local), patience).await.unwrap();
            assert_eq!((verdict.is_allowed(), verdict.mode()), (allowed, Mode::Local));
            assert_eq!(verdict.store_failure(), Some(StoreErrorKind::Timeout));
            assert_eq!(limiter.store_failure(), Some(StoreErrorKind::Timeout));
        }
        assert_eq!(start.elapsed(), Duration::from_millis(45));
        let hasty = Limiter::builder().store(crate::AnyStore::new(Silent)).build().unwrap();
        let at_once = Some(Duration::from_millis(1));
        let open = with_policy(part("a", "2/min", 1), FailurePolicy::Open);
        for _ in 0..100 {
            let verdict = hasty.check_parts(std::slice::from_ref(&open), at_once).await.unwrap();
            assert_eq!(verdict.mode(), Mode::Open);
        }
        assert_eq!(hasty.store_failure(), None, "a caller in a hurry tells nothing of the store");
        for (policy, mode) in
            [(FailurePolicy::Open, Some(Mode::Open)), (FailurePolicy::Closed, None)]
        {
            for alone in [false, true] {
                let part = with_policy(part("b", "2/min", 1), policy);
                let part = if alone { part.alone() } else { part };
                let decided = limiter.check_parts(&[part], patience).await;
                let failed = decided.as_ref().is_err_and(CheckError::is_store_failure);
                assert_eq!(failed, mode.is_none());
                assert_eq!(decided.ok().map(|verdict| verdict.mode()), mode);
            }
        }
    }
}
