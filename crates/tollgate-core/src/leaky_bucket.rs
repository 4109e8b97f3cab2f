//! The leaky bucket: a queue that lets requests out evenly spaced.
//!
//! The queue holds `burst` units and drains at `rate`. An allowed request carries a `delay`: the
//! time it must wait until the units before it have drained. A full queue denies. It counts as a
//! [token bucket](crate::token_bucket) does and shares its code and its state: what the queue holds
//! is what the bucket lacks.
//!
//! # What it guarantees
//!
//! If every caller waits for its delay, a request of cost c starts at least c / rate before the
//! next one. At most `burst` units wait, so **no delay exceeds (burst - cost) / rate**. The time to
//! the next free place is exact.
//!
//! # What it costs
//!
//! Three integers per bucket, a constant number of steps per check. The waiting is the caller's.
//!
//! # When to choose it
//!
//! For a downstream that needs even spacing: a legacy database, an SMS gateway, a partner's API
//! that answers a burst with an error. Where a burst does no harm, a token bucket spares the
//! callers the wait.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::leaky_bucket("10/s".parse()?, 2)?;
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let charge = Charge::new("key", &quota, Cost::ONE);
//! let mut state = None;
//! for delay_ms in [0, 100] {
//!     let (decision, change) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//!     assert_eq!(decision.delay(), Duration::from_millis(delay_ms));
//!     change.apply(&mut state);
//! }
//! let (decision, _) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! assert_eq!(decision.retry_after(), Some(Duration::from_millis(100)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```
