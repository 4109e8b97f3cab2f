//! How a limiter is put together.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Rule, RuleError, RuleSet};
use tollgate_memory::MemoryStore;

use crate::any_store::AnyStore;
use crate::clock::{Clock, SystemClock};
use crate::limiter::Limiter;

/// Puts a [`Limiter`] together; see [`Limiter::builder`].
pub struct LimiterBuilder {
    rules: Vec<Rule>,
    store: Option<AnyStore>,
    clock: Arc<dyn Clock>,
}

impl LimiterBuilder {
    pub(crate) fn new() -> Self {
        Self { rules: Vec::new(), store: None, clock: Arc::new(SystemClock) }
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

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rules cannot be; see [`RuleSet::new`].
    pub fn build(self) -> Result<Limiter, RuleError> {
        let rules = RuleSet::new(self.rules)?;
        let store = self.store.unwrap_or_else(|| MemoryStore::new().into());
        Ok(Limiter::new(rules, store, self.clock))
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("rules", &self.rules)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
