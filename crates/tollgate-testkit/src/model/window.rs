//! The fixed window, the sliding window and the sliding log, from every single spending.

use std::time::Duration;

use tollgate_core::{Algorithm, Quota, Timestamp};

use super::{Contents, Stored, time_until_free};

/// What was spent, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Spendings {
    all: Vec<Spending>,
    /// The width of the cells by which the last write counted.
    width_us: u64,
    written_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Spending {
    at_us: u64,
    units: u64,
}

/// A window now: what counts, and nothing else.
pub(super) struct Window {
    terms: Terms,
    counting: Vec<Spending>,
    /// The instant at which is counted: now, or the last write while it is ahead.
    at: Timestamp,
    now: Timestamp,
    written: bool,
}

/// A quota as the model sees it.
#[derive(Clone, Copy)]
struct Terms {
    limit: u64,
    width_us: u64,
    /// Until how many cells later a unit counts.
    cells: u64,
    is_aligned: bool,
}

impl Terms {
    fn of(quota: &Quota) -> Self {
        let limit = u64::from(quota.burst());
        let period = quota.rate().period();
        let period_us = period.as_secs() * 1_000_000 + u64::from(period.subsec_micros());
        match quota.algorithm() {
            Algorithm::SlidingWindow { cells } => {
                let cells = u64::from(cells.get());
                let width_us = period_us.div_ceil(cells);
                Self { limit, width_us, cells: cells + 1, is_aligned: false }
            }
            Algorithm::FixedWindow => {
                Self { limit, width_us: period_us, cells: 1, is_aligned: true }
            }
            _ => Self { limit, width_us: 1, cells: period_us, is_aligned: false },
        }
    }

    /// The instant at which a spending stops to count.
    fn end_us(self, spending: Spending) -> u64 {
        (spending.at_us / self.width_us + self.cells) * self.width_us
    }
}

impl Spendings {
    /// What was spent, as far as it can be told in cells of `width_us`.
    fn in_cells_of(&self, width_us: u64) -> impl Iterator<Item = Spending> {
        self.all.iter().map(move |spending| {
            if self.width_us == width_us {
                return *spending;
            }
            let cell_last_us = spending.at_us / self.width_us * self.width_us + self.width_us - 1;
            Spending { at_us: cell_last_us.min(self.written_at.as_micros()), ..*spending }
        })
    }
}

impl Window {
    pub(super) fn new(
        quota: &Quota,
        stored: Option<&Spendings>,
        max_clock_skew: Duration,
        now: Timestamp,
    ) -> Self {
        let terms = Terms::of(quota);
        let mut window = Self { terms, counting: Vec::new(), at: now, now, written: false };
        let Some(stored) = stored else { return window };
        let back = stored.written_at.saturating_since(now);
        let is_moved = back > max_clock_skew;
        let counted_at = stored.written_at.max(now);
        window.counting = stored
            .in_cells_of(terms.width_us)
            .filter(|spending| counted_at.as_micros() < terms.end_us(*spending))
            .collect();
        if is_moved {
            window.written = true;
            for spending in &mut window.counting {
                spending.at_us = now.as_micros();
            }
        } else {
            window.at = counted_at;
        }
        window
    }

    fn used(&self) -> u64 {
        self.counting.iter().map(|spending| spending.units).sum()
    }

    /// The time from now until so many of the units that count have stopped to.
    fn time_until_free(&self, units: u64) -> Duration {
        let ends = self.counting.iter().map(|one| (self.terms.end_us(*one), one.units));
        time_until_free(ends, units, self.now)
    }
}

impl Contents for Window {
    fn fits(&self, units: u64) -> bool {
        self.used() + units <= self.terms.limit
    }

    fn take(&mut self, units: u64) {
        self.counting.push(Spending { at_us: self.at.as_micros(), units });
        self.written = true;
    }

    fn give_back(&mut self, mut units: u64) {
        for spending in &mut self.counting {
            let given = spending.units.min(units);
            spending.units -= given;
            units -= given;
            self.written |= given > 0;
        }
        self.counting.retain(|spending| spending.units > 0);
    }

    fn counts(&self, since: Timestamp) -> bool {
        let (width_us, end_us) = (
            self.terms.width_us,
            self.terms.end_us(Spending { at_us: since.as_micros(), units: 0 }),
        );
        let at_us = self.at.as_micros();
        since.as_micros() / width_us <= at_us / width_us && at_us < end_us
    }

    fn remaining(&self) -> u64 {
        self.terms.limit.saturating_sub(self.used())
    }

    fn reset_after(&self) -> Duration {
        self.time_until_free(self.used())
    }

    fn retry_after(&self, units: u64) -> Duration {
        self.time_until_free(self.used().saturating_add(units).saturating_sub(self.terms.limit))
    }

    fn write(self: Box<Self>, stored: &mut Option<Stored>) {
        let Self { terms, counting, at, written, .. } = *self;
        let spendings = Spendings { all: counting, width_us: terms.width_us, written_at: at };
        if written && spendings.all.is_empty() {
            *stored = None;
        } else if written && terms.is_aligned {
            *stored = Some(Stored::Window(spendings));
        } else if written {
            *stored = Some(Stored::Cells(spendings));
        }
    }
}
