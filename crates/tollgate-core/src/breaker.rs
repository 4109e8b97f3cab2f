//! Whether a store that fails is asked at all.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::fraction::Fraction;
use crate::time::Timestamp;

/// When a [`Breaker`] opens, and how often it is then tried to close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// How many calls in a row must fail. The default is 10.
    pub failures: NonZeroU32,
    /// Which part of the calls within `window` must fail, of at least
    /// [`CALLS_MIN`](Self::CALLS_MIN); `None` if only failures in a row count. The default is 0.8.
    pub error_ratio: Option<Fraction>,
    /// For how long a call counts in `error_ratio`, to a tenth. The default is 10 s.
    pub window: Duration,
    /// The mean time between two probes of a store that is not asked. The default is 100 ms.
    pub probe_interval: Duration,
}

impl BreakerSettings {
    /// The fewest calls within the window that a ratio is made of: 20.
    pub const CALLS_MIN: u32 = 20;

    /// The failures in a row unless set otherwise: 10.
    pub const FAILURES_DEFAULT: NonZeroU32 = NonZeroU32::new(10).unwrap();

    /// The window unless set otherwise: 10 s.
    pub const WINDOW_DEFAULT: Duration = Duration::from_secs(10);

    /// The mean time between two probes unless set otherwise: 100 ms.
    pub const PROBE_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);

    /// Returns the pause before a probe: between half and one and a half of the mean, as `luck`
    /// wants, so that the nodes do not probe in step.
    pub fn pause(&self, luck: u64) -> Duration {
        let mean = self.probe_interval;
        let part = u32::try_from(luck % 1_024).unwrap_or_default();
        mean / 2 + mean.saturating_mul(part) / 1_023
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: Self::FAILURES_DEFAULT,
            error_ratio: Fraction::parse("0.8"),
            window: Self::WINDOW_DEFAULT,
            probe_interval: Self::PROBE_INTERVAL_DEFAULT,
        }
    }
}

/// Whether a store that fails is asked at all: a state machine without a clock and without I/O.
///
/// Closed, it lets calls through and counts how they end. Once too many failed it opens: no call
/// should go to the store then, until a probe has succeeded and [`close`](Self::close) was called.
/// `now` comes from a clock that does not go back; if it does, what was counted is forgotten.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Breaker, BreakerSettings, Timestamp};
///
/// let mut breaker = Breaker::new(BreakerSettings::default());
/// let now = Timestamp::EPOCH;
/// for _ in 0..9 {
///     assert!(!breaker.failed(now));
/// }
/// breaker.answered(now);
/// for _ in 0..9 {
///     assert!(!breaker.failed(now));
/// }
/// assert!(breaker.failed(now));
/// assert!(breaker.is_open());
/// assert!(breaker.close());
/// assert!(!breaker.is_open());
/// ```
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: BreakerSettings,
    open: bool,
    failures_in_a_row: u32,
    slices: [Slice; SLICES],
    /// How long one of them is.
    slice_us: u64,
}

/// How many parts the window is cut into, each of which is forgotten at once.
const SLICES: usize = 10;

/// What was counted in a part of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    /// The slice's beginning divided by its width.
    index: u64,
    answers: u32,
    failures: u32,
}

impl Breaker {
    /// Makes a closed breaker that has counted nothing.
    pub const fn new(settings: BreakerSettings) -> Self {
        let slice = Slice { index: 0, answers: 0, failures: 0 };
        let slice_us = settings.window.as_micros() / SLICES as u128;
        let slice_us = if slice_us > u64::MAX as u128 { u64::MAX } else { slice_us as u64 };
        let slice_us = if slice_us == 0 { 1 } else { slice_us };
        Self { settings, open: false, failures_in_a_row: 0, slices: [slice; SLICES], slice_us }
    }

    /// Returns the settings.
    pub const fn settings(&self) -> &BreakerSettings {
        &self.settings
    }

    /// Tells whether the store should not be asked.
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Notes that the store answered a call at `now`. An open breaker stays open.
    pub fn answered(&mut self, now: Timestamp) {
        self.failures_in_a_row = 0;
        if self.settings.error_ratio.is_some() {
            let slice = self.slice(now);
            slice.answers = slice.answers.saturating_add(1);
        }
    }

