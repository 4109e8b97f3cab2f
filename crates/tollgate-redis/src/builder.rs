//! How a store is made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;
use tollgate_core::{MAX_CLOCK_SKEW_DEFAULT, StoreError, key};

use crate::cluster::Cluster;
use crate::coalesce::Coalescer;
use crate::connection::{Connector, Settings};
use crate::error;
use crate::script::Script;
use crate::script_time::Statistics;
use crate::sentinel::Sentinel;
use crate::server::Server;
use crate::status::Counters;
use crate::store::{Inner, RedisStore};
use crate::stream::Endpoint;
use crate::target::Target;
use crate::tls::{Tls, TlsClient};
use crate::transport::Transport;
use crate::url::{Named, Place};

/// The most connections to one server.
const CONNECTIONS_MAX: usize = 4;

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
    servers: Servers,
    user: Option<String>,
    password: Option<String>,
    database: Option<i64>,
    tls: Option<Tls>,
    functions: bool,
    connections: usize,
    in_flight_max: usize,
    prefix: String,
    time_source: TimeSource,
    timeout: Duration,
    max_clock_skew: Duration,
    coalesces: bool,
}

/// How the user names the servers.
#[derive(Clone)]
pub(crate) enum Servers {
    Url(String),
    Cluster(Vec<String>),
    Sentinel { urls: Vec<String>, master: String },
}

impl RedisStoreBuilder {
    pub(crate) fn new(servers: Servers) -> Self {
        Self {
            servers,
            user: None,
            password: None,
            database: None,
            tls: None,
            functions: false,
            connections: 1,
            in_flight_max: 10_000,
            prefix: "tollgate".to_owned(),
            time_source: TimeSource::default(),
            timeout: Duration::from_millis(50),
            max_clock_skew: MAX_CLOCK_SKEW_DEFAULT,
            coalesces: true,
        }
    }

    /// Sets the user of the servers, in the place of the URL's. It is for Redis, not for the
    /// sentinels, whose users are in their URLs.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password for the servers, in the place of the URL's. It is shown nowhere.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Sets the number of the database, in the place of the URL's; the default is 0. A Redis Cluster
    /// has no other.
    pub fn database(mut self, database: u32) -> Self {
        self.database = Some(database.into());
        self
    }

    /// Sets the certificates for TLS, which the URLs ask for by `rediss://`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets whether the script is kept as a function, which Redis has since 7.0; the default is not.
    ///
    /// A library is replicated and kept with the data, so a replica that takes over knows it, and it
    /// can be seen by `FUNCTION LIST`. A server that is too old runs the script as ever. One that is
    /// out of memory refuses a function before it begins, denials and looks included.
    pub fn functions(mut self, functions: bool) -> Self {
        self.functions = functions;
        self
    }

