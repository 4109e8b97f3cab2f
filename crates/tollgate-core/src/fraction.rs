//! An exact part of a quota.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::quota::{Quota, QuotaError};
use crate::rate::Rate;

/// An exact fraction above 0 and at most 1.
///
/// # Examples
///
/// ```
/// use tollgate_core::Fraction;
///
/// let share = Fraction::parse("0.8").unwrap();
/// assert_eq!((share.numerator().get(), share.denominator().get()), (8, 10));
/// assert_eq!(Fraction::parse("0"), None);
/// assert_eq!(Fraction::parse("1.5"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: NonZeroU32,
    denominator: NonZeroU32,
}

impl Fraction {
    /// The whole.
    pub const ONE: Self = Self { numerator: NonZeroU32::MIN, denominator: NonZeroU32::MIN };

    /// Makes the fraction 1 / `denominator`.
    pub const fn one_of(denominator: NonZeroU32) -> Self {
        Self { numerator: NonZeroU32::MIN, denominator }
    }

    /// Parses a decimal such as `0.8` or `1`, with at most 6 decimals. Gives `None` for anything
    /// that is not above 0 and at most 1.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 6 {
            return None;
        }
        let denominator = 10_u32.pow(u32::try_from(decimals.len()).ok()?);
        let tail = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
        let numerator = whole.parse::<u32>().ok()?.checked_mul(denominator)?.checked_add(tail)?;
        if numerator > denominator {
            return None;
        }
        Some(Self {
            numerator: NonZeroU32::new(numerator)?,
            denominator: NonZeroU32::new(denominator)?,
        })
    }

    /// Returns the numerator.
    pub const fn numerator(self) -> NonZeroU32 {
        self.numerator
    }

    /// Returns the denominator.
    pub const fn denominator(self) -> NonZeroU32 {
        self.denominator
    }

    /// Returns this part of `quota`: the rate exactly, the burst rounded down but at least 1.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the part is below the lowest rate or cannot be counted exactly.
    pub fn of(self, quota: &Quota) -> Result<Quota, QuotaError> {
        if self.numerator == self.denominator {
            return Ok(*quota);
        }
        let (numerator, denominator) =
            (u64::from(self.numerator.get()), u64::from(self.denominator.get()));
        let rate = quota.rate();
        let burst = (u64::from(quota.burst()) * numerator / denominator).max(1);
        if let Algorithm::Concurrency { lease_ttl } = quota.algorithm() {
            return Quota::concurrency(burst, lease_ttl);
        }
        if let Some(windowed) = self.of_window(quota, burst) {
            return windowed;
        }
        let units = rate.units().checked_mul(numerator);
        let period = rate.period().checked_mul(self.denominator.get());
        let (Some(units), Some(period)) = (units, period) else {
            return Err(QuotaError::rate(format!("rate {rate} is too high to divide")));
        };
        let rate = Rate::new(units, period)?;
        match quota.algorithm() {
            Algorithm::LeakyBucket => Quota::leaky_bucket(rate, burst),
            _ => Quota::new(rate, burst),
        }
    }

    /// Returns this part of `quota`, or the next lower one that can be counted: at least one unit
    /// in 366 days.
    pub(crate) fn of_or_below(self, quota: &Quota) -> Result<Quota, QuotaError> {
        let exact = self.of(quota);
        if exact.is_ok() {
            return exact;
        }
        let rate = self.rate_or_below(quota.rate());
        let (numerator, denominator) =
            (u64::from(self.numerator.get()), u64::from(self.denominator.get()));
        let mut burst = (u64::from(quota.burst()) * numerator / denominator).max(1);
        loop {
            let part = match quota.algorithm() {
                Algorithm::FixedWindow => Quota::fixed_window(rate),
                Algorithm::SlidingLog => Quota::sliding_log(rate),
                Algorithm::SlidingWindow { cells } => Quota::sliding_window(rate, cells),
                Algorithm::LeakyBucket => Quota::leaky_bucket(rate, burst),
                _ => Quota::new(rate, burst),
            };
            if part.is_ok() || burst == 1 {
                return part;
            }
            burst /= 2;
        }
    }

    /// Whole units per day, or where the part is less than one, whole seconds per unit. Both can be
    /// counted in ticks of a second.
    fn rate_or_below(self, rate: Rate) -> Rate {
        const DAY_US: u128 = 86_400_000_000;
        let units = u128::from(rate.units()) * u128::from(self.numerator.get());
        let period_us = rate.period().as_micros() * u128::from(self.denominator.get());
        let whole_seconds = period_us.div_ceil(units).div_ceil(1_000_000);
        let per_day = u64::try_from(units * DAY_US / period_us);
        let lower = match per_day {
            Ok(0) => u64::try_from(whole_seconds)
                .ok()
                .and_then(|seconds| Rate::new(1, Duration::from_secs(seconds)).ok()),
            Ok(units) => Rate::per_day(units).ok(),
            Err(_) => None,
        };
        lower.unwrap_or(Rate::LOWEST)
    }

    /// The part of a quota that is counted in windows: whole units of the same window, or, where
    /// the part is less than one unit, one unit of a longer window.
    fn of_window(self, quota: &Quota, units: u64) -> Option<Result<Quota, QuotaError>> {
        let (numerator, denominator) = (self.numerator.get(), self.denominator.get());
        let rate = quota.rate();
        let less_than_one =
            rate.units().saturating_mul(u64::from(numerator)) < u64::from(denominator);
        let period = if less_than_one {
            let units = u32::try_from(rate.units()).unwrap_or(u32::MAX);
            rate.period() * denominator / (units * numerator)
        } else {
            rate.period()
        };
        let period = Duration::from_micros(u64::try_from(period.as_nanos().div_ceil(1_000)).ok()?);
        let rate = move || Rate::new(units, period);
        match quota.algorithm() {
            Algorithm::FixedWindow => Some(rate().and_then(Quota::fixed_window)),
            Algorithm::SlidingLog => Some(rate().and_then(Quota::sliding_log)),
            Algorithm::SlidingWindow { cells } => {
                Some(rate().and_then(|rate| Quota::sliding_window(rate, cells)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(rate: &str, burst: u64) -> Quota {
        Quota::new(rate.parse().unwrap(), burst).unwrap()
    }

    #[test]
    fn a_part_of_a_quota_is_exact_and_holds_at_least_one_unit() {
        let third = Fraction::one_of(NonZeroU32::new(3).unwrap()).of(&quota("1/s", 2)).unwrap();
        assert_eq!(third, quota("1/3s", 1));
        let most = Fraction::parse("0.8").unwrap().of(&quota("10/s", 10)).unwrap();
        assert_eq!((most.units_per_tick(), most.scale()), (1, 125_000));
        assert_eq!(most.burst(), 8);
        assert_eq!(Fraction::parse("1").unwrap().of(&quota("7/s", 7)).unwrap(), quota("7/s", 7));
    }

    #[test]
    fn a_part_that_cannot_be_counted_is_the_next_lower_one() {
        let quotas = [
            quota("1/366day", 1),
            quota("2/min", 2),
            quota("999999937/s", Quota::BURST_MAX),
            quota("2591999999999937/30day", Quota::BURST_MAX),
            Quota::leaky_bucket("7/366day".parse().unwrap(), 1_000_003).unwrap(),
            Quota::fixed_window("3/300day".parse().unwrap()).unwrap(),
            Quota::sliding_log("1/day".parse().unwrap()).unwrap(),
            Quota::sliding_window("5/min".parse().unwrap(), Algorithm::CELLS_DEFAULT).unwrap(),
            Quota::concurrency(3, Duration::from_secs(30)).unwrap(),
        ];
        for quota in quotas {
            for nodes in [1, 2, 3, 5, 7, 366, 1_000_003, u32::MAX] {
                let part = Fraction::one_of(NonZeroU32::new(nodes).unwrap()).of_or_below(&quota);
                let part = part.unwrap_or_else(|error| panic!("{quota} / {nodes}: {error}"));
                assert_eq!(part.algorithm(), quota.algorithm());
                assert!((1..=quota.burst()).contains(&part.burst()), "{quota} / {nodes}: {part}");
                let most = u64::from(quota.burst()).div_ceil(u64::from(nodes));
                assert!(u64::from(part.burst()) <= most, "{quota} / {nodes}: {part}");
                if part.rate().period() == Rate::PERIOD_MAX
                    || matches!(part.algorithm(), Algorithm::Concurrency { .. })
                {
                    continue;
                }
                let (one, whole) = (part.rate(), quota.rate());
                let of_all =
                    u128::from(one.units()) * u128::from(nodes) * whole.period().as_micros();
                let granted = u128::from(whole.units()) * one.period().as_micros();
                assert!(of_all <= granted, "{quota} / {nodes}: {part} is more than a share");
            }
        }
    }

    #[test]
    fn a_limit_below_the_number_of_nodes_becomes_a_slower_rate_with_a_burst_of_one() {
        let fifth = Fraction::one_of(NonZeroU32::new(5).unwrap());
        assert_eq!(fifth.of(&quota("2/min", 2)).unwrap(), quota("2/5min", 1));
        let window = Quota::fixed_window("2/min".parse().unwrap()).unwrap();
        assert_eq!(fifth.of(&window).unwrap().rate(), "1/150s".parse().unwrap());
    }

    #[test]
    fn only_decimals_above_0_and_up_to_1_are_fractions() {
        for text in ["0", "0.0", "1.1", "2", "-0.5", "+1", ".5", "0.5.5", "", "a", "0.1234567"] {
            assert_eq!(Fraction::parse(text), None, "{text:?}");
        }
        for text in ["1", "1.0", "0.5", "0.000001"] {
            assert!(Fraction::parse(text).is_some(), "{text:?}");
        }
    }
}
