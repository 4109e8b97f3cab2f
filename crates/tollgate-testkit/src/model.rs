//! Every algorithm from its rules alone: slow, obvious, and apart from `tollgate-core`.
//!
//! The engine counts in scaled integers and merges what it remembers, the Lua scripts count in
//! doubles. This model counts tokens in rationals, remembers each spending with its instant and
//! each lease with its end, and reads every answer off what is there after the request. A property
//! test that compares the two proves both the arithmetic and the rules.
//!
//! # Rules of all algorithms
//!
//! 1. A bucket that nobody spent from, or in which nothing spent counts any more, is as if there
//!    were none. So is what an algorithm of another kind has written.
//! 2. A cost that fits is spent; a cost that does not changes nothing. A cost of 0 always fits.
//!    `retry_after` is the time until the cost fits, `reset_after` the time until the bucket is
//!    full, each if nobody spends or gives back in between.
//! 3. Before the instant of the last write, by at most the skew, the bucket stands still. Further
//!    back, that instant moves to now with all that counted at it.
//! 4. A reservation is a spending that is noted under its ticket, once; settling it gives back
//!    what was reserved too much, if it still counts and nobody has queued behind it, or takes what was reserved too little as far as it is there, and
//!    removes the note. A refund under a ticket is noted likewise, until everything spent before
//!    it has stopped to count, but for ten minutes at least and a day at most.
//!
//! # Rules of the token bucket and the leaky bucket
//!
//! 1. A bucket holds at most `burst` tokens. Time passes in whole ticks ([`Quota::tick_us`]) from
//!    the instant of the last write; a tick adds `units / period * tick` tokens. If it would fill
//!    the bucket, a spending starts a new tick: a part of what it has gathered would have had no
//!    place in the bucket.
//! 2. A bucket that another quota wrote keeps its tokens, down to a whole multiple of what the
//!    new quota can tell apart (one token divided by the denominator of its tokens per tick), and
//!    at most the new burst.
//! 3. A refund that finds the bucket full, or fills it, forgets what was written.
//! 4. The queue of a leaky bucket holds what the bucket lacks, and `delay` is the time until what
//!    it held before the request has drained.
//!
//! # Rules of the windows
//!
//! 1. Time is cut into cells. A unit spent in one counts until `cells + 1` cells later the next
//!    begins (sliding window), until the next begins (fixed window, whose cell is the period), or
//!    until `period` cells later the next begins (sliding log, whose cell is a microsecond).
//! 2. A cost fits if it and what counts are together at most the limit.
//! 3. Units are given back oldest first. Units that do not count are forgotten at the next write.
//! 4. What is stored tells only the cell in which a unit was spent. So under cells of another
//!    width it counts as spent in that cell's last microsecond, or at the last write if that was
//!    earlier.
//!
//! # Rules of concurrency
//!
//! 1. A request takes as many slots as it costs, under its ticket and until `lease_ttl` from now. A
//!    ticket that holds slots is renewed instead. Without a ticket nothing is taken.
//! 2. A lease that ends later than `lease_ttl` and the skew from now ends `lease_ttl` from now.
//!    Otherwise it is never shortened, not even by a renewal while the clock is back.
//! 3. Slots are given back by their ticket only, never by a refund. Leases that have ended are
//!    forgotten when slots are taken, renewed or given back.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{Cost, Quota, Timestamp};
//! use tollgate_testkit::Model;
//!
//! let thirds = Quota::new("3/s".parse()?, 1)?;
//! let start = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut bucket = Model::default();
//! assert_eq!(bucket.check(&thirds, Cost::ONE, start).outcome(), "allow");
//! let answer = bucket.check(&thirds, Cost::ONE, start);
//! assert_eq!(
//!     answer.to_string(),
//!     "deny, remaining 0, reset_after_us 333334, retry_after_us 333334"
//! );
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

mod bucket;
mod notes;
mod slots;
mod window;

use std::time::Duration;

use tollgate_core::{Algorithm, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Operation, Quota, Timestamp};

use self::bucket::{Bucket, Tokens};
use self::notes::Notes;
use self::slots::{Lease, Slots};
use self::window::{Spendings, Window};
use crate::answer::Answer;

