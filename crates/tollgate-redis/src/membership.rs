//! Which nodes share the budget: a sorted set in Redis, scored with the end of each announcement.

use std::num::NonZeroU32;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;
use tollgate_core::{StoreError, Timestamp};

use crate::builder::TimeSource;
use crate::error;
use crate::key::HashSlot;
use crate::script::Form;
use crate::store::{Inner, RedisStore};
use crate::target::Target;

/// How long an announcement holds.
const ALIVE_FOR: Duration = Duration::from_secs(3);

/// The key of the set, after the prefix. No bucket's key begins like this.
const NODES: &str = "!nodes";

impl RedisStore {
    /// Announces that `node` is alive, which holds for 3 s, and returns how many nodes are, this
    /// one included. Nodes are those that use the same server and prefix.
    ///
    /// This is for once in a while, not for every request.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as from [`apply`](tollgate_core::Store::apply).
    pub async fn announce(&self, node: &str, now: Timestamp) -> Result<NonZeroU32, StoreError> {
        let inner = &self.inner;
        let nodes = format!("{}:{NODES}", inner.prefix);
        let slot = match inner.transport.target {
            Target::Single(_) | Target::Sentinel(_) => HashSlot::ANY,
            Target::Cluster(_) => HashSlot::of(&inner.prefix, NODES),
        };
        let call = Members { inner, slot, deadline: inner.transport.deadline() };
        let now_ms = match inner.time_source {
            TimeSource::Client => now.as_micros() / 1_000,
            TimeSource::Server => call.server_time_ms().await?,
        };
        let ttl_ms = u64::try_from(ALIVE_FOR.as_millis()).unwrap_or(u64::MAX);
        let ends_ms = now_ms.saturating_add(ttl_ms);
        call.send(&["ZADD", &nodes, &ends_ms.to_string(), node]).await?;
        call.send(&["ZREMRANGEBYSCORE", &nodes, "-inf", &now_ms.to_string()]).await?;
        call.send(&["PEXPIRE", &nodes, &ttl_ms.to_string()]).await?;
        let count = match call.send(&["ZCARD", &nodes]).await? {
            Value::Int(count) => u32::try_from(count).ok(),
            _ => None,
        };
        // The set has expired if that took too long; this node is alive all the same.
        Ok(count.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN))
    }
}

/// Commands on the set of nodes, all before one deadline.
struct Members<'a> {
    inner: &'a Inner,
    slot: HashSlot,
    deadline: Instant,
}

impl Members<'_> {
    async fn send(&self, words: &[&str]) -> Result<Value, StoreError> {
        let command = |_: Form| {
            let mut command = Cmd::new();
            command.arg(words);
            command
        };
        let sent = self.inner.transport.send(self.slot, command, self.deadline).await;
        sent.map_err(|failed| failed.into_store_error(|_| None))
    }

    async fn server_time_ms(&self) -> Result<u64, StoreError> {
        let time = self.send(&["TIME"]).await?;
        let (seconds, micros): (u64, u64) = redis::from_redis_value(time)
            .map_err(|_| error::unintelligible(&self.inner.transport.target.name()))?;
        Ok(seconds.saturating_mul(1_000).saturating_add(micros / 1_000))
    }
}
