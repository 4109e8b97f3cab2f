//! The store: one atomic step per request.

use std::fmt;
use std::slice;
use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::{
    Charge, Decision, Decisions, Operation, RecordChange, Store, StoreError, Timestamp,
};

use crate::builder::MemoryStoreBuilder;
use crate::key_hash::{Key, KeyHasher};
use crate::room::{Count, Room};
use crate::shard_lock::{Locked, ShardLock};
use crate::shelf::micros;
use crate::store::effect::Effect;

mod effect;
mod eviction;
mod known;
mod lock_plan;
mod request;

/// The shards of a store that may hold as many keys or more, so that threads rarely meet: a power of
/// two, and few in the model, which tries every schedule.
const SHARDS_MIN: usize = if cfg!(loom) { 2 } else { 64 };

/// The most shards of a store: a check that finds none of its room free looks at all of them.
const SHARDS_MAX: usize = if cfg!(loom) { 2 } else { 2_048 };

/// How many keys a shard holds in a full store that has enough shards: few, since a shard is moved as a
/// whole under its lock when its table grows.
const KEYS_PER_SHARD: usize = 8_192;

/// The longest key that is accepted, in bytes: 4,096.
pub const KEY_LEN_MAX: usize = 4_096;

/// Keeps buckets and records in the memory of this process, in shards, at most `keys_max` of each.
///
/// All methods take `&self`, and none waits but for a lock that is held for the time of one
/// decision. Share it in an [`Arc`](std::sync::Arc). See the [page of the crate](crate) for how it
/// works and what it costs.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
/// use tollgate_memory::MemoryStore;
///
/// let store = MemoryStore::new();
/// let quota = Quota::new("1/s".parse()?, 3)?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
///
/// let charge = Charge::new("default:login:ip=1.2.3.4", &quota, Cost::new(2));
/// let decision = store.decide_one(Operation::Spend, &charge, now)?;
/// assert_eq!((decision.is_allow(), decision.remaining()), (true, 1));
/// let decision = store.decide_one(Operation::Spend, &charge, now)?;
/// assert_eq!((decision.is_allow(), decision.remaining()), (false, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    hasher: KeyHasher,
    max_clock_skew: Duration,
    max_clock_skew_us: u64,
    shards: Box<[ShardLock]>,
    room: Room,
}

impl MemoryStore {
    /// Makes a store of at most 1,000,000 keys that tolerates a clock skew of 1 s.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to set up a store.
    pub const fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    pub(crate) fn with_limits(keys_max: usize, max_clock_skew: Duration) -> Self {
        let shards = (keys_max / KEYS_PER_SHARD).clamp(SHARDS_MIN.min(keys_max), SHARDS_MAX);
        let shards = shards.next_power_of_two();
        Self {
            hasher: KeyHasher::new(),
            max_clock_skew,
            max_clock_skew_us: micros(max_clock_skew),
            shards: (0..shards).map(|_| ShardLock::new()).collect(),
            room: Room::new(keys_max),
        }
    }

