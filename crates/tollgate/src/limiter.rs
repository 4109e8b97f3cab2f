//! From a request to a verdict.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;
use tollgate_core::{Attributes, Cost, Operation, RuleSet, StoreErrorKind, Ticket, Timestamp};
use tollgate_memory::MemoryStore;

use crate::any_store::AnyStore;
use crate::background::Background;
use crate::builder::{LimiterBuilder, Setup};
use crate::charged::{AllCharged, Charged};
use crate::debts::Debts;
use crate::denials::Denials;
use crate::error::CheckError;
use crate::health::Health;
use crate::hold::draw_ticket;
use crate::line::Lines;
use crate::nodes::Nodes;
use crate::recovery::{Tasks, WeakLimiter};
use crate::sharded::Chooser;
use crate::slices::Slices;
use crate::verdict::Verdict;

/// Judges requests by rules, and spends their cost in the buckets of a store.
///
/// Clones share rules, store and clock, so a limiter is made once and cloned into every task.
/// See the [crate docs](crate) for an example.
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    rules: ArcSwap<RuleSet>,
    setup: Setup,
    /// Decides for rules whose policy is `Local` while the store cannot answer.
    local: MemoryStore,
    debts: Debts,
    health: Health,
    nodes: Nodes,
    /// By which the nodes that share a store tell each other apart.
    id: String,
    lines: Lines,
    /// What the store denies for a while yet.
    denials: Denials,
    slices: Slices,
    chooser: Chooser,
    background: Background,
    pub(crate) tasks: Tasks,
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

    pub(crate) fn new(rules: RuleSet, setup: Setup) -> Self {
        let shared = Shared {
            rules: ArcSwap::from_pointee(rules),
            local: MemoryStore::new(),
            debts: Debts::default(),
            health: Health::new(setup.store.kind(), setup.store.parts_count(), setup.breaker),
            nodes: Nodes::new(setup.nodes),
            id: draw_ticket().to_string(),
            chooser: Chooser::new(setup.shard_seed),
            setup,
            lines: Lines::default(),
            denials: Denials::default(),
            slices: Slices::default(),
            background: Background::default(),
            tasks: Tasks::default(),
        };
        let limiter = Self { shared: Arc::new(shared) };
        limiter.keep_announcing();
        limiter
    }

    pub(crate) const fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
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
        // As check_n, whose future would only be moved once more.
        if let Some(said) = self.decide_at_once(Operation::Spend, attributes, Cost::ONE) {
            return said;
        }
        let charged = self.charged(attributes, Cost::ONE)?;
        self.decide(Operation::Spend, &charged, None).await
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
        if let Some(said) = self.decide_at_once(Operation::Spend, attributes, cost) {
            return said;
        }
        let charged = self.charged(attributes, cost)?;
        self.decide(Operation::Spend, &charged, None).await
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
        if let Some(said) = self.decide_at_once(Operation::Look, attributes, cost) {
            return said;
        }
        let charged = self.charged(attributes, cost)?;
        self.decide(Operation::Look, &charged, None).await
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
        let charged = self.charged(attributes, cost)?;
        self.apply_exactly(Operation::Refund, &charged, None).await
    }

    /// Gives `cost` back as [`refund`](Self::refund) does, once for all calls with the same `id`.
    ///
    /// A repeated call changes nothing and tells the state. The id is remembered for ten minutes,
    /// or until everything that was spent before has stopped to count if that is longer, but for
    /// at most a day. It concerns the buckets of this request only.
    ///
    /// # Errors
    ///
    /// As for [`refund`](Self::refund).
    pub async fn refund_once(
        &self,
        attributes: &Attributes,
        cost: Cost,
        id: &str,
    ) -> Result<Verdict, CheckError> {
        let charged = self.charged(attributes, cost)?;
        self.apply_exactly(Operation::Refund, &charged, Some(Ticket::of(id))).await
    }

    /// Fills every bucket that a request is charged to.
    ///
    /// The verdict tells the state after the reset. Buckets of other requests stay as they are, and
    /// so do reservations: those from before the reset can still be settled.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] if the store could not answer; some of the buckets may
    /// have been filled.
    pub async fn reset(&self, attributes: &Attributes) -> Result<Verdict, CheckError> {
        let charged = self.charged(attributes, Cost::ZERO)?;
        self.forget(&charged).await?;
        self.apply_exactly(Operation::Look, &charged, None).await
    }

    /// Gives back the slices of buckets that are leased, and waits until nothing is being given back
    /// in the background any more: the slots of dropped permits, and what was taken for callers who
    /// went away.
    ///
    /// For a process that ends, which would take that work with it. It waits as long as the store
    /// may take to answer; bound it by a timeout.
    pub async fn given_back(&self) {
        self.return_slices().await;
        self.shared.background.ended().await;
        // Of those that were being debited.
        self.return_slices().await;
    }

    async fn forget(&self, charged: &AllCharged) -> Result<(), CheckError> {
        let local: SmallVec<[&str; 2]> = charged.iter().map(|one| one.key.as_str()).collect();
        self.shared.local.forget(&local);
        let keys: SmallVec<[String; 2]> = charged.iter().flat_map(Charged::keys_in_store).collect();
        let keys: SmallVec<[&str; 2]> = keys.iter().map(String::as_str).collect();
        let forgets = Forgets { limiter: self, keys: &keys };
        forgets.forget();
        let asked = keys.iter().map(|key| self.store().part_of(key)).collect();
        let done = match self.is_asked(asked) {
            true => self.store().reset(&keys, self.deadline()).await,
            false => Err(self.health().not_asked()),
        };
        done.map_err(|source| CheckError::store(None, source))
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
        self.shared.denials.clear();
    }

    /// Returns how the store fails, if it did not answer when it was last asked, or refuses to write.
    /// Failures that concern single keys only are not told here.
    pub fn store_failure(&self) -> Option<StoreErrorKind> {
        self.shared.health.failure()
    }

    /// Returns the store.
    pub fn store(&self) -> &AnyStore {
        &self.shared.setup.store
    }

    pub(crate) fn charged(
        &self,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<AllCharged, CheckError> {
        let rules = self.rules_now();
        let mut charged = AllCharged::new();
        for applied in rules.charges(attributes) {
            charged.push(Charged::new(applied, attributes, cost)?);
            if let Some(one) = charged.last_mut() {
                self.keep(one);
            }
        }
        Ok(charged)
    }

    /// The rules in force, for the time of one look at them.
    #[inline]
    pub(crate) fn rules_now(&self) -> Guard<Arc<RuleSet>> {
        self.shared.rules.load()
    }

    /// What is charged, as the bucket is kept in this limiter's store.
    pub(crate) fn kept(&self, mut charged: Charged) -> Charged {
        self.keep(&mut charged);
        charged
    }

    /// Has a bucket charged as it is kept in this limiter's store.
    fn keep(&self, charged: &mut Charged) {
        if !self.store().answers_at_once() {
            charged.keep_in_remote_store();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.setup.clock.now()
    }

    /// Returns the number of this node's own buckets, which decide for rules whose policy is
    /// [`FailurePolicy::Local`](crate::FailurePolicy::Local) while the store cannot answer. They are
    /// at most 1,000,000.
    pub fn local_keys(&self) -> usize {
        self.shared.local.len()
    }

    /// The buckets that decide for rules whose policy is `Local` while the store cannot answer.
    pub(crate) fn local_store(&self) -> &MemoryStore {
        &self.shared.local
    }

    /// Returns the units of leased slices that this node holds and has not spent.
    pub fn leased_units(&self) -> u64 {
        self.shared.slices.units()
    }

    pub(crate) fn slices(&self) -> &Slices {
        &self.shared.slices
    }

    pub(crate) fn chooser(&self) -> &Chooser {
        &self.shared.chooser
    }

    pub(crate) fn denials(&self) -> &Denials {
        &self.shared.denials
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.shared.lines
    }

    pub(crate) fn background(&self) -> &Background {
        &self.shared.background
    }

    pub(crate) fn health(&self) -> &Health {
        &self.shared.health
    }

    pub(crate) fn debts(&self) -> &Debts {
        &self.shared.debts
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.shared.nodes
    }

    pub(crate) fn id(&self) -> &str {
        &self.shared.id
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    /// The longest that an operation of a store without a deadline of its own may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.setup.store_timeout
    }

    pub(crate) fn downgrade(&self) -> WeakLimiter {
        WeakLimiter(Arc::downgrade(&self.shared))
    }
}

/// Forgets what this node knows of buckets that are being reset, also when that is over or given
/// up: what was learned meanwhile may be from before the reset.
struct Forgets<'a> {
    limiter: &'a Limiter,
    keys: &'a [&'a str],
}

impl Forgets<'_> {
    fn forget(&self) {
        for key in self.keys {
            self.limiter.denials().forget(key);
            self.limiter.slices().forget(key);
        }
    }
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("rules", &self.shared.rules.load().len())
            .field("store", self.store())
            .finish_non_exhaustive()
    }
}
