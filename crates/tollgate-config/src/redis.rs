//! A store in Redis, as configured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::BreakerSettings;

use crate::store::TimeSource;

/// A store in Redis, which all processes with the same servers and prefix share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    /// Where it is.
    pub servers: RedisServers,
    /// What the servers are shown.
    pub access: RedisAccess,
    /// Whether the script is kept as a function, where the server has functions.
    pub functions: bool,
    /// How many connections there are to each server, 1 to 4.
    pub connections: usize,
    /// How many calls may be under way at once, at least 1.
    pub in_flight_max: usize,
    /// The longest that one operation may take, 100 µs to 1 min.
    pub timeout: Duration,
    /// What every key begins with, before a `:`.
    pub prefix: String,
    /// Whose clock decides.
    pub time_source: TimeSource,
    /// When a server that fails is not asked any more.
    pub breaker: BreakerSettings,
}

/// What a Redis server is shown: who asks, for which database, with which certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisAccess {
    /// The user; `None` for that of the URL, or Redis's default.
    pub username: Option<String>,
    /// The password of the user; `None` for that of the URL, or none.
    pub password: Option<RedisPassword>,
    /// The number of the database; `None` for that of the URL, or 0.
    pub database: Option<u32>,
    /// The certificates for URLs of `rediss://`.
    pub tls: TlsFiles,
}

/// Which Redis servers there are. [`Display`](fmt::Display) replaces users and passwords by stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    /// One server.
    Single(RedisUrl),
    /// The primary that Redis Sentinel knows.
    Sentinel {
        /// The sentinels, at least one.
        urls: Vec<RedisUrl>,
        /// What they call the primary.
        master_name: String,
    },
    /// A Redis Cluster, of which these are nodes, at least one.
    Cluster(Vec<RedisUrl>),
}

/// Where a password is. [`Debug`] does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisPassword {
    /// Here.
    Text(String),
    /// In a file, to its end or to the end of its first line.
    File(PathBuf),
}

/// The files with certificates, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CAs that are believed; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The URL of a Redis server: `redis://[user:password@]host[:port][/database]`, `rediss://` with TLS,
/// or `redis+unix:///path`.
///
/// [`Debug`] and [`Display`](fmt::Display) replace user and password by stars.
///
/// # Examples
///
/// ```
/// use tollgate_config::{Config, RedisServers, StoreConfig};
///
/// let text = "
/// store: { kind: redis, url: \"redis://shop:s3cret@redis:6379\" }
/// rules: [{ name: all, limit: 100/s }]
/// ";
/// let config = Config::parse(text, "tollgate.yaml")?;
/// let StoreConfig::Redis(redis) = config.store else { panic!() };
/// let RedisServers::Single(url) = redis.servers else { panic!() };
/// assert_eq!(url.as_str(), "redis://shop:s3cret@redis:6379");
/// assert_eq!(url.to_string(), "redis://***@redis:6379");
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisConfig {
    /// The longest that an operation takes unless set otherwise: 50 ms.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(50);

    /// What every key begins with, before a `:`, unless set otherwise.
    pub const PREFIX_DEFAULT: &str = "tollgate";

    /// The most connections to one server: 4.
    pub const CONNECTIONS_MAX: usize = 4;

    /// How many calls may be under way at once unless set otherwise: 10,000.
    pub const IN_FLIGHT_MAX_DEFAULT: usize = 10_000;

    /// The most that `in_flight_max` can be: 1,000,000.
    pub const IN_FLIGHT_MAX_LIMIT: usize = 1_000_000;
}

impl RedisAccess {
    /// Returns the paths of all files.
    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let password = match &mut self.password {
            Some(RedisPassword::File(path)) => Some(path),
            _ => None,
        };
        let (certificate, key) =
            self.tls.identity.as_mut().map(|(one, other)| (one, other)).unzip();
        [password, self.tls.ca.as_mut(), certificate, key].into_iter().flatten()
    }
}

impl RedisUrl {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the URL with its user and password.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.starts_with("rediss://")
    }

    pub(crate) fn has_database(&self) -> bool {
        let place = self.0.split_once("://").map_or("", |(_, place)| place);
        let database = place.split_once('/').map_or("", |(_, database)| database);
        !database.is_empty() && !self.0.starts_with("redis+unix://")
    }

    pub(crate) fn has_user(&self) -> bool {
        self.0.contains('@') && !self.0.starts_with("redis+unix://")
    }

    /// Returns the URL without its user and password.
    pub(crate) fn without_user(&self) -> Self {
        match (self.0.find("://"), self.0.rfind('@')) {
            (Some(scheme), Some(at)) if self.has_user() => {
                Self(format!("{}{}", &self.0[..scheme + 3], &self.0[at + 1..]))
            }
            _ => self.clone(),
        }
    }

    /// Returns the URL without its database.
    pub(crate) fn without_database(&self) -> Self {
        match self.0.rfind('/') {
            Some(database) if self.has_database() => Self(self.0[..database].to_owned()),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.find("://"), self.0.rfind('@')) {
            (Some(scheme), Some(at)) if self.has_user() => {
                write!(f, "{}***{}", &self.0[..scheme + 3], &self.0[at..])
            }
            _ => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({:?})", self.to_string())
    }
}

impl fmt::Debug for RedisPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl fmt::Display for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined =
            |urls: &[RedisUrl]| urls.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Single(url) => url.fmt(f),
            Self::Sentinel { urls, master_name } => {
                write!(f, "{master_name} of the sentinels {}", joined(urls))
            }
            Self::Cluster(urls) => write!(f, "the cluster of {}", joined(urls)),
        }
    }
}
