//! One type for every store.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tollgate_core::{Charge, Decisions, Operation, Store, StoreError, StoreErrorKind, Timestamp};
use tollgate_memory::MemoryStore;
#[cfg(feature = "redis")]
use tollgate_redis::RedisStore;

use crate::store_calls::{UnderWay, word};
use crate::store_parts::StoreParts;

/// A store of any kind behind one type, so that a [`Limiter`](crate::Limiter) needs no type
/// parameter.
///
/// The stores of Tollgate are called directly; a store of the application's own is called through
/// one boxed future per operation.
#[derive(Clone)]
pub struct AnyStore {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Memory(Arc<MemoryStore>),
    #[cfg(feature = "redis")]
    Redis(Arc<RedisStore>),
    Custom(Arc<dyn BoxedStore>),
}

impl AnyStore {
    /// Wraps a store of the application's own.
    pub fn new<S: Store + 'static>(store: S) -> Self {
        Self { kind: Kind::Custom(Arc::new(store)) }
    }

    /// Returns `memory`, `redis` or `custom`.
    pub const fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Memory(_) => "memory",
            #[cfg(feature = "redis")]
            Kind::Redis(_) => "redis",
            Kind::Custom(_) => "custom",
        }
    }

    /// Tells whether operations never wait, so that a caller cannot go away in the middle.
    pub(crate) const fn answers_at_once(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// Returns the store whose operations never wait, if it is one.
    #[inline]
    pub(crate) const fn as_memory(&self) -> Option<&Arc<MemoryStore>> {
        match &self.kind {
            Kind::Memory(store) => Some(store),
            _ => None,
        }
    }

    pub(crate) async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Decisions, StoreError> {
        match &self.kind {
            Kind::Memory(store) => store.decide(operation, charges, now),
            #[cfg(feature = "redis")]
            Kind::Redis(store) => {
                // A future that is passed on by value is moved, and held twice.
                let call = UnderWay::begin(word(operation));
                let answer = store.apply(operation, charges, now).await;
                ended(call, answer)
            }
            Kind::Custom(store) => {
                let call = UnderWay::begin(word(operation));
                let answer = within(deadline, store.apply_boxed(operation, charges, now)).await;
                ended(call, answer)
            }
        }
    }

    pub(crate) async fn reset(&self, keys: &[&str], deadline: Duration) -> Result<(), StoreError> {
        match &self.kind {
            Kind::Memory(store) => {
                store.forget(keys);
                Ok(())
            }
            #[cfg(feature = "redis")]
            Kind::Redis(store) => {
                let call = UnderWay::begin("reset");
                let answer = store.reset(keys).await;
                ended(call, answer)
            }
            Kind::Custom(store) => {
                let call = UnderWay::begin("reset");
                let answer = within(deadline, store.reset_boxed(keys)).await;
                ended(call, answer)
            }
        }
    }

    /// Returns how many parts of the keys fail apart from each other: at most 64.
    pub(crate) fn parts_count(&self) -> usize {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(store) if store.is_cluster() => RedisStore::PARTS,
            _ => 1,
        }
    }

    /// Returns the part that a key is in.
    pub(crate) fn part_of(&self, key: &str) -> StoreParts {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(store) => StoreParts::one(store.part_of(key)),
            _ => {
                let _ = key;
                StoreParts::one(0)
            }
        }
    }

    /// Returns the longest that an operation may take, where a store without a deadline of its own
    /// has `deadline`.
    pub(crate) fn deadline(&self, deadline: Duration) -> Duration {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(store) => store.timeout(),
            _ => deadline,
        }
    }

    /// Tells whether an operation on several buckets fails as a whole or not at all.
    pub(crate) fn is_atomic(&self) -> bool {
        match &self.kind {
            Kind::Memory(_) => true,
            #[cfg(feature = "redis")]
            Kind::Redis(store) => !store.is_cluster(),
            Kind::Custom(_) => false,
        }
    }

    /// Tells whether the store counts the nodes that announce themselves.
    pub(crate) const fn counts_nodes(&self) -> bool {
        match self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(_) => true,
            _ => false,
        }
    }

    /// Announces a node, and returns how many are alive, if the store counts them.
    pub(crate) async fn announce(
        &self,
        node: &str,
        now: Timestamp,
    ) -> Option<Result<NonZeroU32, StoreError>> {
        match &self.kind {
            #[cfg(feature = "redis")]
            Kind::Redis(store) => Some(store.announce(node, now).await),
            _ => {
                let _ = (node, now);
                None
            }
        }
    }

    /// Returns the Redis store, if it is one.
    #[cfg(feature = "redis")]
    pub const fn as_redis(&self) -> Option<&Arc<RedisStore>> {
        match &self.kind {
            Kind::Redis(store) => Some(store),
            _ => None,
        }
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyStore").field("kind", &self.kind()).finish()
    }
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Arc::new(store).into()
    }
}

impl From<Arc<MemoryStore>> for AnyStore {
    fn from(store: Arc<MemoryStore>) -> Self {
        Self { kind: Kind::Memory(store) }
    }
}

#[cfg(feature = "redis")]
impl From<RedisStore> for AnyStore {
    fn from(store: RedisStore) -> Self {
        Arc::new(store).into()
    }
}

#[cfg(feature = "redis")]
impl From<Arc<RedisStore>> for AnyStore {
    fn from(store: Arc<RedisStore>) -> Self {
        Self { kind: Kind::Redis(store) }
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Notes how a call ended, if it is observed.
fn ended<T>(call: Option<UnderWay>, answer: Result<T, StoreError>) -> Result<T, StoreError> {
    if let Some(call) = call {
        call.end(&answer);
    }
    answer
}

/// Waits for a store that may have no deadline of its own. Without a runtime nobody measures the
/// time.
async fn within<T>(deadline: Duration, answer: Boxed<'_, T>) -> Result<T, StoreError> {
    if Handle::try_current().is_err() {
        return answer.await;
    }
    match timeout(deadline, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(
            StoreErrorKind::Timeout,
            format!(
                "the store did not answer within {deadline:?}: give it more time by store_timeout, \
                 or see what it waits for"
            ),
        )),
    }
}

/// [`Store`] as a trait object can offer it.
trait BoxedStore: Send + Sync {
    fn apply_boxed<'a>(
        &'a self,
        operation: Operation,
        charges: &'a [Charge<'a>],
        now: Timestamp,
    ) -> Boxed<'a, Decisions>;

    fn reset_boxed<'a>(&'a self, keys: &'a [&'a str]) -> Boxed<'a, ()>;
}

impl<S: Store> BoxedStore for S {
    fn apply_boxed<'a>(
        &'a self,
        operation: Operation,
        charges: &'a [Charge<'a>],
        now: Timestamp,
    ) -> Boxed<'a, Decisions> {
        Box::pin(self.apply(operation, charges, now))
    }

    fn reset_boxed<'a>(&'a self, keys: &'a [&'a str]) -> Boxed<'a, ()> {
        Box::pin(self.reset(keys))
    }
}
