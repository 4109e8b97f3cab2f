//! The sliding log: an exact limit for any interval of the window's length.
//!
//! Every admitted request is remembered with its instant and cost, and its units count for
//! exactly one period. It is a [sliding window](crate::sliding_window) with cells of one
//! microsecond, and shares its code and its state.
//!
//! # What it guarantees
//!
//! **Never more than `limit` units in any interval of the period's length, and no unit counts
//! longer than that.** Worst case and best case are both `limit` per period.
//!
//! # What it costs
//!
//! One pair of integers per admitted request of the last period, so at most `limit` pairs, which
//! is why the limit is at most 10,000 units. A constant number of steps per allowed check on
//! average; a denial may look at as many requests as must leave before its cost fits.
//!
//! # When to choose it
//!
//! For small, valuable budgets in which each unit matters: 5 password resets per hour, 100 exports
//! per day. For larger ones a sliding window differs by one cell and costs far less.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::sliding_log("2/s".parse()?)?;
//! let start = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut state = None;
//! for offset_ms in [0, 300] {
//!     let now = start.saturating_add(Duration::from_millis(offset_ms));
//!     let charge = Charge::new("key", &quota, Cost::ONE);
//!     let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//!     assert!(decision.is_allow());
//!     change.apply(&mut state);
//! }
//! let now = start.saturating_add(Duration::from_millis(400));
//! let charge = Charge::new("key", &quota, Cost::new(2));
//! let (decision, _) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! // Both units must have left: the second one does so a second after it was spent.
//! assert_eq!(decision.retry_after(), Some(Duration::from_millis(900)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```
