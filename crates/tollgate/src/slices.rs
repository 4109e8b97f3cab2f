//! Slices of buckets that were debited ahead of time, from which this node spends on its own.
//!
//! A key that is asked for little is judged by the store. When it is asked for often, a slice is
//! debited in the background, once at a time, as large as what the key is asked for in half of the
//! time for which it may be spent from; near exhaustion it is a small part of what is left. What is
//! not spent in time is given back as far as it would still be in the bucket, had it never been
//! debited; what a crash takes along is at most one slice of each key. [`LeaseTerms`] says why no
//! more is admitted by all that.

mod held;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use tokio::time::Instant;
use tollgate_core::{Allow, Cost, LeaseTerms, Quota};

pub(crate) use self::held::Parts;
use self::held::{Debit, Key, Slice};

const SHARDS: usize = if cfg!(test) { 1 } else { 16 };

/// The most keys of a part of the table; further ones are judged by the store.
const SHARD_LEN_MAX: usize = 512;

/// The slices that this node holds, of at most 8,192 keys.
#[derive(Debug)]
pub(crate) struct Slices<L = Mutex<Shard>> {
    shards: [L; SHARDS],
    hasher: RandomState,
}

/// The lock of a part of the table: the model checker has its own.
pub(crate) trait Lock: Default {
    fn with<T>(&self, act: impl FnOnce(&mut Shard) -> T) -> T;
}

/// A part of the table.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    keys: HashMap<String, Key, RandomState>,
    /// How often something became known of a key anew.
    beginnings: u64,
}

/// What became of a check.
pub(crate) struct Taken {
    /// What is told, if the cost was there, and where it was.
    pub(crate) allow: Option<(Allow, Parts)>,
    /// How large a slice is to be debited now.
    pub(crate) debit: Option<u64>,
}

/// Units to be given back.
pub(crate) struct Leftover {
    pub(crate) key: String,
    pub(crate) quota: Quota,
    pub(crate) cost: Cost,
}

impl Lock for Mutex<Shard> {
    fn with<T>(&self, act: impl FnOnce(&mut Shard) -> T) -> T {
        act(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<L: Lock> Default for Slices<L> {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| L::default());
        Self { shards, hasher: RandomState::default() }
    }
}

impl<L: Lock> Slices<L> {
    /// Spends a cost from what is held of a key.
    pub(crate) fn take(&self, key: &str, terms: &LeaseTerms, cost: Cost, now: Instant) -> Taken {
        self.shard(key).with(|shard| {
            let Some(held) = shard.keys.get_mut(key).filter(|held| held.terms == *terms) else {
                shard.begin(key, terms, cost, now);
                return Taken { allow: None, debit: None };
            };
            held.demand.note(cost, now);
            held.drop_ended(now);
            let allow = held.spend(cost);
            Taken { allow, debit: held.wants(cost, now) }
        })
    }

    /// Spends a cost from what is held of a key that is leased by the terms of `quota`. `None` if that is not
    /// enough: nothing is noted then.
    pub(crate) fn take_held(
        &self,
        key: &str,
        quota: &Quota,
        cost: Cost,
        now: Instant,
    ) -> Option<(Allow, Option<(u64, LeaseTerms)>)> {
        self.shard(key).with(|shard| {
            let held = shard.keys.get_mut(key).filter(|held| held.terms.are_of(quota))?;
            held.drop_ended(now);
            let (allow, _) = held.spend(cost)?;
            held.demand.note(cost, now);
            Some((allow, held.wants(cost, now).map(|units| (units, held.terms))))
        })
    }

    /// Puts back what was taken for a request that did not go on, so that it ends when it would
    /// have ended. What was reset meanwhile is in the bucket already.
    pub(crate) fn put_back(&self, key: &str, parts: Parts) {
        self.shard(key).with(|shard| {
            let held = shard.keys.get_mut(key);
            if let Some(held) = held.filter(|held| held.beginning == parts.beginning) {
                parts.slices.into_iter().for_each(|part| held.put_back(part));
            }
        });
    }

    /// Adds a slice that was debited, or notes for how long none is to be had. `left` is what the
    /// bucket held after it.
    pub(crate) fn debited(
        &self,
        key: &str,
        units: u64,
        answer: Result<u64, Duration>,
        since: Instant,
    ) {
        self.shard(key).with(|shard| {
            let Some(held) = shard.keys.get_mut(key) else { return };
            let debit = std::mem::replace(&mut held.debit, Debit::No);
            match answer {
                _ if debit != Debit::UnderWay => {}
                Ok(left) => {
                    let missing = u64::from(held.terms.quota().burst()).saturating_sub(left);
                    held.left = left;
                    held.slices.push_back(Slice { units, since, missing });
                }
                Err(wait) => {
                    held.left = 0;
                    held.strict_until = since + wait.min(held.terms.ttl());
                }
            }
        });
    }

    /// Takes what is not worth keeping: what ends within `ahead`, and all of keys that nobody asks
    /// for any more; everything without an `ahead`. Tells whether anything is left to watch.
    pub(crate) fn leftovers(&self, ahead: Option<Duration>, now: Instant) -> (Vec<Leftover>, bool) {
        let mut leftovers = Vec::new();
        let mut is_watched = false;
        for shard in &self.shards {
            is_watched |= shard.with(|shard| {
                shard.keys.retain(|key, held| held.let_go(key, ahead, now, &mut leftovers));
                !shard.keys.is_empty()
            });
        }
        (leftovers, is_watched)
    }

    /// Takes all.
    pub(crate) fn drain(&self, now: Instant) -> Vec<Leftover> {
        self.leftovers(None, now).0
    }

    /// The units that are held and not spent.
    pub(crate) fn units(&self) -> u64 {
        self.shards.iter().map(|shard| shard.with(|shard| shard.units())).sum()
    }

    /// Forgets what is held of a key, and what is being debited: a reset gives all of it back.
    ///
    /// To be called before the reset and once more after it, since what is debited between the two
    /// may be given back too.
    pub(crate) fn forget(&self, key: &str) {
        self.shard(key).with(|shard| shard.forget(key));
    }

    fn shard(&self, key: &str) -> &L {
        &self.shards[self.hasher.hash_one(key) as usize % self.shards.len()]
    }
}

impl Shard {
    /// Notes the first check of a key, or the first on other terms.
    fn begin(&mut self, key: &str, terms: &LeaseTerms, cost: Cost, now: Instant) {
        let before = self.keys.get(key).map(|held| held.debit.voided());
        if terms.ttl() < LeaseTerms::TTL_MIN
            || (before.is_none() && self.keys.len() >= SHARD_LEN_MAX)
        {
            return;
        }
        let held = Key {
            debit: before.unwrap_or(Debit::No),
            beginning: self.next_beginning(),
            ..Key::new(*terms, cost, now)
        };
        self.keys.insert(key.to_owned(), held);
    }

    fn forget(&mut self, key: &str) {
        let beginning = self.next_beginning();
        let Some(held) = self.keys.get_mut(key) else { return };
        if held.debit == Debit::No {
            self.keys.remove(key);
        } else {
            // It stays, so that no other debit begins before this one has ended.
            held.slices.clear();
            held.debit = Debit::Void;
            held.beginning = beginning;
        }
    }

    fn next_beginning(&mut self) -> u64 {
        self.beginnings += 1;
        self.beginnings
    }

    fn units(&self) -> u64 {
        self.keys.values().map(Key::held).sum()
    }
}
