//! How a limiter is put together.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BreakerSettings, Rule, RuleError, RuleSet};
use tollgate_memory::MemoryStore;

use crate::any_store::AnyStore;
use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;

/// Puts a [`Limiter`] together; see [`Limiter::builder`].
pub struct LimiterBuilder {
    rules: Vec<Rule>,
    store: Option<AnyStore>,
    clock: Arc<dyn Clock>,
    breaker: BreakerSettings,
    store_timeout: Duration,
    nodes: NonZeroU32,
    shard_seed: Option<u64>,
}

/// What a limiter is made of besides its rules.
pub(crate) struct Setup {
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) breaker: BreakerSettings,
    pub(crate) store_timeout: Duration,
    pub(crate) nodes: NonZeroU32,
    /// From what the choice of shards follows, if it should be the same in every run.
    pub(crate) shard_seed: Option<u64>,
}

impl LimiterBuilder {
    pub(crate) fn new() -> Self {
        Self {
            rules: Vec::new(),
            store: None,
            clock: Arc::new(SystemClock),
            breaker: BreakerSettings::default(),
            store_timeout: Duration::from_millis(50),
            nodes: NonZeroU32::MIN,
            shard_seed: None,
        }
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds several rules.
    #[must_use]
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Sets the store. The default is a [`MemoryStore`] of its own, which no other process shares.
    #[must_use]
    pub fn store(mut self, store: impl Into<AnyStore>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Sets the clock. The default is the [`SystemClock`]. A Redis store reads the time of its
    /// server instead, unless its time source is the client.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets when a store that fails is not asked any more, and how often it is then probed. The
    /// default is [`BreakerSettings::default`]. A store in memory is always asked.
    #[must_use]
    pub const fn breaker(mut self, settings: BreakerSettings) -> Self {
        self.breaker = settings;
        self
    }

    /// Sets the longest that an operation of a store of the application's own may take; the default
    /// is 50 ms. It is then dropped, and counts as a timeout. A Redis store has a deadline of its
    /// own.
    ///
    /// The time is measured by the current tokio runtime, which must have a timer; without a
    /// runtime there is no deadline. A store that blocks its thread cannot be interrupted.
    #[must_use]
    pub const fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Sets how many nodes share the budget as long as the store has not told; the default is 1.
    ///
    /// [`LocalShare::Auto`](crate::LocalShare::Auto) divides by the last number that a Redis store
    /// told. This one counts before that, and for stores that tell none.
    #[must_use]
    pub const fn nodes(mut self, nodes: NonZeroU32) -> Self {
        self.nodes = nodes;
        self
    }

    /// Makes the choice of shards the same in every run.
    #[cfg(test)]
    pub(crate) const fn shard_seed(mut self, seed: u64) -> Self {
        self.shard_seed = Some(seed);
        self
    }

    /// Makes the limiter. Inside a tokio runtime it begins to announce itself to the store as one
    /// of the nodes that share the budget, outside of one with the first request.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rules cannot be; see [`RuleSet::new`].
    pub fn build(self) -> Result<Limiter, RuleError> {
        let rules = RuleSet::new(self.rules)?;
        let Self { clock, breaker, store_timeout, nodes, shard_seed, .. } = self;
        let store = self.store.unwrap_or_else(|| MemoryStore::new().into());
        let setup = Setup { store, clock, breaker, store_timeout, nodes, shard_seed };
        Ok(Limiter::new(rules, setup))
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("rules", &self.rules)
            .field("store", &self.store)
            .field("breaker", &self.breaker)
            .field("store_timeout", &self.store_timeout)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
