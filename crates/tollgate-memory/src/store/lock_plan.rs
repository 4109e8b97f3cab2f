//! Which locks a request of several charges takes.

use smallvec::SmallVec;
use tollgate_core::Charge;

use crate::shard::Key;
use crate::shard_lock::Locked;
use crate::store::MemoryStore;

/// Where the bucket of a charge is.
pub(super) struct Place {
    pub(super) hash: u64,
    /// The index of its shard's lock among those that the request takes.
    pub(super) lock: usize,
}

impl Place {
    pub(super) const fn key<'a>(&self, charge: &Charge<'a>) -> Key<'a> {
        Key { hash: self.hash, text: charge.key }
    }
}

/// The shards that a request of several charges locks, each once and in ascending order, so that
/// requests cannot deadlock.
pub(super) struct LockPlan {
    pub(super) order: SmallVec<[usize; 2]>,
    pub(super) places: SmallVec<[Place; 2]>,
}

impl LockPlan {
    pub(super) fn new(store: &MemoryStore, charges: &[Charge<'_>]) -> Self {
        let mut places: SmallVec<[Place; 2]> = charges
            .iter()
            .map(|charge| {
                let hash = store.hash_of(charge.key);
                Place { hash, lock: store.shard_of(hash) }
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

    pub(super) fn lock<'a>(&self, store: &'a MemoryStore) -> SmallVec<[Locked<'a>; 2]> {
        self.order.iter().map(|shard| store.shards[*shard].lock()).collect()
    }
}
