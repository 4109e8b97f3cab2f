//! What a store remembers about one operation, so that it can be settled later or not be repeated.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::quota::Quota;
use crate::time::Timestamp;

/// A note that a store keeps beside a bucket, under the [`Ticket`](crate::Ticket) of an operation,
/// until it ends.
///
/// It tells how many units a reservation holds, or that a refund was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The units that are reserved; 0 for a refund that was made, which nobody can settle.
    pub units: u64,
    /// The instant at which they were.
    pub since: Timestamp,
    /// The instant at which the queue of a leaky bucket had drained after the reservation, and the
    /// epoch for other algorithms. Later callers go on after it.
    pub queue_end: Timestamp,
    /// The instant at which the store forgets the record.
    pub ends: Timestamp,
}

/// What a store must do with a record after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a record that is not stored lets an operation be repeated"]
pub enum RecordChange {
    /// Leave it as it is.
    Keep,
    /// Write it.
    Store(Record),
    /// Remove it.
    Remove,
}

impl Record {
    /// Tells whether the record still stands at `now`.
    pub fn stands(&self, now: Timestamp) -> bool {
        now < self.ends
    }

    /// Returns how long a refund under a ticket is remembered: until everything spent before it has
    /// stopped to count, and at least ten minutes.
    pub fn refund_ttl(quota: &Quota) -> Duration {
        quota.fill_time().clamp(Duration::from_secs(600), Quota::LEASE_TTL_MAX)
    }
}

/// The first 128 bits of the SHA-256 of a text.
pub(crate) fn digest(text: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    u128::from_be_bytes(bytes)
}