    /// Applies `operation` to all charges of one request in one atomic step, and gives a decision
    /// for each, in their order.
    ///
    /// The decisions are those of [`decide_together`](tollgate_core::decide_together) on the stored states. Concurrent calls equal
    /// some serial order (G6), and no call sees or leaves a part of another one (G7). Room is needed
    /// by what spends from a key that is not stored, and by what is recorded under a ticket.
    ///
    /// # Errors
    ///
    /// In every case nothing was spent in any charge.
    ///
    /// - [`is_invalid`](StoreError::is_invalid): two charges name the same key, there are more than
    ///   [`Charge::COUNT_MAX`], or a key is longer than [`KEY_LEN_MAX`].
    /// - [`is_full`](StoreError::is_full): the request needs room for new buckets or for new records,
    ///   `keys_max` of that kind are stored, and not enough of them are full again or have ended at
    ///   `now`, as far as one call looks: it puts at most 1,024 in order whose ends were put off, and the
    ///   next call goes on from there.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_core::{Charge, Cost, Operation, Quota, Timestamp};
    /// use tollgate_memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let (everybody, alice) = (Quota::new("10/s".parse()?, 10)?, Quota::new("1/s".parse()?, 1)?);
    /// let charges = [
    ///     Charge::new("default:all", &everybody, Cost::ONE),
    ///     Charge::new("default:user:name=alice", &alice, Cost::ONE),
    /// ];
    /// let now = Timestamp::from_micros(1_700_000_000_000_000);
    ///
    /// let decisions = store.decide(Operation::Spend, &charges, now)?;
    /// assert!(decisions.iter().all(|decision| decision.is_allow()));
    ///
    /// // Alice has no units left, so the shared bucket keeps its nine.
    /// let decisions = store.decide(Operation::Spend, &charges, now)?;
    /// assert_eq!((decisions[0].remaining(), decisions[1].is_deny()), (9, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decide(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        match charges {
            [charge] if is_simple(operation) => {
                self.decide_one(operation, charge, now).map(|decision| smallvec![decision])
            }
            [one, other] if operation == Operation::Spend => {
                self.decide_few([one, other], charges, now)
            }
            [one, other, third] if operation == Operation::Spend => {
                self.decide_few([one, other, third], charges, now)
            }
            _ => self.decide_all(operation, charges, now),
        }
    }

    /// Applies `operation` to one bucket in one atomic step.
    ///
    /// This is [`decide`](Self::decide) for a single charge. If the key is stored, looking allocates
    /// nothing, and so does spending from a token bucket, a leaky bucket or a fixed window.
    ///
    /// # Errors
    ///
    /// As for [`decide`](Self::decide).
    pub fn decide_one(
        &self,
        operation: Operation,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        if !is_simple(operation) {
            return Ok(self.decide_all(operation, slice::from_ref(charge), now)?.remove(0));
        }
        check_key(charge)?;
        let key = self.key(charge.key);
        let near = self.shard_of(key.hash);
        if operation == Operation::Spend
            && let Some(decided) =
                self.shards[near].last_denied().deny(key, charge, self.max_clock_skew, now)
        {
            return Ok(decided.decision());
        }
        let mut shard = self.shards[near].lock();
        if operation == Operation::Spend
            && let Some((decided, is_spent)) =
                shard.spend_known(key, charge, self.max_clock_skew, now)
        {
            if is_spent {
                self.settle_later(&mut shard, now);
            }
            drop(shard);
            return Ok(decided.decision());
        }
        self.decide_in(shard, (operation, key, charge), near, now)
    }

    /// What [`decide_one`](Self::decide_one) does, for any bucket.
    #[inline(never)]
    fn decide_in<'s>(
        &'s self,
        mut shard: Locked<'s>,
        (operation, key, charge): (Operation, Key<'_>, &Charge<'_>),
        near: usize,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let mut reservation = self.room.reserve_nothing();
        loop {
            let slot = shard.find(key);
            let bucket = slot.and_then(|slot| shard.bucket_state(slot));
            let exact = slot.and_then(|slot| shard.exact_state(slot));
            let state = bucket.as_ref().or(exact);
            let (decision, change) = match operation {
                Operation::Look => charge.judge(state, self.max_clock_skew, now).keep(),
                _ => charge.decide(state, self.max_clock_skew, now),
            };
            let effect =
                Effect { decision: &decision, change: &change, record: &RecordChange::Keep };
            let balance = effect.balance(slot.is_some(), false);
            let need = balance.need();
            if need == Count::NONE || reservation.cover(need) {
                self.write(&mut shard, (key, slot), charge, effect, now);
                reservation.settle(balance);
                if effect.is_write() {
                    self.settle_on_the_way(&mut shard, now);
                }
                return Ok(decision);
            }
            drop(shard);
            self.make_room(&mut reservation, need, near, now)?;
            shard = self.shards[near].lock();
        }
    }

    /// Forgets the buckets at `keys`, which fills them.
    ///
    /// Reservations and refunds made once stay as they are: a reservation from before can still be
    /// settled, and a refund is not repeated. Each key is forgotten in an atomic step of its own. A
    /// key that is not stored is passed over.
    pub fn forget(&self, keys: &[&str]) {
        for key in keys {
            let key = self.key(key);
            let mut shard = self.shards[self.shard_of(key.hash)].lock();
            let count = shard.forget(key);
            self.room.give_back(count);
        }
    }

    /// Forgets every bucket, which fills them, and every record. Checks that run at the same time see each shard as
    /// it was before or as it is after.
    pub fn clear(&self) {
        for shard in &self.shards {
            let count = shard.lock().clear();
            self.room.give_back(count);
        }
    }

    /// Returns the number of stored buckets: those that are not full, and those that have become full
    /// and are not evicted yet. It is never above [`keys_max`](Self::keys_max).
    ///
    /// While checks run it may count room that one of them holds for a key.
    pub fn len(&self) -> usize {
        self.room.taken().buckets
    }

    /// Returns the number of stored records of reservations and refunds: those that stand, and those
    /// that have ended and are not evicted yet. It is never above [`keys_max`](Self::keys_max).
    pub fn records(&self) -> usize {
        self.room.taken().records
    }

    /// Tells whether no bucket and no record is stored.
    pub fn is_empty(&self) -> bool {
        self.room.taken() == Count::NONE
    }

    /// Returns the most buckets that are stored at once, and the most records.
    pub const fn keys_max(&self) -> usize {
        self.room.keys_max()
    }

    /// Returns the memory of the store in bytes: the shards, their tables, the keys and the states,
    /// without what the allocator adds to each; that of leases is an estimate. It locks one shard
    /// after the other, each for a constant number of steps.
    pub fn bytes(&self) -> usize {
        let shards: usize = self.shards.iter().map(|shard| shard.lock().bytes()).sum();
        size_of_val(self) + size_of_val(&*self.shards) + shards
    }

    /// Returns how many buckets and records were evicted since the store was made. Each was full, or
    /// had ended.
    pub fn evicted(&self) -> u64 {
        self.room.evicted()
    }

    /// Tells the model checker's test whether two keys are under the same lock.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn is_same_shard(&self, one: &str, other: &str) -> bool {
        let [one, other] = [one, other].map(|key| self.shard_of(self.key(key).hash));
        one == other
    }

    #[inline(always)]
    fn key<'k>(&self, text: &'k str) -> Key<'k> {
        self.hasher.key(text)
    }

    /// The shard of a key. The index inside uses the lower half of the hash.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("len", &self.len())
            .field("records", &self.records())
            .field("keys_max", &self.keys_max())
            .field("max_clock_skew", &self.max_clock_skew)
            .field("evicted", &self.evicted())
            .finish_non_exhaustive()
    }
}

/// The futures never pend: each is done when it is first polled.
impl Store for MemoryStore {
    async fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        self.decide(operation, charges, now)
    }

    async fn reset(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.forget(keys);
        Ok(())
    }
}

/// Tells whether a single charge can be decided without `decide_together`, at less than half the
/// cost: what is asked most is, and has no records.
const fn is_simple(operation: Operation) -> bool {
    matches!(operation, Operation::Spend | Operation::Look)
}

fn check_key(charge: &Charge<'_>) -> Result<(), StoreError> {
    if charge.key.len() > KEY_LEN_MAX {
        return Err(key_too_long(charge.key));
    }
    Ok(())
}

#[cold]
fn key_too_long(key: &str) -> StoreError {
    let start: String = key.chars().take(32).collect();
    StoreError::invalid(format!(
        "the key {start:?}... has {} bytes: the most is {KEY_LEN_MAX}, so shorten or hash its values",
        key.len()
    ))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
