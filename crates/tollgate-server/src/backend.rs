//! The store as configured, and what can be asked of it apart from decisions.

use std::sync::Arc;

use tollgate::{Limiter, MemoryStore, RedisStore, RuleError, StoreError};
use tollgate_config::{Config, StoreConfig};

/// The store of a service, of a known kind.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Memory(Arc<MemoryStore>),
    Redis(Arc<RedisStore>),
    /// That of a limiter which the application made itself.
    Custom,
}

impl Backend {
    /// Makes the store. A Redis server need not be there yet.
    pub(crate) fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        Ok(match config {
            StoreConfig::Memory { keys_max } => {
                Self::Memory(Arc::new(MemoryStore::builder().keys_max(*keys_max).build()))
            }
            StoreConfig::Redis { url, timeout, prefix, time_source, .. } => {
                let time_source = match time_source {
                    tollgate_config::TimeSource::Server => tollgate::TimeSource::Server,
                    tollgate_config::TimeSource::Client => tollgate::TimeSource::Client,
                };
                let store = RedisStore::builder(url.as_str())
                    .timeout(*timeout)
                    .prefix(prefix)
                    .time_source(time_source)
                    .connect_lazily()?;
                Self::Redis(Arc::new(store))
            }
        })
    }

    /// Makes a limiter on this store.
    pub(crate) fn limiter(&self, config: &Config) -> Result<Limiter, RuleError> {
        let limiter = match &config.store {
            StoreConfig::Redis { breaker, .. } => Limiter::builder().breaker(*breaker),
            StoreConfig::Memory { .. } => Limiter::builder(),
        };
        let limiter = match self {
            Self::Memory(store) => limiter.store(Arc::clone(store)),
            Self::Redis(store) => limiter.store(Arc::clone(store)),
            Self::Custom => limiter,
        };
        let limiter = limiter.build()?;
        // The set has been made, so that its shadow limits are rules of it already.
        limiter.replace_rules(config.rules.clone());
        Ok(limiter)
    }

    pub(crate) fn memory(&self) -> Option<Arc<MemoryStore>> {
        match self {
            Self::Memory(store) => Some(Arc::clone(store)),
            Self::Redis(_) | Self::Custom => None,
        }
    }

    /// Asks whether the store answers, within its deadline.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Self::Redis(store) => store.ping().await,
            Self::Memory(_) | Self::Custom => Ok(()),
        }
    }
}
