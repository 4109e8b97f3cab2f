//! The concurrency limit: at most so many requests in flight.
//!
//! Each slot in use is a lease with a [`Ticket`] and an end. Its holder renews it while it works and
//! releases it when it is done; a holder that crashes does neither, and its slots come back when
//! the lease ends. A request may hold several slots, as many as its cost.
//!
//! # What it guarantees
//!
//! At most `limit` units are leased at any instant. Release is idempotent, and so is taking slots
//! under an id that already holds some: it renews them. **Worst case: a crashed holder keeps its
//! slots for one `lease_ttl`**, and a holder that goes on working without renewing is no longer
//! counted after it.
//!
//! The `retry_after` of a denial is the time until enough leases end if none is renewed or
//! released; a release frees slots earlier.
//!
//! A lease that ends later than `lease_ttl` from now, by more than the clock skew that is
//! tolerated, stems from a clock that stepped back or from a longer `lease_ttl` of before; it is
//! shortened to `lease_ttl` from now (G4). A renewal never shortens a lease otherwise.
//!
//! # What it costs
//!
//! One entry per lease, at most `limit`, which is why the limit is at most 10,000. Taking,
//! renewing and releasing take logarithmic time.
//!
//! # When to choose it
//!
//! When what hurts is the number of requests at work, not their rate: database connections, slow
//! exports, long polls.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Charge, Cost, Ticket, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::concurrency(1, Duration::from_secs(30))?;
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let charge = Charge::new("key", &quota, Cost::ONE);
//! let mut state = None;
//!
//! let mine = charge.with_ticket(Ticket::new(1));
//! let (decision, change) = mine.decide(None, MAX_CLOCK_SKEW_DEFAULT, now);
//! assert!(decision.is_allow());
//! change.apply(&mut state);
//!
//! let other = charge.with_ticket(Ticket::new(2));
//! let later = now.saturating_add(Duration::from_secs(10));
//! let (decision, _) = other.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, later);
//! assert_eq!(decision.retry_after(), Some(Duration::from_secs(20)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cost::Cost;
use crate::decision::{Allow, Decision, Deny};
use crate::edit::Edit;
use crate::quota::Quota;
use crate::record::Record;
use crate::state::Change;
use crate::ticket::Ticket;
use crate::time::Timestamp;
use crate::view::View;

/// The stored state of a concurrency limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    leases: BTreeMap<Ticket, Lease>,
    by_end: BTreeSet<(Timestamp, Ticket)>,
    /// The units of all leases, those that have ended included.
    units: u64,
}

/// Slots in use under one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The number of slots.
    pub units: u64,
    /// The instant at which the slots come back.
    pub ends: Timestamp,
}

impl Slots {
    /// Returns the leases with their ids, in the order in which they end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Ticket, Lease)> {
        self.by_end.iter().filter_map(|(_, id)| Some((*id, *self.leases.get(id)?)))
    }

    pub(crate) fn wind_back(&mut self, by: Duration) {
        let leases: Vec<_> = self.iter().collect();
        for (id, lease) in leases {
            self.put(id, Lease { ends: lease.ends.saturating_sub(by), ..lease });
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        // A node of a tree holds up to eleven entries, and is half full or more.
        let entry = size_of::<(Ticket, Lease)>() + size_of::<(Timestamp, Ticket)>();
        2 * entry * self.leases.len()
    }

    fn put(&mut self, id: Ticket, lease: Lease) {
        self.take(id);
        self.leases.insert(id, lease);
        self.by_end.insert((lease.ends, id));
        self.units = self.units.saturating_add(lease.units);
    }

    fn take(&mut self, id: Ticket) {
        if let Some(lease) = self.leases.remove(&id) {
            self.by_end.remove(&(lease.ends, id));
            self.units -= lease.units;
        }
    }

    fn drop_ended(&mut self, now: Timestamp) {
        while let Some((ends, id)) = self.by_end.first().copied() {
            if ends > now {
                return;
            }
            self.take(id);
        }
    }

    /// Shortens every lease that ends after `latest` so that it ends at `ends`.
    fn shorten(&mut self, latest: Timestamp, ends: Timestamp) {
        while let Some((end, id)) = self.by_end.last().copied() {
            if end <= latest {
                return;
            }
            let units = self.leases.get(&id).map_or(0, |lease| lease.units);
            self.put(id, Lease { units, ends });
        }
    }
}

