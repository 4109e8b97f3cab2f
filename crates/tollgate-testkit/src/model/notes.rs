//! What is remembered under tickets: reservations and refunds.

use std::cmp::Ordering;
use std::time::Duration;

use tollgate_core::{Algorithm, Charge, Cost, Ticket, Timestamp};

use super::{Contents, allowed, spend};
use crate::answer::Answer;

/// How long a refund is remembered at least.
const REFUND_TTL_MIN: Duration = Duration::from_secs(600);

/// How long a refund is remembered at most.
const REFUND_TTL_MAX: Duration = Duration::from_secs(86_400);

/// The notes of one bucket, in the order in which they were made.
#[derive(Clone, Debug)]
pub(super) struct Notes(Vec<Note>);

#[derive(Clone, Copy, Debug)]
struct Note {
    ticket: Ticket,
    /// None for a refund, which cannot be settled.
    units: u64,
    since: Timestamp,
    /// When the queue had drained after it.
    queue_end: Timestamp,
    ends: Timestamp,
}

impl Notes {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Gives the cost back, unless that was done under the charge's ticket before.
    pub(super) fn refund_once(
        &mut self,
        contents: &mut dyn Contents,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Answer {
        if self.standing(charge.ticket, now).is_none() {
            contents.give_back(charge.cost.units());
            let ttl = charge.quota.fill_time().clamp(REFUND_TTL_MIN, REFUND_TTL_MAX);
            self.make(contents, (charge, 0), ttl, now);
        }
        allowed(contents)
    }

    /// Spends the cost and notes it, unless a reservation stands under the charge's ticket.
    pub(super) fn reserve(
        &mut self,
        contents: &mut dyn Contents,
        charge: &Charge<'_>,
        ttl: Duration,
        now: Timestamp,
    ) -> Answer {
        if self.standing(charge.ticket, now).is_some() {
            return spend(contents, &Charge { cost: Cost::ZERO, ..*charge });
        }
        let answer = spend(contents, charge);
        if answer.outcome() == "allow" {
            self.make(contents, (charge, charge.cost.units()), ttl, now);
        }
        answer
    }

    /// Corrects a reservation to the cost and forgets it, or denies if none stands.
    pub(super) fn settle(
        &mut self,
        contents: &mut dyn Contents,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Answer {
        let standing = self.standing(charge.ticket, now).filter(|note| note.units > 0);
        let Some(note) = standing else {
            return Answer::Deny {
                remaining: contents.remaining(),
                reset_after: contents.reset_after(),
                retry_after: Duration::ZERO,
            };
        };
        self.0.retain(|other| other.ticket != note.ticket);
        let cost = charge.cost.units();
        let mut delay = contents.delay();
        match cost.cmp(&note.units) {
            Ordering::Equal => {}
            Ordering::Less if !contents.counts(note.since) => {}
            Ordering::Less
                if charge.quota.algorithm() == Algorithm::LeakyBucket
                    && now.saturating_add(contents.reset_after()) != note.queue_end => {}
            Ordering::Less => {
                contents.give_back(note.units - cost);
                delay = contents.delay();
            }
            Ordering::Greater => {
                let more = (cost - note.units).min(contents.remaining());
                if more > 0 {
                    contents.take(more);
                }
            }
        }
        Answer::Allow {
            remaining: contents.remaining(),
            reset_after: contents.reset_after(),
            delay,
        }
    }

    fn standing(&self, ticket: Option<Ticket>, now: Timestamp) -> Option<Note> {
        self.0.iter().find(|note| Some(note.ticket) == ticket && now < note.ends).copied()
    }

    fn make(
        &mut self,
        contents: &dyn Contents,
        (charge, units): (&Charge<'_>, u64),
        ttl: Duration,
        now: Timestamp,
    ) {
        let Some(ticket) = charge.ticket.filter(|_| !charge.cost.is_zero()) else { return };
        self.0.retain(|note| note.ticket != ticket);
        let queue_end = now.saturating_add(contents.reset_after());
        self.0.push(Note { ticket, units, since: now, queue_end, ends: now.saturating_add(ttl) });
    }
}
