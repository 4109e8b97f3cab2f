//! Slots and units that are given back when they are no longer needed.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Operation, Ticket};

use crate::charged::AllCharged;
use crate::error::CheckError;
use crate::hold::Hold;
use crate::limiter::Limiter;

/// The slots of a concurrency limit that a request holds. Dropping it releases them.
///
/// Made by [`Limiter::acquire`]. A holder that works for longer than the rule's lease renews the
/// permit; without that its slots come back by themselves when the lease ends.
///
/// The release on drop runs in the background on the current tokio runtime if the store is a
/// remote one. Without a runtime, or if the store does not answer, the slots come back when the
/// lease ends.
#[must_use = "dropping a permit releases its slots"]
pub struct Permit {
    limiter: Limiter,
    charged: AllCharged,
    ticket: Ticket,
    held: bool,
}

impl Permit {
    pub(crate) const fn new(limiter: Limiter, charged: AllCharged, ticket: Ticket) -> Self {
        Self { limiter, charged, ticket, held: true }
    }

    /// Extends the lease to its whole length from now.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_not_held`] if the lease has ended, [`CheckError::is_store_failure`] if the
    /// store could not answer.
    pub async fn renew(&self) -> Result<(), CheckError> {
        renew(&self.limiter, &self.charged, self.ticket).await
    }

    /// Releases the slots and waits until that is done.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] if the store could not answer; the slots then come back
    /// when the lease ends.
    pub async fn release(mut self) -> Result<(), CheckError> {
        self.held = false;
        release(&self.limiter, &self.charged, self.ticket).await
    }

    /// Turns the permit into a [`Hold`], which can be handed to another process and releases
    /// nothing when it is dropped.
    pub fn into_hold(mut self) -> Hold {
        self.held = false;
        Hold::new(self.ticket, &self.charged)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let (limiter, ticket) = (self.limiter.clone(), self.ticket);
        let charged = std::mem::take(&mut self.charged);
        in_background(async move {
            // What is not released comes back when the lease ends.
            let _ = release(&limiter, &charged, ticket).await;
        });
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

pub(crate) async fn renew(
    limiter: &Limiter,
    charged: &AllCharged,
    ticket: Ticket,
) -> Result<(), CheckError> {
    let verdict = limiter.apply_exactly(Operation::Renew, charged, Some(ticket)).await?;
    let held = verdict.rules().iter().all(|rule| rule.decision().is_allow());
    if held { Ok(()) } else { Err(CheckError::not_held()) }
}

pub(crate) async fn release(
    limiter: &Limiter,
    charged: &AllCharged,
    ticket: Ticket,
) -> Result<(), CheckError> {
    let released = limiter.apply_exactly(Operation::Release, charged, Some(ticket)).await;
    charged.iter().for_each(|one| limiter.lines().wake(&one.key));
    released.map(drop)
}

/// Gives back what was spent for a caller who did not wait to the end.
pub(crate) struct Spent {
    limiter: Limiter,
    charged: AllCharged,
    ticket: Ticket,
    kept: bool,
}

impl Spent {
    pub(crate) const fn new(limiter: Limiter, charged: AllCharged, ticket: Ticket) -> Self {
        Self { limiter, charged, ticket, kept: false }
    }

    /// Leaves everything spent; of what was charged, the slots are returned as a permit.
    pub(crate) fn keep(mut self) -> Option<Permit> {
        self.kept = true;
        let slots: AllCharged =
            self.charged.iter().filter(|one| one.counts_slots()).cloned().collect();
        let limiter = self.limiter.clone();
        (!slots.is_empty()).then(|| Permit::new(limiter, slots, self.ticket))
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (limiter, ticket) = (self.limiter.clone(), self.ticket);
        let charged = std::mem::take(&mut self.charged);
        in_background(async move {
            // A store that does not answer leaves the units spent, so nothing is over-admitted.
            let _ = limiter.apply_exactly(Operation::Refund, &charged, Some(ticket)).await;
            let _ = release(&limiter, &charged, ticket).await;
        });
    }
}

/// Runs work to its end without a caller to wait for it: at once if it never waits, as it does on
/// a store in memory, else on the current runtime.
fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    if pin!(&mut work).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