/// A change to the slots of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotsEdit {
    now: Timestamp,
    bounds: Bounds,
    kind: SlotsEditKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SlotsEditKind {
    /// Only shorten what lasts too long.
    Repair,
    /// Hold slots under an id, in place of what it holds.
    Hold { id: Ticket, units: u64 },
    /// Give back what an id holds.
    Release { id: Ticket },
}

/// When leases end that are made at `now`, and the latest end that a clock skew explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bounds {
    ends: Timestamp,
    latest: Timestamp,
}

impl SlotsEdit {
    pub(crate) fn apply(self, slots: &mut Slots) {
        slots.shorten(self.bounds.latest, self.bounds.ends);
        match self.kind {
            SlotsEditKind::Repair => {}
            SlotsEditKind::Hold { id, units } => {
                slots.drop_ended(self.now);
                // A clock that is a little back must not shorten what it renews.
                let held_until = slots.leases.get(&id).map_or(Timestamp::EPOCH, |lease| lease.ends);
                slots.put(id, Lease { units, ends: self.bounds.ends.max(held_until) });
            }
            SlotsEditKind::Release { id } => {
                slots.drop_ended(self.now);
                slots.take(id);
            }
        }
    }

    pub(crate) fn on_empty(self) -> Slots {
        let mut slots = Slots::default();
        self.apply(&mut slots);
        slots
    }
}

/// A concurrency limit at `now`, seen by the holder of one id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotsView<'a> {
    quota: &'a Quota,
    slots: Option<&'a Slots>,
    id: Option<Ticket>,
    now: Timestamp,
    bounds: Bounds,
    used: u64,
}

impl<'a> SlotsView<'a> {
    pub(crate) fn new(
        quota: &'a Quota,
        slots: Option<&'a Slots>,
        id: Option<Ticket>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let ends = now.saturating_add(quota.rate().period());
        let bounds = Bounds { ends, latest: ends.saturating_add(max_clock_skew) };
        let used = slots.map_or(0, |slots| {
            let ended = slots.iter().map(|(_, lease)| lease).take_while(|lease| lease.ends <= now);
            slots.units - ended.map(|lease| lease.units).sum::<u64>()
        });
        Self { quota, slots, id, now, bounds, used }
    }

