//! The sliding window: a strict limit for any interval of the window's length, counted in cells.
//!
//! The window is cut into `cells`; a cell's width is the period divided by their number, rounded
//! up to a whole microsecond. A unit spent in cell j counts until cell `j + cells + 1` begins, so
//! every unit counts for at least the whole period.
//!
//! # What it guarantees
//!
//! **Never more than `limit` units in any interval of the period's length.** The price is that a
//! unit may count for up to one cell longer: at saturation a key gets at least
//! `limit * cells / (cells + 1)` per period, with the default of 20 cells at least 95.2 %.
//!
//! # What it costs
//!
//! One pair of integers per cell in which something was spent, at most `cells + 1`; a constant
//! number of steps per allowed check on average, at most `cells + 1` for a denial.
//!
//! # When to choose it
//!
//! For a hard quota that must hold over any window: a contract, a downstream with a strict limit
//! of its own. A token bucket admits up to `burst + limit` in one window.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tollgate_core::{Algorithm, Charge, Cost, MAX_CLOCK_SKEW_DEFAULT, Quota, Timestamp};
//!
//! let quota = Quota::sliding_window("100/min".parse()?, Algorithm::CELLS_DEFAULT)?;
//! let now = Timestamp::from_micros(1_700_000_000_000_000);
//! let mut state = None;
//! let (_, change) =
//!     Charge::new("key", &quota, Cost::new(100)).decide(None, MAX_CLOCK_SKEW_DEFAULT, now);
//! change.apply(&mut state);
//!
//! let again = Charge::new("key", &quota, Cost::ONE);
//! let (decision, _) = again.decide(state.as_ref(), MAX_CLOCK_SKEW_DEFAULT, now);
//! // The cell of 3 s began 2 s ago; its units count until 20 more cells have passed.
//! assert_eq!(decision.retry_after(), Some(Duration::from_secs(61)));
//! # Ok::<(), tollgate_core::QuotaError>(())
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::cost::Cost;
use crate::decision::{Allow, Decision, Deny};
use crate::edit::Edit;
use crate::quota::Quota;
use crate::record::Record;
use crate::state::Change;
use crate::time::{Moment, Timestamp};
use crate::view::View;

/// The stored state of a sliding window or a sliding log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The width of a cell in microseconds; 1 for a sliding log.
    pub width_us: u64,
    /// The instant of the last spending.
    pub ts: Timestamp,
    spent: VecDeque<Cell>,
    /// The units of all cells in `spent`, those that count no more included.
    units: u64,
}

/// The units spent in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The cell's number since the epoch: its beginning divided by the width.
    pub index: u64,
    /// The units spent in it, at least 1.
    pub units: u64,
}

/// A change to the cells of a sliding window or a sliding log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellsEdit {
    geometry: Geometry,
    kind: CellsEditKind,
    ts: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CellsEditKind {
    /// Drop what no longer counts and add units to the cell of `ts`.
    Spend { units: u64 },
    /// Take units away, the oldest first: those leave soonest, so nothing is admitted too early.
    Refund { units: u64 },
    /// Count `units` as spent at `ts`, and nothing else.
    Replace { units: u64 },
}

/// How wide cells are, and for how many cells a unit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub(crate) width_us: u64,
    pub(crate) span: u64,
}

impl Geometry {
    pub(crate) fn of(quota: &Quota) -> Self {
        match quota.algorithm() {
            Algorithm::SlidingWindow { cells } => {
                let cells = u64::from(cells.get());
                Self { width_us: quota.period_us().div_ceil(cells), span: cells + 1 }
            }
            _ => Self { width_us: 1, span: quota.period_us() },
        }
    }

    const fn index(self, at: Timestamp) -> u64 {
        at.as_micros() / self.width_us
    }

    const fn counts(self, cell: Cell, current: u64) -> bool {
        current < cell.index.saturating_add(self.span)
    }

    /// The instant at which the units of a cell stop to count.
    const fn end_us(self, cell: Cell) -> u64 {
        cell.index.saturating_add(self.span).saturating_mul(self.width_us)
    }

    /// A stored cell in cells of this width. Units that may lie in two of them count in the later
    /// one, but not later than the last spending, so that nothing is admitted too early.
    fn converted(self, cells: &Cells, cell: Cell) -> Cell {
        if cells.width_us == self.width_us {
            return cell;
        }
        let last_us = cell
            .index
            .saturating_mul(cells.width_us)
            .saturating_add(cells.width_us.saturating_sub(1));
        let index = last_us.min(cells.ts.as_micros()) / self.width_us;
        Cell { index, units: cell.units }
    }
}

