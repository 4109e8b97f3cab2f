//! Which locks a request of several charges takes.

use smallvec::SmallVec;
use tollgate_core::Charge;

use crate::key_hash::Key;
use crate::shard_lock::Locked;
use crate::store::MemoryStore;

/// Where the bucket of a charge is.
pub(super) struct Place<'a> {
    pub(super) key: Key<'a>,
    /// The index of its shard's lock among those that the request takes.
    pub(super) lock: usize,
}

/// The shards that a request of several charges locks, each once and in ascending order, so that
/// requests cannot deadlock.
pub(super) struct LockPlan<'a> {
    pub(super) order: SmallVec<[usize; 2]>,
    pub(super) places: SmallVec<[Place<'a>; 2]>,
}

impl<'a> LockPlan<'a> {
    pub(super) fn new(store: &MemoryStore, charges: &[Charge<'a>]) -> Self {
        let mut places: SmallVec<[Place<'a>; 2]> = charges
            .iter()
            .map(|charge| {
                let key = store.key(charge.key);
                Place { key, lock: store.shard_of(key.hash) }
            })
            .collect();
        let mut order: SmallVec<[usize; 2]> = places.iter().map(|place| place.lock).collect();
        order.sort_unstable();
        order.dedup();
        for place in &mut places {
            place.lock = order.partition_point(|shard| *shard < place.lock);
        }
        Self { places, order }
    }

    pub(super) fn lock<'s>(&self, store: &'s MemoryStore) -> SmallVec<[Locked<'s>; 2]> {
        self.order.iter().map(|shard| store.shards[*shard].lock()).collect()
    }
}
