//! Where checks wait, and who may send.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use foldhash::quality::RandomState;
#[cfg(not(test))]
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;
use tollgate_core::{Charge, Timestamp};

use super::batch::Batch;
#[cfg(test)]
use super::model::Mutex;
use super::pace::Pace;
use super::seats::{Waiter, Waits};
use super::turn::{Server, Turn};
use super::waiting::{Hashed, InFlight, Lane, hashes};
use super::watch::{Watch, Watched};
use crate::key::HashSlot;

/// How many checks wait at most. More would wait for longer than their deadline.
pub(super) const WAITING_MAX: usize = if cfg!(test) { 5 } else { 1 << 16 };

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
    watched: Watched,
    pace: Pace,
    /// How many turns there have been.
    turns: u64,
}

/// What a check is to do.
pub(super) enum Place<S: Server> {
    First(Turn<S>),
    /// The first poll of the future is to follow at once, by the task whose waker was given.
    Behind(Waiter),
    Full,
    /// There is no runtime, so nobody would see to its deadline.
    Unwatched,
}

impl Coalescer {
    /// Finds a place for a check: it goes first, or it waits behind others.
    pub(super) fn place<S: Server>(
        server: &Arc<S>,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Instant,
        waker: &Waker,
    ) -> Place<S> {
        let coalescer = server.coalescer();
        let hashes = hashes(&coalescer.hasher, charges);
        let mut guard = coalescer.lanes.lock();
        let lanes = &mut *guard;
        let lane = lanes.by_slot.entry(slot).or_default();
        // A caller that keeps its future but does not poll it holds nobody else up for long.
        let timeout = server.timeout();
        let is_over = |turn: &InFlight| deadline >= turn.deadline + timeout;
        if lane.in_flight.iter().any(is_over) {
            lane.in_flight.retain(|turn| !is_over(turn));
        }
        let at = deadline.checked_sub(timeout).unwrap_or(deadline);
        let mut begin = |lane: &mut Lane, checks: usize| {
            let turn = lanes.turns;
            lanes.turns += 1;
            lane.in_flight.push(InFlight { turn, checks, deadline });
            Turn::new(Arc::clone(server), slot, turn)
        };
        if lane.is_empty() && lane.may_call(&mut lanes.pace, at) {
            return Place::First(begin(lane, 1));
        }
        let Some(runtime) = server.runtime() else { return Place::Unwatched };
        let mut begins_watch = false;
        let place = if lanes.waiting < WAITING_MAX {
            let waits = Waits { deadline, waker: waker.clone(), runtime };
            let check = Hashed { charges, hashes: &hashes };
            let waiter = lane.push(check, now, waits, &mut lanes.watched);
            begins_watch = lanes.watched.begins(runtime);
            lanes.waiting += 1;
            Place::Behind(waiter)
        } else {
            Place::Full
        };
        let turn = lane.may_call_beside().then(|| begin(lane, 0));
        drop(guard);
        if begins_watch {
            server.spawn_watch(Watch::new(server, runtime));
        }
        // Its end has those sent who wait.
        drop(turn);
        place
    }

    /// Tells those who are late so; returns the next deadline, or `last` if that comes first, or ends
    /// the watch of a runtime if nobody waits.
    pub(super) fn expire(
        &self,
        runtime: runtime::Id,
        now: Instant,
        last: Instant,
    ) -> Option<Instant> {
        let (due, next) = self.lanes.lock().watched.due(runtime, now)?;
        due.iter().filter_map(|seats| seats.expire(now)).chain(next).chain([last]).min()
    }

    /// Tells those who came from a runtime that it has ended.
    pub(super) fn end_watch(&self, runtime: runtime::Id) {
        let seats = self.lanes.lock().watched.end(runtime);
        seats.iter().for_each(|seats| seats.interrupt(runtime));
    }

    /// Takes those who go next, or ends the turn if nobody waits. A turn that was given to others
    /// since it took too long has nobody to send.
    pub(super) fn next(
        &self,
        slot: HashSlot,
        turn: u64,
        now: Instant,
        deadline: Instant,
    ) -> Option<Batch> {
        let mut guard = self.lanes.lock();
        let lanes = &mut *guard;
        let lane = lanes.by_slot.get_mut(&slot)?;
        let place = lane.in_flight.iter().position(|one| one.turn == turn)?;
        let (batch, gone) = match lane.may_go_on(place, &mut lanes.pace, now) {
            true => lane.take(now),
            false => (None, 0),
        };
        lanes.waiting -= gone;
        if let Some(batch) = batch {
            let in_flight = &mut lane.in_flight[place];
            (in_flight.checks, in_flight.deadline) = (batch.checks(), deadline);
            return Some(batch);
        }
        lane.in_flight.swap_remove(place);
        if lane.in_flight.is_empty() {
            lanes.by_slot.remove(&slot);
        }
        None
    }

    /// How many checks wait, and how many turns there are in each lane.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, Vec<usize>) {
        let lanes = self.lanes.lock();
        (lanes.waiting, lanes.by_slot.values().map(|lane| lane.in_flight.len()).collect())
    }
}
