//! One atomic step for the charges of a request.

use smallvec::SmallVec;
use tollgate_core::{
    Charge, Decisions, Effects, Operation, StoreError, Stored, Timestamp, decide_together,
};

use crate::room::Balance;
use crate::shard_lock::Locked;
use crate::store::effect::Effect;
use crate::store::lock_plan::LockPlan;
use crate::store::{MemoryStore, check_key};

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
                    let effect = Effect::of(&effects, index);
                    is_write |= effect.is_write();
                    self.write(&mut locked[place.lock], (place.key(charge), charge), effect, now);
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
        (plan, locked): (&LockPlan, &[Locked<'_>]),
        now: Timestamp,
    ) -> (Effects, Balance) {
        let stored: SmallVec<[Stored<'_>; 4]> = charges
            .iter()
            .zip(&plan.places)
            .map(|(charge, place)| {
                self.stored(&locked[place.lock], operation, (place.key(charge), charge))
            })
            .collect();
        let effects = decide_together(operation, charges, &stored, self.max_clock_skew, now);
        let balance = |(index, stored)| Effect::of(&effects, index).balance(stored);
        let balance = stored.iter().enumerate().map(balance).sum();
        (effects, balance)
    }
}