    /// The leases that have not ended, the soonest to end first.
    fn live(&self) -> impl DoubleEndedIterator<Item = (Ticket, Lease)> + use<'a> {
        let (now, bounds) = (self.now, self.bounds);
        self.slots.into_iter().flat_map(Slots::iter).filter(move |(_, lease)| lease.ends > now).map(
            move |(id, lease)| {
                let too_long = lease.ends > bounds.latest;
                (id, Lease { ends: if too_long { bounds.ends } else { lease.ends }, ..lease })
            },
        )
    }

    fn held(&self) -> Option<Lease> {
        let lease = self.slots?.leases.get(&self.id?)?;
        (lease.ends > self.now).then_some(*lease)
    }

    /// The time until `units` more are free, if nothing is renewed or released.
    fn until_freed(&self, units: u64) -> Duration {
        let leases = self.live().map(|(_, lease)| lease);
        if self.is_too_long() {
            let mut leases: Vec<_> = leases.collect();
            leases.sort_by_key(|lease| lease.ends);
            return self.until_ended(leases.into_iter(), units);
        }
        self.until_ended(leases, units)
    }

    /// The time until the first of `leases` that together have `units` have ended.
    fn until_ended(&self, leases: impl Iterator<Item = Lease>, units: u64) -> Duration {
        let mut freed = 0;
        let mut after = Duration::ZERO;
        for lease in leases {
            if freed >= units {
                break;
            }
            freed += lease.units;
            after = lease.ends.saturating_since(self.now);
        }
        after
    }

    fn last_end(&self) -> Duration {
        let ends = self.last_end_of(|_| true);
        ends.map_or(Duration::ZERO, |ends| ends.saturating_since(self.now))
    }

    fn last_end_but_of(&self, id: Ticket) -> Option<Timestamp> {
        self.last_end_of(|other| other != id)
    }

    /// The last end of the leases that `counts`. Unless some must be shortened, the last to end is
    /// the first that is looked at.
    fn last_end_of(&self, counts: impl Fn(Ticket) -> bool) -> Option<Timestamp> {
        let mut ends = self.live().filter(|(id, _)| counts(*id)).map(|(_, lease)| lease.ends);
        if self.is_too_long() { ends.max() } else { ends.next_back() }
    }

    fn remaining(&self, used: u64) -> u32 {
        let left = u64::from(self.quota.burst()).saturating_sub(used);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn allow(&self, used: u64, reset_after: Duration) -> Decision {
        Decision::Allow(Allow {
            limit: self.quota.burst(),
            remaining: self.remaining(used),
            reset_after,
            delay: Duration::ZERO,
        })
    }

    const fn edit(&self, kind: SlotsEditKind) -> Change {
        Change::Edit(Edit::Slots(SlotsEdit { now: self.now, bounds: self.bounds, kind }))
    }

    fn is_too_long(&self) -> bool {
        let last = self.slots.and_then(|slots| slots.by_end.last());
        last.is_some_and(|(ends, _)| *ends > self.bounds.latest)
    }

    fn repair(&self) -> Change {
        if self.is_too_long() { self.edit(SlotsEditKind::Repair) } else { Change::Keep }
    }

    /// Extends what the id holds, or denies if it holds nothing.
    pub(crate) fn has_lease(&self) -> bool {
        self.held().is_some()
    }

    pub(crate) fn renew(self, cost: Cost) -> (Decision, Change) {
        let (Some(lease), Some(id)) = (self.held(), self.id) else { return self.deny(cost) };
        let reset_after = self.bounds.ends.saturating_since(self.now).max(self.last_end());
        let change = self.edit(SlotsEditKind::Hold { id, units: lease.units });
        (self.allow(self.used, reset_after), change)
    }

    /// Gives back what the id holds, if anything.
    pub(crate) fn release(self) -> (Decision, Change) {
        let (Some(lease), Some(id)) = (self.held(), self.id) else {
            return (self.allow(self.used, self.last_end()), self.repair());
        };
        let last = self.last_end_but_of(id);
        let change =
            if last.is_none() { Change::Remove } else { self.edit(SlotsEditKind::Release { id }) };
        let reset_after = last.map_or(Duration::ZERO, |ends| ends.saturating_since(self.now));
        (self.allow(self.used - lease.units, reset_after), change)
    }
}

impl View for SlotsView<'_> {
    fn fits(&self, cost: Cost) -> bool {
        let fits = || self.used.saturating_add(cost.units()) <= u64::from(self.quota.burst());
        cost.is_zero() || self.held().is_some() || fits()
    }

    fn spend(self, cost: Cost) -> (Decision, Change) {
        // Without an id nobody could give the slots back, so they are only judged.
        let Some(id) = self.id else { return self.keep(cost) };
        if self.held().is_some() {
            return self.renew(cost);
        }
        let reset_after = self.bounds.ends.saturating_since(self.now).max(self.last_end());
        let change = self.edit(SlotsEditKind::Hold { id, units: cost.units() });
        (self.allow(self.used.saturating_add(cost.units()), reset_after), change)
    }

    fn keep(self, _cost: Cost) -> (Decision, Change) {
        (self.allow(self.used, self.last_end()), self.repair())
    }

    fn deny(self, cost: Cost) -> (Decision, Change) {
        let limit = u64::from(self.quota.burst());
        let too_many = self.used.saturating_add(cost.units()).saturating_sub(limit);
        let deny = Deny {
            limit: self.quota.burst(),
            remaining: self.remaining(self.used),
            reset_after: self.last_end(),
            retry_after: self.until_freed(too_many),
        };
        (Decision::Deny(deny), self.repair())
    }

    fn refund(self, cost: Cost) -> (Decision, Change) {
        // Slots are given back by their lease, never by number.
        self.keep(cost)
    }

    fn give_back(self, cost: Cost, _reserved: &Record) -> (Decision, Change) {
        self.keep(cost)
    }
}
