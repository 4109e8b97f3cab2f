//! Spending from a few buckets that are stored: what nearly all requests of several charges do.

use tollgate_core::{Charge, Decisions, JudgedBucket, Operation, StoreError, Timestamp};

use crate::kept_bucket::Spent;
use crate::key_hash::Key;
use crate::shard_lock::Locked;
use crate::store::{MemoryStore, check_key};

impl MemoryStore {
    /// What [`decide`](Self::decide) does for a few charges that spend.
    ///
    /// Buckets that are stored under the quotas that are charged are changed in place. Nothing is
    /// added or removed then, so no room is needed, and slots hold until all is written.
    pub(super) fn decide_few<const N: usize>(
        &self,
        few: [&Charge<'_>; N],
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        Charge::validate(charges)?;
        charges.iter().try_for_each(check_key)?;
        match self.spend_known(few, now) {
            Some(decisions) => Ok(decisions),
            None => self.decide_all(Operation::Spend, charges, now),
        }
    }

    /// Spends from buckets that are stored under the quotas that are charged. `None` if one of them
    /// is not, or is counted by another algorithm than those by level.
    #[inline(always)]
    fn spend_known<'q, const N: usize>(
        &self,
        charges: [&Charge<'q>; N],
        now: Timestamp,
    ) -> Option<Decisions> {
        if charges.iter().any(|charge| charge.quota.units_per_tick() == 0) {
            return None;
        }
        let keys = charges.map(|charge| self.key(charge.key));
        let (mut locked, places) = self.lock_few(keys);
        let mut judged: [Option<(usize, JudgedBucket<'q>)>; N] = [None; N];
        let mut admitted = true;
        for index in 0..N {
            let (charge, shard) = (charges[index], locked[places[index]].as_ref()?);
            let found = shard.judge_known(keys[index], charge, self.max_clock_skew, now)?;
            admitted &= charge.shadow || found.1.is_fit();
            judged[index] = Some(found);
        }
        // All are found and locked from here on, so that all is written.
        let mut decided = [None; N];
        let (mut is_changed, mut is_in_order) = (false, true);
        for index in 0..N {
            let (charge, shard) = (charges[index], locked[places[index]].as_mut()?);
            let spends = admitted || charge.shadow;
            let (said, spent) = shard.carry_out(judged[index]?, charge.quota, spends, now)?;
            decided[index] = Some(said);
            is_changed |= spent != Spent::Nothing;
            is_in_order &= spent != Spent::OutOfOrder;
        }
        if !is_in_order {
            keys.iter().zip(places).for_each(|(key, place)| {
                if let Some(shard) = &mut locked[place] {
                    shard.put_forward(*key);
                }
            });
        }
        if is_changed {
            locked.iter_mut().flatten().for_each(|shard| self.settle_later(shard, now));
        }
        drop(locked);
        let mut decisions = Decisions::new();
        for decided in decided.into_iter().flatten() {
            decisions.push(decided.decision());
        }
        Some(decisions)
    }

    /// Locks the shards of a few keys, each once and in ascending order as a
    /// [`LockPlan`](crate::store::lock_plan::LockPlan) does, and tells which lock is whose.
    #[inline(always)]
    fn lock_few<const N: usize>(
        &self,
        keys: [Key<'_>; N],
    ) -> ([Option<Locked<'_>>; N], [usize; N]) {
        let shards = keys.map(|key| self.shard_of(key.hash));
        let mut order = shards;
        order.sort_unstable();
        let mut locked = [const { None }; N];
        for index in 0..N {
            if index == 0 || order[index] != order[index - 1] {
                locked[index] = Some(self.shards[order[index]].lock());
            }
        }
        // The first of those that are alike has the lock.
        let places =
            shards.map(|shard| order.iter().position(|other| *other == shard).unwrap_or(0));
        (locked, places)
    }
}