impl CellsEdit {
    pub(crate) fn apply(self, cells: &mut Cells) {
        let geometry = self.geometry;
        if cells.width_us != geometry.width_us {
            let converted: Vec<_> =
                cells.spent.iter().map(|cell| geometry.converted(cells, *cell)).collect();
            *cells = Cells::new(geometry.width_us, cells.ts, converted);
        }
        let current = geometry.index(self.ts);
        match self.kind {
            CellsEditKind::Spend { units } => {
                cells.drop_expired(geometry, current);
                cells.add(Cell { index: current, units });
            }
            CellsEditKind::Refund { units } => {
                cells.drop_expired(geometry, current);
                cells.take(units);
            }
            CellsEditKind::Replace { units } => {
                *cells = Cells::new(geometry.width_us, self.ts, [Cell { index: current, units }]);
            }
        }
        cells.ts = self.ts;
    }

    pub(crate) fn on_empty(self) -> Cells {
        let mut cells = Cells::new(self.geometry.width_us, self.ts, []);
        self.apply(&mut cells);
        cells
    }
}

impl Cells {
    /// Makes the state of cells of `width_us` that were last spent from at `ts`. `spent` are the
    /// cells in which something was spent, oldest first; equal neighbours are added up.
    pub fn new(width_us: u64, ts: Timestamp, spent: impl IntoIterator<Item = Cell>) -> Self {
        let mut cells = Self { width_us, ts, spent: VecDeque::new(), units: 0 };
        spent.into_iter().for_each(|cell| cells.add(cell));
        cells
    }

    /// Returns the cells in which something was spent, oldest first.
    pub fn spent(&self) -> impl ExactSizeIterator<Item = Cell> {
        self.spent.iter().copied()
    }

    pub(crate) fn wind_back(&mut self, by: Duration) -> Duration {
        let cells = u64::try_from(by.as_micros()).unwrap_or(u64::MAX) / self.width_us.max(1);
        for cell in &mut self.spent {
            cell.index = cell.index.saturating_sub(cells);
        }
        let moved = Duration::from_micros(cells.saturating_mul(self.width_us));
        self.ts = self.ts.saturating_sub(moved);
        moved
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.spent.capacity() * size_of::<Cell>()
    }

    fn drop_expired(&mut self, geometry: Geometry, current: u64) {
        while let Some(cell) = self.spent.front().filter(|cell| !geometry.counts(**cell, current)) {
            self.units -= cell.units;
            self.spent.pop_front();
        }
    }

    fn add(&mut self, cell: Cell) {
        self.units = self.units.saturating_add(cell.units);
        match self.spent.back_mut() {
            Some(last) if last.index == cell.index => last.units += cell.units,
            _ => self.spent.push_back(cell),
        }
    }

    fn take(&mut self, mut units: u64) {
        while units > 0 {
            let Some(oldest) = self.spent.front_mut() else { return };
            let taken = oldest.units.min(units);
            oldest.units -= taken;
            self.units -= taken;
            units -= taken;
            if oldest.units == 0 {
                self.spent.pop_front();
            }
        }
    }
}

/// A sliding window or a sliding log at `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellsView<'a> {
    quota: &'a Quota,
    cells: Option<&'a Cells>,
    geometry: Geometry,
    moment: Moment,
    /// The cell in which the units are counted: after a step of the clock, that of the last
    /// spending.
    current: u64,
    used: u64,
}

impl<'a> CellsView<'a> {
    pub(crate) fn new(
        quota: &'a Quota,
        cells: Option<&'a Cells>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let geometry = Geometry::of(quota);
        let moment = cells
            .map_or_else(|| Moment::at(now), |cells| Moment::new(cells.ts, max_clock_skew, now));
        let current = geometry.index(match cells {
            Some(cells) if moment.repaired => cells.ts,
            _ => moment.effective,
        });
        // The oldest stop to count first, so only those that have are looked at.
        let used = cells.map_or(0, |cells| {
            let spent = cells.spent.iter().map(|cell| geometry.converted(cells, *cell));
            let gone = spent.take_while(|cell| !geometry.counts(*cell, current));
            cells.units - gone.map(|cell| cell.units).sum::<u64>()
        });
        Self { quota, cells, geometry, moment, current, used }
    }

