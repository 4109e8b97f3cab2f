//! The fixed window: a count per period, aligned to the epoch.
//!
//! A window begins at every multiple of the period since the Unix epoch. A request is allowed if
//! the units admitted in its window and its cost are together at most the limit. What "20 per
//! minute" means here is what a clock on the wall shows.
//!
//! # What it guarantees
//!
//! At most `limit` units in each aligned window. **Worst case: `2 * limit` units** within an
//! arbitrarily short interval across a boundary, since one window may be spent at its end and the
//! next at its beginning.
//!
//! # What it costs
//!
//! Two integers per bucket, a constant number of steps per check.
//!
//! # When to choose it
//!
//! When a budget is defined by the calendar ("1000 per day, from midnight UTC"), or to match what
//! another system counts. To protect a service, choose a token bucket or a sliding window: they
//! cost hardly more and have no boundary.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::fixed_window("20/min".parse()?)?;
//! // 20 seconds into a minute.
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let charge = Charge::new("key", &quota, Cost::new(20));
//! let (decision, change) = charge.decide(None, MAX_CLOCK_SKEW_DEFAULT, now);
//! assert_eq!(decision.reset_after(), Duration::from_secs(40));
//!
//! let mut state = None;
//! change.apply(&mut state);
//! let charge = Charge::new("key", &quota, Cost::ONE);
//! let (decision, _) = charge.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! assert_eq!(decision.retry_after(), Some(Duration::from_secs(40)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::time::Duration;

use crate::cost::Cost;
use crate::decision::{Allow, Decision, Deny};
use crate::edit::Edit;
use crate::quota::Quota;
use crate::record::Record;
use crate::state::Change;
use crate::time::{Moment, Timestamp};
use crate::view::View;

/// The stored state of a fixed window: the units spent in the window that contains `ts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The units spent, at least 1.
    pub used: u64,
    /// The instant of the last spending.
    pub ts: Timestamp,
}

/// A fixed window at `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowView<'a> {
    quota: &'a Quota,
    used: u64,
    stored: bool,
    moment: Moment,
}

impl<'a> WindowView<'a> {
    pub(crate) fn new(
        quota: &'a Quota,
        window: Option<&Window>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let Some(window) = window else {
            return Self { quota, used: 0, stored: false, moment: Moment::at(now) };
        };
        let moment = Moment::new(window.ts, max_clock_skew, now);
        let period_us = quota.period_us();
        let same = moment.repaired
            || window.ts.as_micros() / period_us == moment.effective.as_micros() / period_us;
        Self { quota, used: if same { window.used } else { 0 }, stored: true, moment }
    }

    fn window_end(&self) -> Duration {
        let period_us = self.quota.period_us();
        let end_us = (self.moment.effective.as_micros() / period_us + 1) * period_us;
        self.moment.until_micros(end_us)
    }

    fn reset_after(&self) -> Duration {
        if self.used == 0 { Duration::ZERO } else { self.window_end() }
    }

    fn remaining(&self) -> u32 {
        let left = u64::from(self.quota.burst()).saturating_sub(self.used);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn allow(&self) -> Decision {
        Decision::Allow(Allow {
            limit: self.quota.burst(),
            remaining: self.remaining(),
            reset_after: self.reset_after(),
            delay: Duration::ZERO,
        })
    }

    fn store(&self) -> Change {
        if self.used == 0 {
            return if self.stored { Change::Remove } else { Change::Keep };
        }
        Change::Edit(Edit::Window(Window { used: self.used, ts: self.moment.effective }))
    }

    fn repair(&self) -> Change {
        if self.moment.repaired { self.store() } else { Change::Keep }
    }
}

impl View for WindowView<'_> {
    fn fits(&self, cost: Cost) -> bool {
        cost.is_zero() || self.used.saturating_add(cost.units()) <= u64::from(self.quota.burst())
    }

    fn spend(mut self, cost: Cost) -> (Decision, Change) {
        self.used = self.used.saturating_add(cost.units());
        (self.allow(), self.store())
    }

    fn keep(self, _cost: Cost) -> (Decision, Change) {
        (self.allow(), self.repair())
    }

    fn deny(self, _cost: Cost) -> (Decision, Change) {
        let deny = Deny {
            limit: self.quota.burst(),
            remaining: self.remaining(),
            reset_after: self.reset_after(),
            retry_after: self.window_end(),
        };
        (Decision::Deny(deny), self.repair())
    }

    fn refund(mut self, cost: Cost) -> (Decision, Change) {
        let before = self.used;
        self.used = before.saturating_sub(cost.units());
        let change = if self.used == before { self.repair() } else { self.store() };
        (self.allow(), change)
    }

    fn give_back(self, cost: Cost, reserved: &Record) -> (Decision, Change) {
        let since = reserved.since;
        let period_us = self.quota.period_us();
        let counts = since.as_micros() / period_us == self.moment.effective.as_micros() / period_us;
        if counts { self.refund(cost) } else { self.keep(cost) }
    }
}
