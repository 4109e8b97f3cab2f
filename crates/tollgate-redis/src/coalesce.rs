//! Checks that arrive while calls are in flight go together in the next one.
//!
//! A check that finds nothing in flight goes at once and alone. Those that come meanwhile wait for
//! its answer, and then go in one call, in the order of their arrival; checks of the same bucket and
//! cost are one step of it. So a key that thousands wait for costs the server one step per call,
//! and a call costs it less per check than calls of their own.
//!
//! The script spends for one after the other, and replies what was there before each. From that,
//! core decides here what each is told: exactly what calls of their own would have been told in
//! that order (G6, G8).

mod batch;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Algorithm, Charge, Decisions, Operation, StoreError, Timestamp};

use self::batch::Batch;
use self::waiting::{Hashed, InFlight, Lane, Waiting, hashes};
use crate::error;
use crate::key::HashSlot;
use crate::store::Inner;

/// How many calls of one lane are in flight before checks wait: while the server works on one, the
/// other is on its way.
const IN_FLIGHT_MAX: usize = 2;

/// How many checks wait at most. More would wait for longer than their deadline.
const WAITING_MAX: usize = 1 << 16;

/// Where checks wait: in one lane for a single server, in a cluster in one for each slot in use,
/// since a call reaches one slot.
#[derive(Debug, Default)]
pub(crate) struct Coalescer {
    lanes: Mutex<Lanes>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Lanes {
    by_slot: HashMap<HashSlot, Lane, RandomState>,
    waiting: usize,
    /// How many turns there have been.
    turns: u64,
}

/// What one who waited is told.
#[derive(Debug)]
enum Told {
    Decided(Decisions),
    /// The batch could not decide it: it goes alone.
    GoesAlone,
    Failed(StoreError),
}

/// What a check is to do.
enum Place {
    First(Turn),
    Behind(oneshot::Receiver<Told>),
    Full,
}

impl Coalescer {
    /// Tells whether such charges can wait for others.
    pub(crate) fn takes(operation: Operation, charges: &[Charge<'_>]) -> bool {
        operation == Operation::Spend
            && charges.iter().all(|charge| {
                let algorithm = charge.quota.algorithm();
                matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
                    && !charge.cost.is_zero()
                    && charge.quota.admits(charge.cost)
            })
    }

    /// Finds a place for a check: it goes first, or it waits behind others.
    fn place(
        inner: &Arc<Inner>,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
    ) -> Place {
        let hashes = hashes(&inner.coalescer.hasher, charges);
        let mut guard = inner.coalescer.lanes.lock();
        let lanes = &mut *guard;
        let lane = lanes.by_slot.entry(slot).or_default();
        // A caller that keeps its future but does not poll it holds nobody else up for long.
        let timeout = inner.transport.timeout;
        lane.in_flight.retain(|turn| deadline < turn.deadline + timeout);
        let has_turn = lane.in_flight.len() < IN_FLIGHT_MAX;
        if has_turn && lane.is_empty() {
            let turn = lanes.turns;
            lanes.turns += 1;
            lane.in_flight.push(InFlight { turn, deadline });
            return Place::First(Turn { inner: Arc::clone(inner), slot, turn });
        }
        if lanes.waiting >= WAITING_MAX {
            return Place::Full;
        }
        let (answer, answered) = oneshot::channel();
        lane.push(Hashed { charges, hashes: &hashes }, now, Waiting { deadline, answer });
        lanes.waiting += 1;
        if has_turn {
            let turn = lanes.turns;
            lanes.turns += 1;
            lane.in_flight.push(InFlight { turn, deadline });
            drop(guard);
            // Its end has those sent who wait.
            drop(Turn { inner: Arc::clone(inner), slot, turn });
        }
        Place::Behind(answered)
    }

    /// Takes those who go next, or ends the turn if nobody waits. A turn that was given to others
    /// since it took too long has nobody to send.
    fn next(&self, slot: HashSlot, turn: u64, deadline: Instant) -> Option<Batch> {
        let mut guard = self.lanes.lock();
        let lanes = &mut *guard;
        let lane = lanes.by_slot.get_mut(&slot)?;
        let place = lane.in_flight.iter().position(|one| one.turn == turn)?;
        let (batch, gone) = lane.take(Instant::now());
        lanes.waiting -= gone;
        if batch.is_some() {
            lane.in_flight[place].deadline = deadline;
            return batch;
        }
        lane.in_flight.swap_remove(place);
        if lane.in_flight.is_empty() {
            lanes.by_slot.remove(&slot);
        }
        None
    }
}

/// A call in flight, or several after each other. When it ends, those who waited meanwhile go.
struct Turn {
    inner: Arc<Inner>,
    slot: HashSlot,
    turn: u64,
}

impl Turn {
    fn next(&self) -> Option<Batch> {
        let deadline = self.inner.transport.deadline();
        self.inner.coalescer.next(self.slot, self.turn, deadline)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(batch) = self.next() else { return };
        let Self { slot, turn, .. } = *self;
        let turn = Self { inner: Arc::clone(&self.inner), slot, turn };
        // Whoever waits has a runtime; if it ends now, nobody waits any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(turn.go_on(batch));
        }
    }
}

impl Turn {
    /// Sends batches until nobody waits.
    async fn go_on(self, mut batch: Batch) {
        loop {
            let inner = &self.inner;
            let deadline = inner.transport.deadline();
            let command = |form| batch.command(inner, form);
            match inner.transport.send(self.slot, command, deadline).await {
                Ok(reply) => {
                    let told = batch.tell(&reply, inner.max_clock_skew);
                    if let Err(unheard) = told {
                        unheard.fail(&error::unintelligible(&inner.transport.target.name()));
                    }
                }
                Err(failed) => batch.fail(&failed.into_store_error(|_| None)),
            }
            match self.next() {
                Some(next) => batch = next,
                None => return,
            }
        }
    }
}

impl Inner {
    /// Spends with others that come at the same time.
    pub(crate) async fn spend_coalesced(
        self: &Arc<Self>,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let deadline = self.transport.deadline();
        let now_of_lane = match self.time_source {
            crate::TimeSource::Server => Timestamp::EPOCH,
            crate::TimeSource::Client => now,
        };
        let told = match Coalescer::place(self, slot, charges, now_of_lane, deadline) {
            Place::First(turn) => {
                let alone = self.decide_alone(Operation::Spend, slot, charges, now, deadline);
                let decided = Box::pin(alone).await;
                drop(turn);
                return decided;
            }
            Place::Behind(answered) => timeout_at(deadline, answered).await,
            Place::Full => return Err(error::too_many_waiting(WAITING_MAX)),
        };
        match told {
            Ok(Ok(Told::Decided(decisions))) => Ok(decisions),
            Ok(Ok(Told::GoesAlone)) => {
                let alone = self.decide_alone(Operation::Spend, slot, charges, now, deadline);
                Box::pin(alone).await
            }
            Ok(Ok(Told::Failed(error))) => Err(error),
            // Whoever is not wanted any more is dropped.
            Ok(Err(_)) if Instant::now() >= deadline => {
                Err(error::no_turn(&self.transport.target.name(), self.transport.timeout))
            }
            Ok(Err(_)) => Err(error::interrupted()),
            Err(_) => Err(error::no_answer(&self.transport.target.name(), self.transport.timeout)),
        }
    }
}