    /// Notes that a call failed at `now`, and tells whether that opened the breaker.
    pub fn failed(&mut self, now: Timestamp) -> bool {
        if self.open {
            return false;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        let slice = self.slice(now);
        slice.failures = slice.failures.saturating_add(1);
        self.open = self.failures_in_a_row >= self.settings.failures.get() || self.too_many(now);
        self.open
    }

    /// Closes the breaker, forgets what was counted, and tells whether it was open.
    pub const fn close(&mut self) -> bool {
        let was_open = self.open;
        *self = Self::new(self.settings);
        was_open
    }

    const fn index(&self, now: Timestamp) -> u64 {
        now.as_micros() / self.slice_us
    }

    fn slice(&mut self, now: Timestamp) -> &mut Slice {
        let index = self.index(now);
        let place = usize::try_from(index % SLICES as u64).unwrap_or_default();
        let slice = &mut self.slices[place];
        if slice.index != index {
            *slice = Slice { index, answers: 0, failures: 0 };
        }
        slice
    }

    /// Whether the failures within the window are too large a part of its calls.
    fn too_many(&self, now: Timestamp) -> bool {
        let Some(ratio) = self.settings.error_ratio else { return false };
        let newest = self.index(now);
        let counted = self
            .slices
            .iter()
            .filter(|slice| slice.index <= newest && newest - slice.index < SLICES as u64);
        let (answers, failures) = counted.fold((0_u64, 0_u64), |(answers, failures), slice| {
            (answers + u64::from(slice.answers), failures + u64::from(slice.failures))
        });
        let calls = answers + failures;
        calls >= u64::from(BreakerSettings::CALLS_MIN)
            && u128::from(failures) * u128::from(ratio.denominator().get())
                >= u128::from(calls) * u128::from(ratio.numerator().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn after(millis: u64) -> Timestamp {
        START.saturating_add(Duration::from_millis(millis))
    }

    fn settings(failures: u32, ratio: Option<&str>) -> BreakerSettings {
        BreakerSettings {
            failures: NonZeroU32::new(failures).unwrap(),
            error_ratio: ratio.map(|ratio| Fraction::parse(ratio).unwrap()),
            ..BreakerSettings::default()
        }
    }

    #[test]
    fn the_tenth_failure_in_a_row_opens_and_is_told_once() {
        let mut breaker = Breaker::new(BreakerSettings::default());
        assert_eq!((0..9).filter(|at| breaker.failed(after(*at))).count(), 0);
        assert!(!breaker.is_open());
        assert!(breaker.failed(after(9)));
        assert!(breaker.is_open());
        assert!(!breaker.failed(after(10)), "it was open before");
    }

    #[test]
    fn an_answer_begins_the_row_anew_and_closes_nothing() {
        let mut breaker = Breaker::new(settings(3, None));
        for at in 0..100 {
            assert!(!breaker.failed(after(at)) && !breaker.failed(after(at)));
            breaker.answered(after(at));
        }
        for at in 100..103 {
            breaker.failed(after(at));
        }
        assert!(breaker.is_open());
        breaker.answered(after(103));
        assert!(breaker.is_open(), "the answer to a call from before says nothing of now");
    }

    #[test]
    fn a_ratio_opens_at_its_exact_part_of_at_least_20_calls() {
        let mut breaker = Breaker::new(settings(1_000, Some("0.5")));
        for at in 0..10 {
            breaker.answered(after(at));
        }
        let opened = (0..10).filter(|at| breaker.failed(after(10 + at))).count();
        assert_eq!((opened, breaker.is_open()), (1, true), "the 20th call is the 10th failure");

        let mut breaker = Breaker::new(settings(1_000, Some("0.5")));
        (0..11).for_each(|at| breaker.answered(after(at)));
        assert_eq!((0..10).filter(|at| breaker.failed(after(20 + at))).count(), 0, "10 of 21");
        assert!(breaker.failed(after(30)), "11 of 22");
    }

    #[test]
    fn calls_leave_the_window_after_ten_seconds() {
        let mut breaker = Breaker::new(settings(1_000, Some("0.5")));
        for at in 0..19 {
            assert!(!breaker.failed(after(at)));
        }
        assert!(!breaker.failed(after(10_001)), "only one call is left");
        for at in 0..18 {
            assert!(!breaker.failed(after(10_100 + at)));
        }
        assert!(breaker.failed(after(10_200)), "the 20th within the window");
    }

    #[test]
    fn a_clock_that_goes_back_opens_nothing_by_itself() {
        let mut breaker = Breaker::new(settings(1_000, Some("0.8")));
        for at in 0..19 {
            breaker.failed(after(3_600_000 + at));
        }
        for at in 0..18 {
            assert!(!breaker.failed(after(at)));
        }
    }

    #[test]
    fn a_closed_breaker_has_forgotten_everything() {
        let mut breaker = Breaker::new(settings(2, Some("0.8")));
        breaker.failed(START);
        assert!(!breaker.close(), "it was not open");
        assert!(!breaker.failed(START));
        assert!(breaker.failed(START));
        assert!(breaker.close());
        assert!(!breaker.failed(START));
    }

    #[test]
    fn a_probe_comes_after_half_to_one_and_a_half_of_the_mean() {
        let settings = BreakerSettings::default();
        let pauses: Vec<_> = (0..5_000).map(|luck| settings.pause(luck)).collect();
        assert_eq!(pauses.iter().min(), Some(&Duration::from_millis(50)));
        assert_eq!(pauses.iter().max(), Some(&Duration::from_millis(150)));
    }
}