    /// The cells that count, oldest first. After a step of the clock what counted at the last
    /// spending counts on, in one cell at `now`.
    fn live(&self) -> impl Iterator<Item = Cell> + use<'a> {
        let (geometry, moment, current) = (self.geometry, self.moment, self.current);
        self.cells.into_iter().flat_map(move |cells| {
            cells
                .spent
                .iter()
                .map(move |cell| geometry.converted(cells, *cell))
                .skip_while(move |cell| !geometry.counts(*cell, current))
                .map(move |cell| {
                    let moved = geometry.index(moment.effective);
                    Cell { index: if moment.repaired { moved } else { cell.index }, ..cell }
                })
        })
    }

    /// The time until all units that count have stopped to.
    fn until_all_freed(&self) -> Duration {
        let newest = self.cells.and_then(|cells| {
            let newest = self.geometry.converted(cells, *cells.spent.back()?);
            let moved = self.geometry.index(self.moment.effective);
            Some(Cell { index: if self.moment.repaired { moved } else { newest.index }, ..newest })
        });
        match newest {
            Some(newest) if self.used > 0 => self.moment.until_micros(self.geometry.end_us(newest)),
            _ => Duration::ZERO,
        }
    }

    /// The time until `units` of those that count have stopped to.
    fn until_freed(&self, units: u64) -> Duration {
        let mut freed = 0;
        let mut end_us = 0;
        for cell in self.live() {
            if freed >= units {
                break;
            }
            freed += cell.units;
            end_us = self.geometry.end_us(cell);
        }
        self.moment.until_micros(end_us)
    }

    fn remaining(&self, used: u64) -> u32 {
        let left = u64::from(self.quota.burst()).saturating_sub(used);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn allow(&self, used: u64, reset_after: Duration) -> Decision {
        Decision::Allow(Allow {
            limit: self.quota.burst(),
            remaining: self.remaining(used),
            reset_after,
            delay: Duration::ZERO,
        })
    }

    const fn edit(&self, kind: CellsEditKind) -> Change {
        let ts = self.moment.effective;
        Change::Edit(Edit::Cells(CellsEdit { geometry: self.geometry, kind, ts }))
    }

    fn repair(&self) -> Change {
        match self.used {
            _ if !self.moment.repaired => Change::Keep,
            0 => Change::Remove,
            units => self.edit(CellsEditKind::Replace { units }),
        }
    }
}

impl View for CellsView<'_> {
    fn fits(&self, cost: Cost) -> bool {
        cost.is_zero() || self.used.saturating_add(cost.units()) <= u64::from(self.quota.burst())
    }

    fn spend(self, cost: Cost) -> (Decision, Change) {
        let used = self.used.saturating_add(cost.units());
        let newest = Cell { index: self.geometry.index(self.moment.effective), units: 0 };
        let reset_after = self.moment.until_micros(self.geometry.end_us(newest));
        let change = self.edit(if self.moment.repaired {
            CellsEditKind::Replace { units: used }
        } else {
            CellsEditKind::Spend { units: cost.units() }
        });
        (self.allow(used, reset_after), change)
    }

    fn keep(self, _cost: Cost) -> (Decision, Change) {
        (self.allow(self.used, self.until_all_freed()), self.repair())
    }

    fn deny(self, cost: Cost) -> (Decision, Change) {
        let limit = u64::from(self.quota.burst());
        let too_many = self.used.saturating_add(cost.units()).saturating_sub(limit);
        let deny = Deny {
            limit: self.quota.burst(),
            remaining: self.remaining(self.used),
            reset_after: self.until_all_freed(),
            retry_after: self.until_freed(too_many),
        };
        (Decision::Deny(deny), self.repair())
    }

    fn refund(self, cost: Cost) -> (Decision, Change) {
        let given = cost.units().min(self.used);
        let used = self.used - given;
        let change = match used {
            _ if given == 0 => self.repair(),
            0 => Change::Remove,
            units if self.moment.repaired => self.edit(CellsEditKind::Replace { units }),
            _ => self.edit(CellsEditKind::Refund { units: given }),
        };
        // The newest cell keeps units unless all are given back.
        let reset_after = if used == 0 { Duration::ZERO } else { self.until_all_freed() };
        (self.allow(used, reset_after), change)
    }

    fn give_back(self, cost: Cost, reserved: &Record) -> (Decision, Change) {
        let spent = Cell { index: self.geometry.index(reserved.since), units: 0 };
        let current = self.geometry.index(self.moment.effective);
        let counts = spent.index <= current && self.geometry.counts(spent, current);
        if counts { self.refund(cost) } else { self.keep(cost) }
    }
}