    /// Sets how many connections there are to each server, 1 to 4; the default is 1. Any number of
    /// calls share one; more are for processes that fill one core with a connection.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, CONNECTIONS_MAX);
        self
    }

    /// Sets how many calls may be under way at once, at least 1; the default is 10,000. Further ones
    /// fail at once as unavailable, so that a slow server does not gather calls without end.
    pub fn in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.in_flight_max = in_flight_max.max(1);
        self
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
        if let Err(cause) = target.connected().await {
            return Err(error::not_connected(&target.name(), &cause));
        }
        store.ping().await?;
        Ok(store)
    }

    /// Makes the store at once and connects in the background. Inside a tokio runtime this begins
    /// now, outside of one at the first operation.
    ///
    /// Operations wait within their deadline for the first attempt to connect, and fail at once as
    /// unavailable when that has failed, until there is a connection. Attempts go on in the background,
    /// with pauses of up to half a second. So a service can start while Redis is down.
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
        let script = Arc::new(Script::new());
        let counters = Arc::new(Counters::new());
        let target = self.target(&script, &counters)?;
        let transport = Transport { target, timeout: self.timeout, script, counters };
        let inner = Inner {
            transport,
            coalescer: Coalescer::default(),
            coalesces: self.coalesces,
            in_flight_max: self.in_flight_max,
            prefix: self.prefix,
            time_source: self.time_source,
            max_clock_skew: self.max_clock_skew,
            statistics: Statistics::default(),
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }

    fn target(&self, script: &Arc<Script>, counters: &Arc<Counters>) -> Result<Target, StoreError> {
        let place = match &self.servers {
            Servers::Url(url) => Place::parse(url)?,
            Servers::Cluster(urls) => Place::Cluster(named(urls)?),
            Servers::Sentinel { urls, master } => Place::Sentinel {
                sentinels: named(urls)?,
                master: master.clone(),
                login: RedisConnectionInfo::default(),
            },
        };
        let settings = |login, tls: Option<&TlsClient>, for_calls: bool| {
            Arc::new(Settings {
                login,
                tls: tls.cloned(),
                functions: self.functions,
                connections: if for_calls { self.connections } else { 1 },
                patience: self.timeout,
                script: for_calls.then(|| Arc::clone(script)),
                counters: Arc::clone(counters),
            })
        };
        match place {
            Place::Single(Named { endpoint, is_tls, login }) => {
                let tls = self.tls_client(&[is_tls])?;
                let settings = settings(self.login(login), tls.as_ref(), true);
                Ok(Target::Single(Arc::new(Server::new(Connector { endpoint, settings }))))
            }
            Place::Cluster(seeds) => {
                let tls = self.tls_client(&tls_of(&seeds))?;
                let seed = |Named { endpoint, login, .. }| {
                    let login = self.login(login);
                    if matches!(endpoint, Endpoint::Unix(_)) || login.db() != 0 {
                        return Err(StoreError::invalid(
                            "a Redis Cluster is reached by TCP and has one database: give hosts \
                             and ports only",
                        ));
                    }
                    Ok(Connector { endpoint, settings: settings(login, tls.as_ref(), true) })
                };
                let seeds = seeds.into_iter().map(seed).collect::<Result<Vec<_>, _>>()?;
                Ok(Target::Cluster(Arc::new(Cluster::new(seeds))))
            }
            Place::Sentinel { sentinels, master, login } => {
                let tls = self.tls_client(&tls_of(&sentinels))?;
                let primary = Connector {
                    // Where it is, the sentinels say.
                    endpoint: sentinels[0].endpoint.clone(),
                    settings: settings(self.login(login), tls.as_ref(), true),
                };
                let sentinel = |Named { endpoint, login, .. }| {
                    // Sentinels have no databases.
                    let login = login.set_db(0);
                    Connector { endpoint, settings: settings(login, tls.as_ref(), false) }
                };
                let sentinels = sentinels.into_iter().map(sentinel).collect();
                Ok(Target::Sentinel(Arc::new(Sentinel::new(master, sentinels, primary))))
            }
        }
    }

    /// Puts what was set in the place of what the URL says.
    fn login(&self, mut login: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        match self.database {
            Some(database) => login.set_db(database),
            None => login,
        }
    }

    /// Makes what TLS needs, if the URLs ask for it.
    fn tls_client(&self, is_tls: &[bool]) -> Result<Option<TlsClient>, StoreError> {
        match (is_tls.contains(&true), is_tls.contains(&false), &self.tls) {
            (true, true, _) => Err(StoreError::invalid(
                "some of the redis URLs are rediss:// and some are not: write all with TLS, or none",
            )),
            (true, false, given) => given.clone().unwrap_or_default().client().map(Some),
            (false, _, None) => Ok(None),
            (false, _, Some(_)) => Err(StoreError::invalid(
                "certificates for TLS are given, but the redis URL does not ask for TLS: write \
                 rediss://",
            )),
        }
    }
}

fn named(urls: &[String]) -> Result<Vec<Named>, StoreError> {
    if urls.is_empty() {
        return Err(StoreError::invalid("no redis URL is given: give at least one"));
    }
    urls.iter().map(|url| Named::parse(url)).collect()
}

fn tls_of(named: &[Named]) -> Vec<bool> {
    named.iter().map(|one| one.is_tls).collect()
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("tls", &self.tls)
            .field("functions", &self.functions)
            .field("connections", &self.connections)
            .field("in_flight_max", &self.in_flight_max)
            .field("prefix", &self.prefix)
            .field("time_source", &self.time_source)
            .field("timeout", &self.timeout)
            .field("max_clock_skew", &self.max_clock_skew)
            .finish_non_exhaustive()
    }
}
