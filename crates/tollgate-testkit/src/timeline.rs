//! Worked timelines: what an exact store answers, request by request, to the microsecond.
//!
//! # The files
//!
//! A file is a JSON list of timelines:
//!
//! ```json
//! [{
//!   "name": "burst-of-two", "why": "the third waits for half a second",
//!   "algorithm": "token_bucket",
//!   "quota": {"units": 2, "period_us": 1000000, "burst": 2},
//!   "start_us": 1700000000000000,
//!   "steps": [
//!     {"at_us": 0, "cost": 2,
//!      "expect": {"outcome": "allow", "remaining": 0, "reset_after_us": 1000000}},
//!     {"at_us": 100000, "cost": 1,
//!      "expect": {"outcome": "deny", "remaining": 0, "reset_after_us": 900000, "retry_after_us": 400000}},
//!     {"at_us": 100000, "cost": 3, "expect": {"outcome": "impossible"}},
//!     {"set_quota": {"units": 1, "period_us": 1000000, "burst": 1}}
//!   ]
//! }]
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `algorithm` | `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_window`, `sliding_log` or `concurrency` |
//! | `quota` | `units` per `period_us`, with a `burst` for the two buckets and `cells` (20 if absent) for `sliding_window`; for `concurrency` `units` in flight, each for `lease_ttl_us` |
//! | `start_us` | microseconds since the Unix epoch |
//! | `at_us` | microseconds after `start_us`; it may go back |
//! | `cost` | units; 0 is a peek; `renew` and `release` have none |
//! | `do` | the [operation](tollgate_core::Operation): `spend` (if absent), `look`, `refund`, `renew`, `release`, `reserve` or `settle` |
//! | `ticket` | a name for what is held or done: slots that are spent, renewed or released, a reservation, a refund that is made once |
//! | `ttl_us` | how long a `reserve` can be settled |
//! | `expect` | the [`Answer`]; a deny has `retry_after_us`, an allow may have `delay_us` (0 if absent) |
//! | `set_quota` | the quota from here on |
//!
//! A field that is not listed here is an error, so that a misspelt expectation cannot pass. An
//! algorithm that is not listed is no error of the file: it is of a later version, and the runner
//! says that it does not support it.
//!
//! # The timelines of Tollgate
//!
//! [`TOKEN_BUCKET`] and its five siblings are the files that every store of Tollgate reproduces.

use std::time::Duration;

use tollgate_core::{Cost, Operation, Quota, Ticket, Timestamp};

use crate::answer::Answer;

mod error;
mod json;

pub use self::error::TimelineError;
pub use self::json::{parse, read};

/// The worked timelines of the token bucket.
pub const TOKEN_BUCKET: &str = include_str!("../cases/token_bucket.json");
/// The worked timelines of the leaky bucket.
pub const LEAKY_BUCKET: &str = include_str!("../cases/leaky_bucket.json");
/// The worked timelines of the fixed window.
pub const FIXED_WINDOW: &str = include_str!("../cases/fixed_window.json");
/// The worked timelines of the sliding window.
pub const SLIDING_WINDOW: &str = include_str!("../cases/sliding_window.json");
/// The worked timelines of the sliding log.
pub const SLIDING_LOG: &str = include_str!("../cases/sliding_log.json");
/// The worked timelines of the concurrency limit.
pub const CONCURRENCY: &str = include_str!("../cases/concurrency.json");

/// The files of worked timelines, each of one algorithm.
pub const ALL: [&str; 6] =
    [TOKEN_BUCKET, LEAKY_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG, CONCURRENCY];

/// A sequence of requests to one bucket, with the answer to each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    name: String,
    why: String,
    algorithm: String,
    quota: Option<Quota>,
    start: Timestamp,
    steps: Vec<Step>,
}

impl Timeline {
    /// Returns the name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the timeline shows, in a few words.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns the algorithm as the file names it.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Returns the quota of the first step, or `None` if the algorithm is not known here; then
    /// there are no steps either.
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// Returns the instant to which steps are relative.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// Returns the steps. A change of quota keeps the algorithm.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// One step of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request.
    Request {
        /// The time since the timeline's start.
        at: Duration,
        /// What the store does.
        operation: Operation,
        /// The id under which it is done.
        ticket: Option<Ticket>,
        /// What the request costs.
        cost: Cost,
        /// What an exact store answers.
        expect: Answer,
    },
    /// A change of the quota.
    SetQuota(Quota),
}

#[cfg(test)]
mod tests;