/// One bucket of any algorithm, in exact arithmetic.
///
/// See the [module docs](self) for its rules and an example.
#[derive(Clone, Debug)]
pub struct Model {
    /// What was written last; nothing for a full bucket.
    stored: Option<Stored>,
    notes: Notes,
    max_clock_skew: Duration,
}

/// What was written, by the kind of algorithm that can read it.
#[derive(Clone, Debug)]
enum Stored {
    Tokens(Tokens),
    Window(Spendings),
    Cells(Spendings),
    Leases(Vec<Lease>),
}

/// What a bucket holds now.
trait Contents {
    /// Tells whether so many units are there.
    fn fits(&self, units: u64) -> bool;

    /// Takes units that are there.
    fn take(&mut self, units: u64);

    /// Gives units back, as far as they were taken.
    fn give_back(&mut self, units: u64);

    /// Tells whether what was taken at an instant counts. In a bucket it always may.
    fn counts(&self, _since: Timestamp) -> bool {
        true
    }

    fn remaining(&self) -> u64;

    fn reset_after(&self) -> Duration;

    fn retry_after(&self, units: u64) -> Duration;

    /// How long one that is let in now must wait.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Extends a lease, and tells whether there is one. What knows no leases has nothing to extend.
    fn renew(&mut self) -> bool {
        true
    }

    /// Ends a lease, if there is one.
    fn release(&mut self) {}

    /// Replaces what is stored, unless that may stay.
    fn write(self: Box<Self>, stored: &mut Option<Stored>);
}

impl Default for Model {
    /// Makes a full bucket that tolerates a clock skew of 1 s.
    fn default() -> Self {
        Self::with_max_clock_skew(MAX_CLOCK_SKEW_DEFAULT)
    }
}

impl Model {
    /// Makes a full bucket that stands still for at most `max_clock_skew` when time goes back.
    pub const fn with_max_clock_skew(max_clock_skew: Duration) -> Self {
        Self { stored: None, notes: Notes::new(), max_clock_skew }
    }

    /// Answers a request of `cost` at `now`, and spends it if it is allowed.
    pub fn check(&mut self, quota: &Quota, cost: Cost, now: Timestamp) -> Answer {
        self.apply(Operation::Spend, &Charge::new("", quota, cost), now)
    }

    /// Gives `cost` units back at `now`, never beyond the burst.
    pub fn refund(&mut self, quota: &Quota, cost: Cost, now: Timestamp) -> Answer {
        self.apply(Operation::Refund, &Charge::new("", quota, cost), now)
    }

    /// Carries out any operation on one charge, whose key does not matter.
    ///
    /// A cost above the burst is [`Answer::Impossible`] to the operations that spend or look.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Charge, Cost, Operation, Quota, Ticket, Timestamp};
    /// use tollgate_testkit::Model;
    ///
    /// let quota = Quota::concurrency(1, Duration::from_secs(30))?;
    /// let charge = Charge::new("key", &quota, Cost::ONE);
    /// let (mine, yours) = (Ticket::new(1), Ticket::new(2));
    /// let mut slot = Model::default();
    /// let mut outcome = |operation, ticket| {
    ///     slot.apply(operation, &charge.with_ticket(ticket), Timestamp::EPOCH).outcome()
    /// };
    /// assert_eq!(outcome(Operation::Spend, mine), "allow");
    /// assert_eq!(outcome(Operation::Spend, yours), "deny");
    /// assert_eq!(outcome(Operation::Release, mine), "allow");
    /// assert_eq!(outcome(Operation::Spend, yours), "allow");
    /// # Ok::<(), tollgate_core::QuotaError>(())
    /// ```
    pub fn apply(&mut self, operation: Operation, charge: &Charge<'_>, now: Timestamp) -> Answer {
        let spends_or_looks =
            matches!(operation, Operation::Spend | Operation::Look | Operation::Reserve { .. });
        if spends_or_looks && charge.cost.units() > u64::from(charge.quota.burst()) {
            return Answer::Impossible;
        }
        let mut contents = self.contents(charge, now);
        let contents_now = &mut *contents;
        let answer = match operation {
            Operation::Spend => spend(contents_now, charge),
            Operation::Look => look(contents_now, charge),
            Operation::Refund => self.notes.refund_once(contents_now, charge, now),
            Operation::Renew if contents_now.renew() => allowed(contents_now),
            Operation::Renew => denied(contents_now, charge.cost),
            Operation::Release => {
                contents_now.release();
                allowed(contents_now)
            }
            Operation::Reserve { ttl } => self.notes.reserve(contents_now, charge, ttl, now),
            Operation::Settle => self.notes.settle(contents_now, charge, now),
            Operation::Take => take(contents_now, charge),
            // An operation that the rules do not know yet changes nothing.
            _ => look(contents_now, charge),
        };
        contents.write(&mut self.stored);
        answer
    }

