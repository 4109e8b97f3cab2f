//! The store and its calls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Charge, Decisions, Operation, Store, StoreError, Timestamp};

use crate::across::{self, Group};
use crate::builder::{RedisStoreBuilder, Servers, TimeSource};
use crate::call::{Call, Step};
use crate::coalesce::Coalescer;
use crate::error::{self, Keys};
use crate::key::{self, HashSlot};
use crate::script::Form;
use crate::script_time::Statistics;
use crate::status::{InFlight, RedisStatus};
use crate::target::Target;
use crate::transport::Transport;

/// Keeps buckets in Redis or in a Redis Cluster, where all processes share them.
///
/// Each call is one script call that reads, judges, spends and sets the expiry of all charges in
/// one atomic step (G6, G7); in a cluster, one for each hash slot. See the [crate docs](crate) for
/// what is stored and how it fails.
///
/// The store is made by [`builder`](Self::builder). It holds one connection to each server, or a few,
/// that all calls share; share the store itself by [`Arc`].
pub struct RedisStore {
    pub(crate) inner: Arc<Inner>,
}

/// What a call needs, in a task of its own too.
pub(crate) struct Inner {
    pub(crate) transport: Transport,
    pub(crate) coalescer: Coalescer,
    pub(crate) coalesces: bool,
    pub(crate) in_flight_max: usize,
    pub(crate) prefix: String,
    pub(crate) time_source: TimeSource,
    pub(crate) max_clock_skew: Duration,
    pub(crate) statistics: Statistics,
}

impl RedisStore {
    /// Makes a builder for the server at `url`:
    ///
    /// - `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS,
    /// - `redis+unix:///path` for a socket,
    /// - `redis+cluster://[user:password@]host[:port][,host[:port]...]` for a Redis Cluster, of
    ///   which one node must be there. The others are asked for. `rediss+cluster://` is with TLS.
    /// - `redis+sentinel://[user:password@]host[:port][,host[:port]...]/master[/database]` for the
    ///   primary that Redis Sentinel at these hosts calls `master`. The user and the password are
    ///   those of the primary. `rediss+sentinel://` is with TLS, to the sentinels too.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Servers::Url(url.into()))
    }

    /// Makes a builder for the Redis Cluster that the nodes at `urls` belong to. All nodes are
    /// connected to with the user and the password of the first.
    pub fn cluster(urls: impl IntoIterator<Item = impl Into<String>>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Servers::Cluster(urls.into_iter().map(Into::into).collect()))
    }

    /// Makes a builder for the primary that Redis Sentinel calls `master`. The users and passwords
    /// in the `urls` are those of the sentinels; those of the primary are set on the builder.
    pub fn sentinel(
        urls: impl IntoIterator<Item = impl Into<String>>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisStoreBuilder::new(Servers::Sentinel { urls, master: master.into() })
    }

    /// Asks whether the server answers and runs the script, within the deadline; in a cluster each
    /// node that serves keys.
    ///
    /// No key is touched. A replica passes too: only a write tells that it is read-only. Where there
    /// is no connection, an attempt to make one begins now, not after the pause between attempts.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as from [`apply`](Store::apply).
    pub async fn ping(&self) -> Result<(), StoreError> {
        let deadline = self.inner.transport.deadline();
        let target = &self.inner.transport.target;
        match timeout_at(deadline, target.connected()).await {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => return Err(error::not_connected(&target.name(), &cause)),
            Err(_) => {
                return Err(error::no_connection(&target.name(), self.inner.transport.timeout));
            }
        }
        let slots = match target {
            Target::Single(_) | Target::Sentinel(_) => vec![HashSlot::ANY],
            Target::Cluster(cluster) => cluster.slot_of_each(),
        };
        // Of a cluster that is not known yet, whoever it is that serves a slot.
        let any = slots.is_empty().then_some(HashSlot::ANY);
        for slot in slots.into_iter().chain(any) {
            let call = self.inner.call(Step::Apply(Operation::Look), &[], Timestamp::EPOCH);
            let reply = self.inner.send(slot, &call, deadline).await?;
            if call.decisions(&reply).is_none() {
                return Err(error::unintelligible(&self.inner.transport.target.name()));
            }
        }
        Ok(())
    }

    /// How many parts a cluster's keys are in, by [`part_of`](Self::part_of): 64.
    pub const PARTS: usize = 64;

    /// Returns which part of a cluster's keys a bucket's key is in, by its hash slot, below
    /// [`PARTS`](Self::PARTS); 0 on a single server. The keys of one part mostly fail together.
    pub fn part_of(&self, key: &str) -> usize {
        match self.inner.transport.target {
            Target::Single(_) | Target::Sentinel(_) => 0,
            Target::Cluster(_) => {
                HashSlot::of(&self.inner.prefix, key).index() * Self::PARTS / HashSlot::COUNT
            }
        }
    }

    /// Returns the longest that an operation may take.
    pub fn timeout(&self) -> Duration {
        self.inner.transport.timeout
    }

    /// Tells whether the buckets are spread over the nodes of a Redis Cluster.
    pub fn is_cluster(&self) -> bool {
        matches!(self.inner.transport.target, Target::Cluster(_))
    }

    /// Returns what is known of the connections and the calls.
    pub fn status(&self) -> RedisStatus {
        self.inner.transport.status()
    }

    /// Counts a call as under way until the guard is dropped.
    fn enter(&self) -> Result<InFlight<'_>, StoreError> {
        let Inner { transport, in_flight_max, .. } = &*self.inner;
        let entered = transport.counters.enter(*in_flight_max);
        entered.ok_or_else(|| error::too_many(&transport.target.name(), *in_flight_max))
    }
}

