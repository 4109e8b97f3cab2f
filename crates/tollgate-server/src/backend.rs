//! The store as configured, and what can be asked of it apart from decisions.

use std::sync::Arc;

use tollgate::{Limiter, MemoryStore, RedisStore, RedisStoreBuilder, RuleError, StoreError, Tls};
use tollgate_config::{Config, RedisConfig, RedisServers, StoreConfig};

use crate::redis_access::Shown;

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
            StoreConfig::Memory { keys_max } => Self::in_memory(*keys_max),
            StoreConfig::Redis(redis) => Self::Redis(Arc::new(builder(redis)?.connect_lazily()?)),
        })
    }

    /// Makes the store, and connects to the Redis servers if it is there.
    pub(crate) async fn connect(config: &StoreConfig) -> Result<Self, StoreError> {
        Ok(match config {
            StoreConfig::Memory { keys_max } => Self::in_memory(*keys_max),
            StoreConfig::Redis(redis) => Self::Redis(Arc::new(builder(redis)?.connect().await?)),
        })
    }

    fn in_memory(keys_max: usize) -> Self {
        Self::Memory(Arc::new(MemoryStore::builder().keys_max(keys_max).build()))
    }

    /// Makes a limiter on this store.
    pub(crate) fn limiter(&self, config: &Config) -> Result<Limiter, RuleError> {
        let limiter = match &config.store {
            StoreConfig::Redis(redis) => Limiter::builder().breaker(redis.breaker),
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

fn builder(config: &RedisConfig) -> Result<RedisStoreBuilder, StoreError> {
    let strings = |urls: &[tollgate_config::RedisUrl]| -> Vec<String> {
        urls.iter().map(|url| url.as_str().to_owned()).collect()
    };
    let mut builder = match &config.servers {
        RedisServers::Single(url) => RedisStore::builder(url.as_str()),
        RedisServers::Cluster(urls) => RedisStore::cluster(strings(urls)),
        RedisServers::Sentinel { urls, master_name } => {
            RedisStore::sentinel(strings(urls), master_name)
        }
    };
    let access = &config.access;
    let shown = Shown::read(access, "store").map_err(StoreError::invalid)?;
    if let Some(username) = &access.username {
        builder = builder.user(username);
    }
    if let Some(password) = &shown.password {
        builder = builder.password(password);
    }
    if let Some(database) = access.database {
        builder = builder.database(database);
    }
    if shown.ca.is_some() || shown.identity.is_some() {
        let mut tls = Tls::new();
        if let Some(ca) = shown.ca {
            tls = tls.ca(ca);
        }
        if let Some((certificate, key)) = shown.identity {
            tls = tls.identity(certificate, key);
        }
        builder = builder.tls(tls);
    }
    Ok(builder
        .functions(config.functions)
        .connections(config.connections)
        .in_flight_max(config.in_flight_max)
        .timeout(config.timeout)
        .prefix(&config.prefix)
        .time_source(match config.time_source {
            tollgate_config::TimeSource::Server => tollgate::TimeSource::Server,
            tollgate_config::TimeSource::Client => tollgate::TimeSource::Client,
        }))
}
