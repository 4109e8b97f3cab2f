//! Which store to use, as configured.

use std::fmt;
use std::time::Duration;

use tollgate_core::BreakerSettings;

/// Where the buckets are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In this process, which shares them with no other.
    Memory {
        /// The most buckets that are kept, at least 1.
        keys_max: usize,
    },
    /// In one Redis server, which all processes with the same URL and prefix share.
    Redis {
        /// The server.
        url: RedisUrl,
        /// The longest that one operation may take, 100 µs to 1 min.
        timeout: Duration,
        /// What every key begins with, before a `:`.
        prefix: String,
        /// Whose clock decides.
        time_source: TimeSource,
        /// When a server that fails is not asked any more.
        breaker: BreakerSettings,
    },
}

/// Whose clock a Redis store decides by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeSource {
    /// The clock of the Redis server, one for all processes.
    #[default]
    Server,
    /// The clock of each process.
    Client,
}

/// The URL of a Redis server: `redis://[user:password@]host[:port][/database]`.
///
/// [`Debug`] and [`Display`](fmt::Display) replace user and password by stars.
///
/// # Examples
///
/// ```
/// use tollgate_config::{Config, StoreConfig};
///
/// let text = "
/// store: { kind: redis, url: \"redis://shop:s3cret@redis:6379\" }
/// rules: [{ name: all, limit: 100/s }]
/// ";
/// let config = Config::parse(text, "tollgate.yaml")?;
/// let StoreConfig::Redis { url, .. } = config.store else { panic!() };
/// assert_eq!(url.as_str(), "redis://shop:s3cret@redis:6379");
/// assert_eq!(url.to_string(), "redis://***@redis:6379");
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl StoreConfig {
    /// The most buckets of a memory store unless set otherwise: 1,000,000.
    pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

    /// The most that `keys_max` can be: 1,000,000,000.
    pub const KEYS_MAX_LIMIT: usize = 1_000_000_000;

    /// The longest that an operation of a Redis store takes unless set otherwise: 50 ms.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_millis(50);

    /// What every key in Redis begins with, before a `:`, unless set otherwise.
    pub const PREFIX_DEFAULT: &str = "tollgate";
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self::Memory { keys_max: Self::KEYS_MAX_DEFAULT }
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
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.find("://"), self.0.rfind('@')) {
            (Some(scheme), Some(at)) => {
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