impl Inner {
    pub(crate) fn call<'a>(
        &'a self,
        step: Step,
        charges: &'a [Charge<'a>],
        now: Timestamp,
    ) -> Call<'a> {
        Call {
            step,
            charges,
            prefix: &self.prefix,
            max_clock_skew: self.max_clock_skew,
            now: match self.time_source {
                TimeSource::Server => None,
                TimeSource::Client => Some(now),
            },
        }
    }

    /// Has the script executed on charges that are in one slot.
    pub(crate) async fn send(
        &self,
        slot: HashSlot,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Value, StoreError> {
        let command = |form| call.command(&self.transport.script, form);
        self.transport.send(slot, command, deadline).await.map_err(|failed| {
            failed.into_store_error(|index| {
                let charge = call.charges.get(index)?;
                let record = |ticket| key::record(&self.prefix, charge.key, ticket);
                Some(Keys {
                    bucket: format!("{}:{}", self.prefix, charge.key),
                    record: charge.ticket.map(record),
                })
            })
        })
    }

    /// Applies an operation to charges that are in one slot, in a call of its own.
    pub(crate) async fn decide_alone(
        &self,
        operation: Operation,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Result<Decisions, StoreError> {
        let call = self.call(Step::Apply(operation), charges, now);
        let reply = self.send(slot, &call, deadline).await?;
        call.decisions(&reply).ok_or_else(|| error::unintelligible(&self.transport.target.name()))
    }

    /// Returns the slot of a key, or any if there is one server for all.
    fn slot_of(&self, key: &str) -> HashSlot {
        match self.transport.target {
            Target::Single(_) | Target::Sentinel(_) => HashSlot::ANY,
            Target::Cluster(_) => HashSlot::of(&self.prefix, key),
        }
    }
}

impl Store for RedisStore {
    /// In a cluster the charges of one hash slot are applied in one atomic step, the slots beside
    /// each other. What [`Spend`](Operation::Spend) and [`Reserve`](Operation::Reserve) took in
    /// some slots is given back if an enforced charge is denied in another, or if another slot
    /// fails: others see it as spent until then, and never the other way round.
    ///
    /// # Errors
    ///
    /// - [`is_timeout`](StoreError::is_timeout): no answer within the deadline. The units may have
    ///   been spent, so the call was not repeated.
    /// - [`is_unavailable`](StoreError::is_unavailable): no connection, or it broke, or the server
    ///   is not ready (it loads its data, or runs a long script), or too many calls are under way.
    /// - [`is_corrupt`](StoreError::is_corrupt): a key holds something that is not ours; the text
    ///   names it. Nothing was written.
    /// - [`is_invalid`](StoreError::is_invalid): two charges of one key, or too many of them.
    /// - Otherwise the server refused: its user may not run the script, it is a replica, it is out
    ///   of memory.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the operation may or may not have been applied. Where it needs
    /// several slots, it goes on in a task of its own, so it is never applied in part.
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        Charge::validate(charges)?;
        let Some(first) = charges.first() else { return Ok(Decisions::new()) };
        let inner = &self.inner;
        if !inner.call(Step::Apply(operation), charges, now).is_supported() {
            return Err(error::unsupported());
        }
        let _entered = self.enter()?;
        let slot = inner.slot_of(first.key);
        if let Target::Cluster(_) = inner.transport.target {
            if operation.has_records()
                && let Some(charge) = charges
                    .iter()
                    .find(|one| one.ticket.is_some() && !key::keeps_records_beside(one.key))
            {
                return Err(error::records_elsewhere(charge.key));
            }
            if charges[1..].iter().any(|charge| inner.slot_of(charge.key) != slot) {
                let groups = Group::of(charges, |charge| inner.slot_of(charge.key));
                return Box::pin(across::apply(inner, operation, groups, now)).await;
            }
        }
        if inner.coalesces && Coalescer::takes(operation, charges) {
            return inner.spend_coalesced(slot, charges, now).await;
        }
        let deadline = inner.transport.deadline();
        Box::pin(inner.decide_alone(operation, slot, charges, now, deadline)).await
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        let inner = &self.inner;
        let _entered = self.enter()?;
        let deadline = inner.transport.deadline();
        let mut by_slot: Vec<(HashSlot, &str)> =
            keys.iter().map(|key| (inner.slot_of(key), *key)).collect();
        by_slot.sort_by_key(|(slot, _)| *slot);
        for keys in by_slot.chunk_by(|(one, _), (other, _)| one == other) {
            let unlink = |_: Form| {
                let mut command = Cmd::new();
                command.arg("UNLINK");
                for (_, key) in keys {
                    key::write_bucket(&mut command, &inner.prefix, key);
                }
                command
            };
            let sent = inner.transport.send(keys[0].0, unlink, deadline).await;
            sent.map_err(|failed| failed.into_store_error(|_| None))?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.inner;
        f.debug_struct("RedisStore")
            .field("server", &inner.transport.target.name())
            .field("prefix", &inner.prefix)
            .field("time_source", &inner.time_source)
            .field("timeout", &inner.transport.timeout)
            .field("max_clock_skew", &inner.max_clock_skew)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
