//! What a store does with the charges of one request.

use std::time::Duration;

/// What a store does with the charges of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Spends every cost if every enforced charge is allowed, and nothing otherwise.
    Spend,
    /// Judges every cost and spends nothing.
    Look,
    /// Gives every cost back, never beyond a burst. Under a ticket it is done once: repeated, it
    /// changes nothing. A cost of 0 is not remembered.
    Refund,
    /// Extends the leases under each charge's ticket, and denies where nothing is held; if that is
    /// an enforced charge, none is extended.
    Renew,
    /// Ends the leases under each charge's ticket. It is not an error if nothing is held.
    Release,
    /// Spends as [`Spend`](Self::Spend) does, and records the cost under each charge's ticket, to
    /// be settled within `ttl`. Repeated under the same ticket it spends nothing more. A cost of 0
    /// leaves nothing to settle.
    ///
    /// A reservation that is never settled ends by itself: what it spent stays spent, and refills
    /// or leaves the window as any other cost.
    Reserve {
        /// How long the reservation can be settled.
        ttl: Duration,
    },
    /// Settles the reservation under each charge's ticket at the charge's cost: gives back what was
    /// reserved too much, as far as it still counts and nobody queues behind it, or takes what was reserved too little, as far as
    /// it is there. Denies,
    /// and changes nothing, where no reservation stands. A cost of 0 cancels.
    Settle,
    /// Spends every cost whether it fits or not, but no more than the whole units there are. It
    /// always allows: what it charges has happened already.
    Take,
}

impl Operation {
    /// Tells whether the operation reads and writes the [`Record`](crate::Record) of a charge's
    /// ticket.
    pub const fn has_records(self) -> bool {
        matches!(self, Self::Refund | Self::Reserve { .. } | Self::Settle)
    }
}
