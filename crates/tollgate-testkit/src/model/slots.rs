//! Slots in flight, as a list of leases.

use std::time::Duration;

use tollgate_core::{Charge, Ticket, Timestamp};

use super::{Contents, Stored, time_until_free};

/// Slots that are held under a ticket until an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    ticket: Ticket,
    units: u64,
    ends: Timestamp,
}

/// The slots now, to the holder of a ticket.
pub(super) struct Slots {
    limit: u64,
    ticket: Option<Ticket>,
    /// When a lease ends that is made now.
    ends: Timestamp,
    now: Timestamp,
    running: Vec<Lease>,
    ended: Vec<Lease>,
    written: bool,
}

impl Slots {
    pub(super) fn new(
        charge: &Charge<'_>,
        lease_ttl: Duration,
        stored: &[Lease],
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let ends = now.saturating_add(lease_ttl);
        let latest = ends.saturating_add(max_clock_skew);
        let mut slots = Self {
            limit: u64::from(charge.quota.burst()),
            ticket: charge.ticket,
            ends,
            now,
            running: Vec::new(),
            ended: Vec::new(),
            written: false,
        };
        for lease in stored {
            if lease.ends <= now {
                slots.ended.push(*lease);
            } else if lease.ends > latest {
                slots.running.push(Lease { ends, ..*lease });
                slots.written = true;
            } else {
                slots.running.push(*lease);
            }
        }
        slots
    }

    fn used(&self) -> u64 {
        self.running.iter().map(|lease| lease.units).sum()
    }

    fn is_held(&self) -> bool {
        self.running.iter().any(|lease| Some(lease.ticket) == self.ticket)
    }

    /// The time from now until so many of the slots in use have come back.
    fn time_until_free(&self, units: u64) -> Duration {
        let ends = self.running.iter().map(|lease| (lease.ends.as_micros(), lease.units));
        time_until_free(ends, units, self.now)
    }
}

impl Contents for Slots {
    fn fits(&self, units: u64) -> bool {
        self.is_held() || self.used() + units <= self.limit
    }

    fn take(&mut self, units: u64) {
        if self.renew() {
            return;
        }
        if let Some(ticket) = self.ticket {
            self.running.push(Lease { ticket, units, ends: self.ends });
            self.ended.clear();
            self.written = true;
        }
    }

    fn give_back(&mut self, _units: u64) {}

    fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    fn reset_after(&self) -> Duration {
        self.time_until_free(self.used())
    }

    fn retry_after(&self, units: u64) -> Duration {
        self.time_until_free(self.used().saturating_add(units).saturating_sub(self.limit))
    }

    fn renew(&mut self) -> bool {
        let Some(lease) = self.running.iter_mut().find(|lease| Some(lease.ticket) == self.ticket)
        else {
            return false;
        };
        lease.ends = lease.ends.max(self.ends);
        self.ended.clear();
        self.written = true;
        true
    }

    fn release(&mut self) {
        if self.is_held() {
            self.running.retain(|lease| Some(lease.ticket) != self.ticket);
            self.ended.clear();
            self.written = true;
        }
    }

    fn write(self: Box<Self>, stored: &mut Option<Stored>) {
        if self.written {
            let leases: Vec<_> = self.running.into_iter().chain(self.ended).collect();
            *stored = (!leases.is_empty()).then_some(Stored::Leases(leases));
        }
    }
}
