//! Whether a cost fits, before anything is spent.

use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::charge::Charge;
use crate::concurrency::SlotsView;
use crate::cost::Cost;
use crate::decision::{Decision, Deny};
use crate::fixed_window::WindowView;
use crate::record::Record;
use crate::sliding_window::CellsView;
use crate::state::{Change, State};
use crate::time::Timestamp;
use crate::token_bucket::BucketView;
use crate::view::View;

/// Whether a cost fits, before anything is spent.
#[derive(Clone, Copy, Debug)]
pub enum Judgement<'a> {
    /// The cost fits; it may be spent.
    Fit(Fit<'a>),
    /// The cost does not fit; there is nothing to spend.
    Shortfall(Shortfall<'a>),
}

/// A cost that fits.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a> {
    view: AnyView<'a>,
    cost: Cost,
}

/// A cost that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Shortfall<'a> {
    view: AnyView<'a>,
    cost: Cost,
}

impl Judgement<'_> {
    /// Tells whether the cost fits.
    pub const fn is_fit(&self) -> bool {
        matches!(self, Self::Fit(_))
    }

    /// Gives the decision without spending. A cost that fits is reported with what is there now.
    pub fn keep(self) -> (Decision, Change) {
        match self {
            Self::Fit(fit) => fit.keep(),
            Self::Shortfall(shortfall) => shortfall.deny(),
        }
    }
}

impl Fit<'_> {
    /// Spends the cost.
    pub fn spend(self) -> (Decision, Change) {
        if self.cost.is_zero() {
            return self.keep();
        }
        self.view.spend(self.cost)
    }

    /// Leaves the units where they are, because another rule denied the request or because the
    /// caller only looks.
    pub fn keep(self) -> (Decision, Change) {
        self.view.keep(self.cost)
    }
}

impl Shortfall<'_> {
    /// Gives the denial. It changes nothing, but for the repair of a clock step.
    pub fn deny(self) -> (Decision, Change) {
        self.view.deny(self.cost)
    }
}

/// The state of any algorithm, brought up to `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnyView<'a> {
    Bucket(BucketView<'a>),
    Window(WindowView<'a>),
    Cells(CellsView<'a>),
    Slots(SlotsView<'a>),
}

impl<'a> AnyView<'a> {
    pub(crate) fn new(
        charge: &Charge<'a>,
        state: Option<&'a State>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let quota = charge.quota;
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let bucket = state.and_then(State::as_bucket);
                Self::Bucket(BucketView::new(quota, bucket, max_clock_skew, now))
            }
            Algorithm::FixedWindow => {
                let window = match state {
                    Some(State::Window(window)) => Some(window),
                    _ => None,
                };
                Self::Window(WindowView::new(quota, window, max_clock_skew, now))
            }
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => {
                let cells = match state {
                    Some(State::Cells(cells)) => Some(cells.as_ref()),
                    _ => None,
                };
                Self::Cells(CellsView::new(quota, cells, max_clock_skew, now))
            }
            Algorithm::Concurrency { .. } => {
                let slots = match state {
                    Some(State::Slots(slots)) => Some(slots.as_ref()),
                    _ => None,
                };
                Self::Slots(SlotsView::new(quota, slots, charge.ticket, max_clock_skew, now))
            }
        }
    }

    pub(crate) fn judge(self, cost: Cost) -> Judgement<'a> {
        if self.fits(cost) {
            Judgement::Fit(Fit { view: self, cost })
        } else {
            Judgement::Shortfall(Shortfall { view: self, cost })
        }
    }

    /// Tells whether there is no lease to extend where there should be one.
    pub(crate) fn lacks_lease(&self) -> bool {
        matches!(self, Self::Slots(view) if !view.has_lease())
    }

    /// Extends a lease; algorithms without leases have nothing to extend.
    pub(crate) fn renew(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Slots(view) => view.renew(cost),
            other => other.keep(cost),
        }
    }

    /// Spends a cost whether it fits or not, but no more than the whole units there are.
    pub(crate) fn take(self, cost: Cost) -> (Decision, Change) {
        let there = match self.keep(cost).0 {
            Decision::Allow(allow) => u64::from(allow.remaining),
            Decision::Deny(deny) => u64::from(deny.remaining),
        };
        match cost.units().min(there) {
            0 => self.keep(cost),
            units => self.spend(Cost::new(units)),
        }
    }

    /// Settles a reservation at what was really spent.
    pub(crate) fn settle(self, reserved: Record, cost: Cost) -> (Decision, Change) {
        match cost.units().checked_sub(reserved.units) {
            Some(0) => self.keep(cost),
            Some(more) => self.take(Cost::new(more)),
            None => self.give_back(Cost::new(reserved.units - cost.units()), &reserved),
        }
    }

    /// Says that there is nothing to settle. It changes nothing.
    pub(crate) fn nothing_to_settle(self, cost: Cost) -> (Decision, Change) {
        let (decision, change) = self.keep(cost);
        let deny = Deny {
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after: decision.reset_after(),
            retry_after: Duration::ZERO,
        };
        (Decision::Deny(deny), change)
    }

    /// Ends a lease; algorithms without leases have nothing to end.
    pub(crate) fn release(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Slots(view) => view.release(),
            other => other.keep(cost),
        }
    }
}

impl View for AnyView<'_> {
    fn fits(&self, cost: Cost) -> bool {
        match self {
            Self::Bucket(view) => view.fits(cost),
            Self::Window(view) => view.fits(cost),
            Self::Cells(view) => view.fits(cost),
            Self::Slots(view) => view.fits(cost),
        }
    }

    fn spend(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Bucket(view) => view.spend(cost),
            Self::Window(view) => view.spend(cost),
            Self::Cells(view) => view.spend(cost),
            Self::Slots(view) => view.spend(cost),
        }
    }

    fn keep(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Bucket(view) => view.keep(cost),
            Self::Window(view) => view.keep(cost),
            Self::Cells(view) => view.keep(cost),
            Self::Slots(view) => view.keep(cost),
        }
    }

    fn deny(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Bucket(view) => view.deny(cost),
            Self::Window(view) => view.deny(cost),
            Self::Cells(view) => view.deny(cost),
            Self::Slots(view) => view.deny(cost),
        }
    }

    fn refund(self, cost: Cost) -> (Decision, Change) {
        match self {
            Self::Bucket(view) => view.refund(cost),
            Self::Window(view) => view.refund(cost),
            Self::Cells(view) => view.refund(cost),
            Self::Slots(view) => view.refund(cost),
        }
    }

    fn give_back(self, cost: Cost, reserved: &Record) -> (Decision, Change) {
        match self {
            Self::Bucket(view) => view.give_back(cost, reserved),
            Self::Window(view) => view.give_back(cost, reserved),
            Self::Cells(view) => view.give_back(cost, reserved),
            Self::Slots(view) => view.give_back(cost, reserved),
        }
    }
}
