//! Who waits to go with others.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{Charge, Cost, Decisions, Quota, StoreError, Timestamp};

use super::batch::{Batch, Room};
use super::pace::Pace;
use super::seats::{Waiter, Waits};
use super::watch::Watched;

/// How many charges are worth a call beside one that is in flight: it costs the server as much as
/// half of them.
const CHARGES_APART_MIN: usize = if cfg!(test) { 2 } else { 16 };

/// How many checks are in flight at most if small calls go beside each other.
pub(super) const FEW_CHECKS_MAX: usize = if cfg!(test) { 2 } else { 8 };

/// How many calls are in flight if one of many charges is: while the server works on one, the other is on its
/// way.
const LARGE_CALLS_MAX: usize = 2;

/// What one who waited is told.
#[derive(Debug)]
pub(super) enum Told {
    Decided(Decisions),
    /// The batch could not decide it: it goes alone.
    GoesAlone,
    Failed(StoreError),
    /// Its deadline has passed.
    Late {
        /// Whether it may have spent.
        was_sent: bool,
    },
    /// The runtime that it relied on has ended.
    Interrupted,
}

/// What a check is charged to, with the hash of each key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<'a> {
    pub(super) charges: &'a [Charge<'a>],
    pub(super) hashes: &'a [u64],
}

pub(super) type Hashes = SmallVec<[u64; 2]>;

/// Batches that are being filled, and the calls that are in flight before them.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// All but the last are full, or are decided at another time.
    batches: VecDeque<Batch>,
    pub(super) in_flight: SmallVec<[InFlight; 2]>,
}

/// A turn that somebody has.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) turn: u64,
    /// How many checks go in the call.
    pub(super) checks: usize,
    /// When the call that it makes is over.
    pub(super) deadline: Instant,
}

/// A charge that outlives the caller's.
#[derive(Debug)]
pub(super) struct Kept {
    key: Box<str>,
    quota: Quota,
    cost: Cost,
    shadow: bool,
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether a check goes at once, if nobody waits.
    pub(super) fn may_call(&self, pace: &mut Pace, now: Instant) -> bool {
        let are_few = pace.admits(now);
        self.in_flight.is_empty() || (are_few && self.checks_in_flight() < FEW_CHECKS_MAX)
    }

    /// Whether those who wait go beside the calls in flight, of which there are none if they took too long.
    /// A few do not: with those who come until one of these is answered they cost the server one call.
    pub(super) fn may_call_beside(&self) -> bool {
        self.in_flight.is_empty() || (self.are_many() && self.in_flight.len() < LARGE_CALLS_MAX)
    }

    /// Whether those who wait go when the call in flight at `place` has ended.
    pub(super) fn may_go_on(&self, place: usize, pace: &mut Pace, now: Instant) -> bool {
        let others = self.in_flight.len().saturating_sub(1);
        let ended = self.in_flight.get(place).map_or(0, |ended| ended.checks);
        !self.is_empty()
            && (others == 0
                || (self.are_many() && others < LARGE_CALLS_MAX)
                || (self.checks_in_flight() - ended < FEW_CHECKS_MAX && pace.admits(now)))
    }

    fn checks_in_flight(&self) -> usize {
        self.in_flight.iter().map(|one| one.checks).sum()
    }

    fn are_many(&self) -> bool {
        self.batches.front().is_some_and(|batch| batch.charges() >= CHARGES_APART_MIN)
    }

    /// Has a check wait behind those that came before it.
    pub(super) fn push(
        &mut self,
        check: Hashed<'_>,
        now: Timestamp,
        waits: Waits,
        watched: &mut Watched,
    ) -> Waiter {
        let last = self.batches.back_mut();
        if let Some((last, room)) =
            last.and_then(|last| last.room(check, now).map(|room| (last, room)))
        {
            return last.join(check, room, waits);
        }
        let mut batch = Batch::new(now);
        watched.push(waits.deadline, batch.seats());
        let waiter = batch.join(check, Room::StepOfItsOwn, waits);
        self.batches.push_back(batch);
        waiter
    }

    /// Takes those who go next and are still waited for, and tells how many that waited are gone.
    pub(super) fn take(&mut self, at: Instant) -> (Option<Batch>, usize) {
        let mut gone = 0;
        while let Some(mut batch) = self.batches.pop_front() {
            gone += batch.checks();
            batch.drop_unwanted(at);
            if batch.checks() > 0 {
                return (Some(batch), gone);
            }
        }
        (None, gone)
    }
}

impl Kept {
    pub(super) fn new(charge: &Charge<'_>) -> Self {
        let Charge { key, quota, cost, shadow, .. } = *charge;
        Self { key: key.into(), quota: *quota, cost, shadow }
    }

    pub(super) fn charge(&self) -> Charge<'_> {
        Charge::new(&self.key, &self.quota, self.cost).with_shadow(self.shadow)
    }

    pub(super) fn is(&self, charge: &Charge<'_>) -> bool {
        *self.key == *charge.key
            && self.cost == charge.cost
            && self.shadow == charge.shadow
            && self.quota == *charge.quota
    }
}

/// Hashes the keys of charges.
pub(super) fn hashes(hasher: &RandomState, charges: &[Charge<'_>]) -> Hashes {
    let mut hashes = Hashes::new();
    for charge in charges {
        let mut hasher = hasher.build_hasher();
        hasher.write(charge.key.as_bytes());
        hashes.push(hasher.finish());
    }
    hashes
}
