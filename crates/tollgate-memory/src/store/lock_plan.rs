//! Which locks a request of several charges takes.

use std::hash::BuildHasher;

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
    pub(super) order: SmallVec<[usize; 4]>,
    pub(super) places: SmallVec<[Place; 4]>,
}

impl LockPlan {
    pub(super) fn new(store: &MemoryStore, charges: &[Charge<'_>]) -> Self {
        let hashes = || charges.iter().map(|charge| store.hasher.hash_one(charge.key));
        let mut order: SmallVec<[usize; 4]> = hashes().map(|hash| store.shard_of(hash)).collect();
        order.sort_unstable();
        order.dedup();
        let place = |hash| {
            let shard = store.shard_of(hash);
            Place { hash, lock: order.partition_point(|other| *other < shard) }
        };
        Self { places: hashes().map(place).collect(), order }
    }

    pub(super) fn lock<'a>(&self, store: &'a MemoryStore) -> SmallVec<[Locked<'a>; 4]> {
        self.order.iter().map(|shard| store.shards[*shard].lock()).collect()
    }
}
