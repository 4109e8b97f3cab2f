//! Which store to use, as configured.

use crate::redis::RedisConfig;

/// Where the buckets are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In this process, which shares them with no other.
    Memory {
        /// The most buckets that are kept, at least 1.
        keys_max: usize,
    },
    /// In Redis, which all processes with the same servers and prefix share.
    Redis(Box<RedisConfig>),
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

impl StoreConfig {
    /// The most buckets of a memory store unless set otherwise: 1,000,000.
    pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

    /// The most that `keys_max` can be: 1,000,000,000.
    pub const KEYS_MAX_LIMIT: usize = 1_000_000_000;
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self::Memory { keys_max: Self::KEYS_MAX_DEFAULT }
    }
}
