//! One atomic step for the charges of a request.

use smallvec::SmallVec;
use tollgate_core::{
    Charge, Decisions, Effects, Operation, Record, State, StoreError, Stored, Timestamp,
    decide_together,
};

use crate::room::Balance;
use crate::shard_lock::Locked;
use crate::store::effect::Effect;
use crate::store::lock_plan::{LockPlan, Place};
use crate::store::{MemoryStore, check_key};

/// What is stored for a charge.
struct Found<'s> {
    is_stored: bool,
    bucket: Option<State>,
    exact: Option<&'s State>,
    record: Option<Record>,
}

impl Found<'_> {
    fn stored(&self) -> Stored<'_> {
        Stored { state: self.bucket.as_ref().or(self.exact), record: self.record }
    }
}

impl MemoryStore {
    /// What [`decide`](Self::decide) does, for any operation and any number of charges.
    pub(super) fn decide_all(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        Charge::validate(charges)?;
        charges.iter().try_for_each(check_key)?;
        let plan = LockPlan::new(self, charges);
        let mut reservation = self.room.reserve_nothing();
        loop {
            let mut locked = plan.lock(self);
            let (effects, balance) = self.judge_all(operation, charges, (&plan, &locked), now);
            let need = balance.need();
            if reservation.cover(need) {
                let mut is_write = false;
                for (index, (charge, place)) in charges.iter().zip(&plan.places).enumerate() {
                    let (effect, key) = (Effect::of(&effects, index), place.key);
                    let shard = &mut locked[place.lock];
                    is_write |= effect.is_write();
                    // What one charge adds or removes moves others, so they have to be found again.
                    self.write(shard, (key, shard.find(key)), charge, effect, now);
                }
                reservation.settle(balance);
                // Not before all is written: what they evict may be another bucket of the request.
                if is_write {
                    locked.iter_mut().for_each(|shard| self.settle_on_the_way(shard, now));
                }
                return Ok(effects.decisions);
            }
            drop(locked);
            let near = plan.order.first().copied().unwrap_or(0);
            self.make_room(&mut reservation, need, near, now)?;
        }
    }

    /// Decides all charges of a request, and tells what they add and remove.
    fn judge_all(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        (plan, locked): (&LockPlan<'_>, &[Locked<'_>]),
        now: Timestamp,
    ) -> (Effects, Balance) {
        let find = |(charge, place): (&Charge<'_>, &Place<'_>)| {
            let (shard, key) = (&locked[place.lock], place.key);
            let slot = shard.find(key);
            Found {
                is_stored: slot.is_some(),
                bucket: slot.and_then(|slot| shard.bucket_state(slot)),
                exact: slot.and_then(|slot| shard.exact_state(slot)),
                record: self.record(shard, operation, (key, charge)),
            }
        };
        let found: SmallVec<[Found<'_>; 2]> = charges.iter().zip(&plan.places).map(find).collect();
        let stored: SmallVec<[Stored<'_>; 2]> = found.iter().map(Found::stored).collect();
        let effects = decide_together(operation, charges, &stored, self.max_clock_skew, now);
        let balance = |(index, found): (usize, &Found<'_>)| {
            Effect::of(&effects, index).balance(found.is_stored, found.record.is_some())
        };
        let balance = found.iter().enumerate().map(balance).sum();
        (effects, balance)
    }
}
