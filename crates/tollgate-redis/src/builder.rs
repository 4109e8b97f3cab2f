//! How a store is made.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tollgate_core::{MAX_CLOCK_SKEW_DEFAULT, StoreError, key};

use crate::cluster::Cluster;
use crate::coalesce::Coalescer;
use crate::connection::{Connector, Server};
use crate::error;
use crate::store::{Inner, RedisStore};
use crate::target::Target;
use crate::transport::Transport;

/// What the URL of a cluster begins with.
const CLUSTER_SCHEME: &str = "redis+cluster://";

/// A longer deadline could end after the last instant that there is.
const TIMEOUT_MAX: Duration = Duration::from_secs(86_400);

/// Whose clock the buckets go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeSource {
    /// The server's `TIME`, read inside the script: all processes share one clock, and the `now` of
    /// a call is ignored.
    #[default]
    Server,
    /// The `now` of each call. For servers and proxies without `TIME`, and for tests that own the
    /// time; the processes' clocks must then agree to less than the `max_clock_skew`.
    Client,
}

/// Makes a [`RedisStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_redis::RedisStore;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # let _guard = runtime.enter();
/// let store = RedisStore::builder("redis://:secret@127.0.0.1:6379/2")
///     .prefix("shop")
///     .timeout(Duration::from_millis(20))
///     .connect_lazily()?;
/// assert!(!format!("{store:?}").contains("secret"));
///
/// let error = RedisStore::builder("redis://127.0.0.1").prefix("a b").connect_lazily().unwrap_err();
/// assert!(error.is_invalid());
/// # Ok::<(), tollgate_core::StoreError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    time_source: TimeSource,
    timeout: Duration,
    max_clock_skew: Duration,
    coalesces: bool,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            prefix: "tollgate".to_owned(),
            time_source: TimeSource::default(),
            timeout: Duration::from_millis(50),
            max_clock_skew: MAX_CLOCK_SKEW_DEFAULT,
            coalesces: true,
        }
    }

    /// Sets what all keys begin with, before a `:`. It is 1 to 64 letters, digits, `_`, `-` and
    /// `.`; the default is `tollgate`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets whose clock the buckets go by; the default is the server's.
    pub fn time_source(mut self, time_source: TimeSource) -> Self {
        self.time_source = time_source;
        self
    }

    /// Sets the deadline of every operation, waiting for a connection included; the default is
    /// 50 ms, the most a day. Making a connection has its own deadline of 1 s and goes on in the
    /// background.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets how far the clock may go back while a bucket's stored time holds (G4); the default is
    /// [`MAX_CLOCK_SKEW_DEFAULT`]. All processes that share the buckets should use the same.
    pub fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.max_clock_skew = max_clock_skew;
        self
    }

    /// Sets whether checks that arrive while calls are in flight go together in the next one. They
    /// do unless it is turned off; the decisions are those of one by one either way.
    pub fn coalescing(mut self, coalesces: bool) -> Self {
        self.coalesces = coalesces;
        self
    }

    /// Makes the store, connects, loads the script and checks that the server runs it.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as from [`connect_lazily`](Self::connect_lazily); if no connection came about
    /// in two attempts of at most 1 s each, in a cluster with no node; if the server refused the connection's user, or did not
    /// answer within the [`timeout`](Self::timeout) once it was connected.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.build()?;
        let target = &store.inner.transport.target;
        let connected = match target {
            Target::Single(server) => server.link().await.map(|_| ()),
            Target::Cluster(cluster) => cluster.refreshed().await,
        };
        if let Err(cause) = connected {
            return Err(error::not_connected(&target.name(), &cause));
        }
        store.ping().await?;
        Ok(store)
    }

    /// Makes the store at once and connects in the background. Inside a tokio runtime this begins
    /// now, outside of one at the first operation.
    ///
    /// Operations wait for the connection within their deadline and fail as unavailable while there
    /// is none. So a service can start while Redis is down.
    ///
    /// # Errors
    ///
    /// [`StoreError`] with [`is_invalid`](StoreError::is_invalid) if the URL or the prefix cannot
    /// be used.
    pub fn connect_lazily(self) -> Result<RedisStore, StoreError> {
        let store = self.build()?;
        if tokio::runtime::Handle::try_current().is_ok() {
            store.inner.transport.target.connect();
        }
        Ok(store)
    }

    fn build(self) -> Result<RedisStore, StoreError> {
        if !key::is_name(&self.prefix) {
            return Err(StoreError::invalid(format!(
                "key prefix {:?} is not 1 to 64 letters, digits, '_', '-' and '.'",
                self.prefix
            )));
        }
        let target = match self.url.strip_prefix(CLUSTER_SCHEME) {
            Some(rest) => Target::Cluster(Arc::new(cluster(rest)?)),
            None => {
                let connector = Connector::new(&self.url)
                    .map_err(|cause| unusable(&error::cause(&cause), SINGLE_FORM))?;
                Target::Single(Arc::new(Server::new(connector)))
            }
        };
        let transport =
            Transport { target, timeout: self.timeout, script_reloads: AtomicU64::new(0) };
        let inner = Inner {
            transport,
            coalescer: Coalescer::default(),
            coalesces: self.coalesces,
            prefix: self.prefix,
            time_source: self.time_source,
            max_clock_skew: self.max_clock_skew,
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }
}

const SINGLE_FORM: &str = "redis://[user:password@]host[:port][/database]";

const CLUSTER_FORM: &str = "redis+cluster://[user:password@]host[:port][,host[:port]...]";

/// Makes the error of a URL that cannot be used. It is not shown, since what does not parse may hold
/// a password anywhere.
fn unusable(cause: &str, form: &str) -> StoreError {
    StoreError::invalid(format!("the redis URL cannot be used ({cause}): write it as {form}"))
}

/// Reads what follows the scheme in the URL of a cluster.
fn cluster(rest: &str) -> Result<Cluster, StoreError> {
    let (user, hosts) = match rest.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), rest),
    };
    let seeds = hosts
        .strip_suffix('/')
        .unwrap_or(hosts)
        .split(',')
        .map(|host| {
            let seed = Connector::new(&format!("redis://{user}{host}"))
                .map_err(|cause| unusable(&error::cause(&cause), CLUSTER_FORM))?;
            if host.contains('/') || seed.database() != 0 {
                return Err(unusable("a Redis Cluster has one database", CLUSTER_FORM));
            }
            Ok(seed)
        })
        .collect::<Result<Vec<_>, _>>()?;
    Cluster::new(seeds).ok_or_else(|| unusable("it names no node", CLUSTER_FORM))
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("time_source", &self.time_source)
            .field("timeout", &self.timeout)
            .field("max_clock_skew", &self.max_clock_skew)
            .finish_non_exhaustive()
    }
}