    fn contents(&self, charge: &Charge<'_>, now: Timestamp) -> Box<dyn Contents> {
        let (quota, skew) = (charge.quota, self.max_clock_skew);
        let stored = self.stored.as_ref();
        match quota.algorithm() {
            Algorithm::FixedWindow => {
                let spendings = match stored {
                    Some(Stored::Window(spendings)) => Some(spendings),
                    _ => None,
                };
                Box::new(Window::new(quota, spendings, skew, now))
            }
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => {
                let spendings = match stored {
                    Some(Stored::Cells(spendings)) => Some(spendings),
                    _ => None,
                };
                Box::new(Window::new(quota, spendings, skew, now))
            }
            Algorithm::Concurrency { lease_ttl } => {
                let leases = match stored {
                    Some(Stored::Leases(leases)) => leases.as_slice(),
                    _ => &[],
                };
                Box::new(Slots::new(charge, lease_ttl, leases, skew, now))
            }
            _ => {
                let tokens = match stored {
                    Some(Stored::Tokens(tokens)) => Some(tokens),
                    _ => None,
                };
                Box::new(Bucket::new(quota, tokens, skew, now))
            }
        }
    }
}

fn spend(contents: &mut dyn Contents, charge: &Charge<'_>) -> Answer {
    let before = look(contents, charge);
    let Answer::Allow { delay, .. } = before else { return before };
    match charge.cost.units() {
        0 => before,
        units => {
            contents.take(units);
            Answer::Allow {
                remaining: contents.remaining(),
                reset_after: contents.reset_after(),
                delay,
            }
        }
    }
}

fn take(contents: &mut dyn Contents, charge: &Charge<'_>) -> Answer {
    let delay = contents.delay();
    let units = charge.cost.units().min(contents.remaining());
    if units > 0 {
        contents.take(units);
    }
    Answer::Allow { remaining: contents.remaining(), reset_after: contents.reset_after(), delay }
}

fn look(contents: &dyn Contents, charge: &Charge<'_>) -> Answer {
    if charge.cost.is_zero() || contents.fits(charge.cost.units()) {
        allowed(contents)
    } else {
        denied(contents, charge.cost)
    }
}

fn allowed(contents: &dyn Contents) -> Answer {
    Answer::Allow {
        remaining: contents.remaining(),
        reset_after: contents.reset_after(),
        delay: contents.delay(),
    }
}

fn denied(contents: &dyn Contents, cost: Cost) -> Answer {
    Answer::Deny {
        remaining: contents.remaining(),
        reset_after: contents.reset_after(),
        retry_after: contents.retry_after(cost.units()),
    }
}

/// The time from `now` until so many units have come free, each some at its end.
fn time_until_free(ends: impl Iterator<Item = (u64, u64)>, units: u64, now: Timestamp) -> Duration {
    let mut ends: Vec<_> = ends.collect();
    ends.sort_unstable();
    let mut free = 0;
    let awaited = ends.into_iter().take_while(|(_, more)| {
        let is_short = free < units;
        free += more;
        is_short
    });
    awaited.last().map_or(Duration::ZERO, |(end_us, _)| {
        Duration::from_micros(end_us.saturating_sub(now.as_micros()))
    })
}

#[cfg(test)]
mod tests;
