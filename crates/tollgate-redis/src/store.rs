//! The store and its calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollgate_core::{Charge, Decisions, Operation, Store, StoreError, Timestamp};

use crate::builder::{RedisStoreBuilder, TimeSource};
use crate::call::{Call, write_key};
use crate::connection::{Link, Slot};
use crate::error::{self, Remedy};
use crate::script::{Form, Script};

/// The pause before a server that is not ready is asked again.
const NOT_READY_PAUSE: Duration = Duration::from_millis(10);

/// Keeps buckets in Redis, where all processes share them.
///
/// Each call is one script call that reads, judges, spends and sets the expiry of all charges in
/// one atomic step (G6, G7). See the [crate docs](crate) for what is stored and how it fails.
///
/// The store is made by [`builder`](Self::builder). It holds one connection that all calls share;
/// share the store itself by [`Arc`].
pub struct RedisStore {
    pub(crate) slot: Arc<Slot>,
    pub(crate) server: String,
    pub(crate) script: Script,
    pub(crate) prefix: String,
    pub(crate) time_source: TimeSource,
    pub(crate) timeout: Duration,
    pub(crate) max_clock_skew: Duration,
    pub(crate) script_reloads: AtomicU64,
}

impl RedisStore {
    /// Makes a builder for the server at `url`: `redis://[user:password@]host[:port][/database]`,
    /// or `redis+unix:///path` for a socket.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url.into())
    }

    /// Asks whether the server answers and runs the script, within the deadline.
    ///
    /// No key is touched. A replica passes too: only a write tells that it is read-only.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as from [`apply`](Store::apply).
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.call(Operation::Look, &[], Timestamp::EPOCH).await.map(|_| ())
    }

    /// Returns how often the server had forgotten the script and was sent its text, since the store
    /// was made. That happens after `SCRIPT FLUSH` or a failover, and fails no call.
    pub fn script_reloads(&self) -> u64 {
        self.script_reloads.load(Ordering::Relaxed)
    }

    async fn call(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let call = Call {
            operation,
            charges,
            prefix: &self.prefix,
            max_clock_skew: self.max_clock_skew,
            now: match self.time_source {
                TimeSource::Server => None,
                TimeSource::Client => Some(now),
            },
        };
        let reply = self.run(|form| call.command(&self.script, form)).await.map_err(|failure| {
            let key_of = |index: usize| {
                charges.get(index).map(|charge| format!("{}:{}", self.prefix, charge.key))
            };
            failure.into_store_error(&self.server, key_of)
        })?;
        call.decisions(&reply).ok_or_else(|| error::unintelligible(&self.server))
    }

    /// Sends a command and, if it was certainly not executed, sends it once more; all within the
    /// deadline.
    async fn run(&self, command: impl Fn(Form) -> Cmd) -> Result<Value, Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut form = Form::Sha;
        let mut is_first = true;
        loop {
            let link = self.link(deadline).await?;
            let Ok(reply) = timeout_at(deadline, link.send(&command(form))).await else {
                if link.is_silent_too_long() {
                    self.slot.discard(&link);
                }
                return Err(Failure::NoAnswer(self.timeout));
            };
            let error = match reply {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match Remedy::of(&error) {
                Remedy::SendSource if form == Form::Sha => {
                    self.script_reloads.fetch_add(1, Ordering::Relaxed);
                    form = Form::Source;
                    continue;
                }
                Remedy::Reconnect => {
                    self.slot.discard(&link);
                    if !is_first {
                        return Err(Failure::Answered(error));
                    }
                }
                Remedy::Wait if is_first => {
                    let retry_at = Instant::now() + NOT_READY_PAUSE;
                    if retry_at >= deadline {
                        return Err(Failure::Answered(error));
                    }
                    sleep_until(retry_at).await;
                }
                Remedy::GiveUpConnection => {
                    self.slot.discard(&link);
                    return Err(Failure::Broken(error));
                }
                Remedy::SendSource | Remedy::Wait | Remedy::GiveUp => {
                    return Err(Failure::Answered(error));
                }
            }
            is_first = false;
        }
    }

    async fn link(&self, deadline: Instant) -> Result<Link, Failure> {
        if let Some(link) = self.slot.ready() {
            return Ok(link);
        }
        match timeout_at(deadline, self.slot.link()).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(error)) => Err(Failure::NotConnected(error)),
            Err(_) => Err(Failure::NoConnection(self.timeout)),
        }
    }
}

/// How a call failed.
enum Failure {
    NoConnection(Duration),
    NotConnected(RedisError),
    NoAnswer(Duration),
    Broken(RedisError),
    Answered(RedisError),
}

impl Failure {
    fn into_store_error(
        self,
        server: &str,
        key_of: impl FnOnce(usize) -> Option<String>,
    ) -> StoreError {
        match self {
            Self::NoConnection(timeout) => error::no_connection(server, timeout),
            Self::NotConnected(cause) => error::not_connected(server, &cause),
            Self::NoAnswer(timeout) => error::no_answer(server, timeout),
            Self::Broken(cause) => error::broken(server, &cause),
            Self::Answered(cause) => {
                error::corrupt(&cause, key_of).unwrap_or_else(|| error::answered(server, &cause))
            }
        }
    }
}

impl Store for RedisStore {
    /// # Errors
    ///
    /// - [`is_timeout`](StoreError::is_timeout): no answer within the deadline. The units may have
    ///   been spent, so the call was not repeated.
    /// - [`is_unavailable`](StoreError::is_unavailable): no connection, or it broke, or the server
    ///   is not ready (it loads its data, or runs a long script).
    /// - [`is_corrupt`](StoreError::is_corrupt): a key holds something that is not a bucket; the
    ///   text names it. Nothing was written.
    /// - [`is_invalid`](StoreError::is_invalid): two charges of one key, or too many of them.
    /// - Otherwise the server refused: its user may not run the script, it is a replica, it is out
    ///   of memory.
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        Charge::validate(charges)?;
        if charges.is_empty() {
            return Ok(Decisions::new());
        }
        self.call(operation, charges, now).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let unlink = |_: Form| {
            let mut command = Cmd::new();
            command.arg("UNLINK");
            for key in keys {
                write_key(&mut command, &self.prefix, key);
            }
            command
        };
        match self.run(unlink).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.into_store_error(&self.server, |_| None)),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("server", &self.server)
            .field("prefix", &self.prefix)
            .field("time_source", &self.time_source)
            .field("timeout", &self.timeout)
            .field("max_clock_skew", &self.max_clock_skew)
            .field("script_reloads", &self.script_reloads())
            .finish_non_exhaustive()
    }
}
