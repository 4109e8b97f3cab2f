//! A rate with a burst, scaled so that all arithmetic is exact.

use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::cost::Cost;
use crate::divisor::Divisor;
use crate::rate::Rate;

/// How much may be spent: a rate, a burst and the algorithm that counts them.
///
/// `burst` is inclusive: a full bucket admits exactly `burst` units at once. It lies in
/// `1 ..= 2_147_483_647`. For the algorithms that count in windows the burst is the units of the
/// rate; for concurrency it is the number of slots, and the rate is that number per lease.
///
/// # Exactness
///
/// The content of a token bucket or a leaky bucket is kept as `level = tokens * scale`, where `units / scale` is the rate in
/// lowest terms and time runs in ticks: `dt` ticks add `dt * units` to the level, and the level
/// ends at `burst * scale`. Nothing is rounded, so nothing drifts. A tick is 1 µs; only when
/// `burst * scale` would pass 2^53 (Lua's numbers are doubles) is it coarsened to 10 µs, 100 µs and
/// so on up to 1 s, and units then appear once per tick instead of once per microsecond.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Quota, Rate};
///
/// let quota = Quota::new("100/s".parse()?, 20)?;
/// assert_eq!(quota.burst(), 20);
///
/// // Without a burst of its own a quota admits one period's units at once.
/// assert_eq!(Quota::from_rate(Rate::per_minute(30)?)?.burst(), 30);
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    rate: Rate,
    burst: u32,
    algorithm: Algorithm,
    tick_us: u32,
    units_per_tick: u64,
    scale: u64,
    by_scale: Divisor,
    by_units: Divisor,
}

impl Quota {
    /// The largest burst: 2^31 - 1.
    pub const BURST_MAX: u64 = (1 << 31) - 1;

    /// The largest level, 2^53: the end of the integers that a double holds exactly.
    pub const LEVEL_MAX: u64 = 1 << 53;

    const TICKS_US: [u32; 7] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

    /// The most units of a sliding log: 10,000.
    pub const LOG_UNITS_MAX: u64 = 10_000;

    /// The most slots of a concurrency quota: 10,000.
    pub const SLOTS_MAX: u64 = 10_000;

    /// The most cells of a sliding window: 100.
    pub const CELLS_MAX: u16 = 100;

    /// The longest lease of a concurrency quota: 1 day.
    pub const LEASE_TTL_MAX: Duration = Duration::from_secs(86_400);

    /// Makes the token bucket that refills at `rate` and holds `burst` units.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `burst` is 0 or above [`BURST_MAX`](Self::BURST_MAX), or if the two
    /// together cannot be counted exactly even in ticks of one second. A period of whole seconds
    /// of at most 48 days can be combined with every burst.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Self::scaled(rate, burst, Algorithm::TokenBucket)
    }

    /// Makes the leaky bucket whose queue holds `burst` units and drains at `rate`.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn leaky_bucket(rate: Rate, burst: u64) -> Result<Self, QuotaError> {
        Self::scaled(rate, burst, Algorithm::LeakyBucket)
    }

    /// Makes the fixed window that admits the units of `rate` in each of its periods, which are
    /// aligned to multiples of the period since the epoch.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the units are above [`BURST_MAX`](Self::BURST_MAX).
    pub fn fixed_window(rate: Rate) -> Result<Self, QuotaError> {
        Self::windowed(rate, Self::BURST_MAX, Algorithm::FixedWindow)
    }

    /// Makes the sliding window that admits the units of `rate` in any interval of its period's
    /// length, counted in `cells`.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the units are above [`BURST_MAX`](Self::BURST_MAX), or if there are more
    /// than [`CELLS_MAX`](Self::CELLS_MAX) cells or more cells than microseconds in the period.
    pub fn sliding_window(rate: Rate, cells: NonZeroU16) -> Result<Self, QuotaError> {
        if cells.get() > Self::CELLS_MAX || u64::from(cells.get()) > rate.period_us() {
            return Err(QuotaError::cells(format!(
                "{cells} cells are too many: give at most {}, and at most one per microsecond",
                Self::CELLS_MAX
            )));
        }
        Self::windowed(rate, Self::BURST_MAX, Algorithm::SlidingWindow { cells })
    }

    /// Makes the sliding log that admits the units of `rate` in any interval of its period's
    /// length, and remembers each request to do so.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the units are above [`LOG_UNITS_MAX`](Self::LOG_UNITS_MAX).
    pub fn sliding_log(rate: Rate) -> Result<Self, QuotaError> {
        Self::windowed(rate, Self::LOG_UNITS_MAX, Algorithm::SlidingLog)
    }

    /// Makes the concurrency quota of at most `slots` in flight, each for at most `lease_ttl`
    /// unless its holder renews it.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `slots` is 0 or above [`SLOTS_MAX`](Self::SLOTS_MAX), or if `lease_ttl` is
    /// below 1 ms, above [`LEASE_TTL_MAX`](Self::LEASE_TTL_MAX) or not in whole microseconds.
    pub fn concurrency(slots: u64, lease_ttl: Duration) -> Result<Self, QuotaError> {
        if slots == 0 || slots > Self::SLOTS_MAX {
            return Err(QuotaError::burst(format!(
                "{slots} slots in flight are out of range: give 1 to {}",
                Self::SLOTS_MAX
            )));
        }
        if lease_ttl < Duration::from_millis(1) || lease_ttl > Self::LEASE_TTL_MAX {
            return Err(QuotaError::rate(format!(
                "lease of {lease_ttl:?} is out of range: give 1ms to 1day"
            )));
        }
        let rate = Rate::new(slots, lease_ttl)?;
        Self::windowed(rate, Self::SLOTS_MAX, Algorithm::Concurrency { lease_ttl })
    }

    fn windowed(rate: Rate, units_max: u64, algorithm: Algorithm) -> Result<Self, QuotaError> {
        let burst = u32::try_from(rate.units()).ok().filter(|units| u64::from(*units) <= units_max);
        let burst = burst.ok_or_else(|| {
            QuotaError::burst(format!(
                "{} units of rate {rate} are above the most of {units_max} for {algorithm}",
                rate.units()
            ))
        })?;
        let (by_scale, by_units) = (Divisor::new(1), Divisor::new(1));
        Ok(Self {
            rate,
            burst,
            algorithm,
            tick_us: 1,
            units_per_tick: 0,
            scale: 0,
            by_scale,
            by_units,
        })
    }

    fn scaled(rate: Rate, burst: u64, algorithm: Algorithm) -> Result<Self, QuotaError> {
        if burst == 0 {
            return Err(QuotaError::burst(
                "burst 0 would deny every request: give at least 1".to_owned(),
            ));
        }
        let burst = u32::try_from(burst)
            .ok()
            .filter(|burst| u64::from(*burst) <= Self::BURST_MAX)
            .ok_or_else(|| {
                QuotaError::burst(format!(
                    "burst {burst} is above the largest burst of {}: give at most that",
                    Self::BURST_MAX
                ))
            })?;
        Self::TICKS_US
            .into_iter()
            .find_map(|tick_us| Self::in_ticks(rate, burst, tick_us))
            .map(|quota| Self { algorithm, ..quota })
            .ok_or_else(|| QuotaError::unrepresentable(rate, burst))
    }

    /// Makes the quota whose burst is the units of one period of `rate`.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the units of one period are above [`BURST_MAX`](Self::BURST_MAX): such a
    /// rate needs a burst of its own.
    pub fn from_rate(rate: Rate) -> Result<Self, QuotaError> {
        if rate.units() > Self::BURST_MAX {
            return Err(QuotaError::burst(format!(
                "burst defaults to the {} units of rate {rate}, above the largest burst of {}: \
                 set a burst",
                rate.units(),
                Self::BURST_MAX
            )));
        }
        Self::new(rate, rate.units())
    }

    /// Scales the quota to ticks of `tick_us`, if it then stays inside the exact integers.
    fn in_ticks(rate: Rate, burst: u32, tick_us: u32) -> Option<Self> {
        let units = u128::from(rate.units()) * u128::from(tick_us);
        let period = u128::from(rate.period_us());
        let divisor = gcd(units, period);
        let units_per_tick = u64::try_from(units / divisor).ok()?;
        let scale = u64::try_from(period / divisor).ok()?;
        let level_max = scale.checked_mul(u64::from(burst))?;
        let exact = level_max <= Self::LEVEL_MAX && units_per_tick <= Self::LEVEL_MAX;
        let algorithm = Algorithm::TokenBucket;
        let (by_scale, by_units) = (Divisor::new(scale), Divisor::new(units_per_tick));
        let quota =
            Self { rate, burst, algorithm, tick_us, units_per_tick, scale, by_scale, by_units };
        exact.then_some(quota)
    }

    /// Returns the sustained rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the most units that can pass at once.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the algorithm that counts.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Tells whether `cost` can ever be admitted, that is, whether it is at most the burst.
    pub const fn admits(&self, cost: Cost) -> bool {
        cost.units() <= self.burst as u64
    }

    /// Returns the length of a tick in microseconds: 1, 10, ... or 1,000,000.
    pub const fn tick_us(&self) -> u32 {
        self.tick_us
    }

    /// Returns what one tick adds to the level of a token bucket or leaky bucket, 0 for others.
    pub const fn units_per_tick(&self) -> u64 {
        self.units_per_tick
    }

    /// Returns the level of one unit in a token bucket or leaky bucket, 0 for others.
    pub const fn scale(&self) -> u64 {
        self.scale
    }

    /// Returns the level of a full token bucket or an empty leaky bucket, `burst * scale`, at most
    /// 2^53, and 0 for others.
    pub const fn level_max(&self) -> u64 {
        self.burst as u64 * self.scale
    }

    /// Returns the longest time until nothing spent is counted any more: for a token bucket the
    /// time that fills an empty one.
    pub fn fill_time(&self) -> Duration {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => self.ticks_to_gain(self.level_max()),
            Algorithm::SlidingWindow { cells } => {
                let cells = u64::from(cells.get());
                Duration::from_micros(self.rate.period_us().div_ceil(cells) * (cells + 1))
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency { .. } => {
                self.rate.period()
            }
        }
    }

    /// Returns the shortest time in which `units` can become available when none are: exact for
    /// the two buckets, zero for the algorithms that count in windows, where all may come at once.
    pub fn time_to_gain(&self, units: u64) -> Duration {
        match self.units_per_tick {
            0 => Duration::ZERO,
            per_tick => self.ticks(units.saturating_mul(self.scale).div_ceil(per_tick)),
        }
    }

    /// Returns the whole units in a level, at most 2^53.
    #[inline(always)]
    pub(crate) const fn units_in(&self, level: u64) -> u64 {
        self.by_scale.divide(level)
    }

    /// Tells whether the quota is counted as a level: a token bucket or a leaky bucket.
    pub(crate) const fn is_bucket(&self) -> bool {
        self.units_per_tick != 0
    }

    pub(crate) const fn period_us(&self) -> u64 {
        self.rate.period_us()
    }

    /// Returns the whole ticks, as a duration, after which the level has risen by `level` or more.
    #[inline(always)]
    pub(crate) fn ticks_to_gain(&self, level: u64) -> Duration {
        debug_assert!(level <= Self::LEVEL_MAX, "a level above every burst");
        self.ticks(self.by_units.divide(level + self.units_per_tick - 1))
    }

    #[inline(always)]
    fn ticks(&self, ticks: u64) -> Duration {
        // Nearly all ticks are of 1 us.
        if self.tick_us == 1 { Duration::from_micros(ticks) } else { self.coarse_ticks(ticks) }
    }

    #[inline(never)]
    fn coarse_ticks(&self, ticks: u64) -> Duration {
        let tick_us = u64::from(self.tick_us);
        let ticks_per_second = 1_000_000 / tick_us;
        let micros = (ticks % ticks_per_second) * tick_us;
        Duration::from_secs(ticks / ticks_per_second) + Duration::from_micros(micros)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                write!(f, "{} burst {}", self.rate, self.burst)
            }
            Algorithm::Concurrency { .. } => write!(f, "{} in flight", self.burst),
            _ => self.rate.fmt(f),
        }
    }
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A rate or a quota that cannot be.
///
/// The text names the offending value and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    part: Part,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Rate,
    Burst,
    Cells,
    Combination,
    Shards,
}

impl QuotaError {
    pub(crate) const fn rate(message: String) -> Self {
        Self { part: Part::Rate, message }
    }

    const fn burst(message: String) -> Self {
        Self { part: Part::Burst, message }
    }

    const fn cells(message: String) -> Self {
        Self { part: Part::Cells, message }
    }

    pub(crate) const fn shards(message: String) -> Self {
        Self { part: Part::Shards, message }
    }

    fn unrepresentable(rate: Rate, burst: u32) -> Self {
        let most = Quota::TICKS_US
            .into_iter()
            .filter_map(|tick_us| Quota::in_ticks(rate, 1, tick_us))
            .map(|quota| Quota::LEVEL_MAX / quota.scale)
            .max()
            .unwrap_or(0);
        let seconds = rate.period_us().div_ceil(1_000_000);
        let in_seconds = Rate::new(rate.units(), Duration::from_secs(seconds));
        let helps = |rate| Quota::in_ticks(rate, burst, 1_000_000).is_some();
        let other_period = match in_seconds {
            Ok(in_seconds) if in_seconds != rate && helps(in_seconds) => {
                "a period of whole seconds, or "
            }
            _ => "",
        };
        let message = format!(
            "burst {burst} at rate {rate} cannot be counted exactly in 53 bits: \
             use {other_period}a burst of at most {most}"
        );
        Self { part: Part::Combination, message }
    }

    /// Tells whether the rate alone is at fault.
    pub fn is_rate(&self) -> bool {
        self.part == Part::Rate
    }

    /// Tells whether the burst alone is at fault.
    pub fn is_burst(&self) -> bool {
        self.part == Part::Burst
    }

    /// Tells whether the number of cells is at fault.
    pub fn is_cells(&self) -> bool {
        self.part == Part::Cells
    }

    /// Tells whether the quota itself can be, but not in as many shards.
    pub fn is_shards(&self) -> bool {
        self.part == Part::Shards
    }

    /// Tells whether rate and burst are each valid but cannot be counted exactly together.
    pub fn is_unrepresentable(&self) -> bool {
        self.part == Part::Combination
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for QuotaError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(rate: &str, burst: u64) -> Quota {
        Quota::new(rate.parse().unwrap(), burst).unwrap()
    }

    #[test]
    fn the_rate_is_reduced_to_lowest_terms() {
        let quota = quota("700/min", 1);
        assert_eq!((quota.units_per_tick(), quota.scale(), quota.tick_us()), (7, 600_000, 1));
    }

    #[test]
    fn ticks_coarsen_only_when_the_level_would_pass_2_pow_53() {
        let day = 86_400_000_000_u64;
        let most = Quota::LEVEL_MAX / day;
        assert_eq!(quota("1/day", most).tick_us(), 1);
        let coarse = quota("1/day", most + 1);
        assert_eq!((coarse.tick_us(), coarse.scale()), (10, day / 10));
    }

    #[test]
    fn every_corner_of_the_stated_range_is_representable() {
        for rate in ["1/30day", "1/s", "1000000000/s", "999999937/s", "2591999999999937/30day"] {
            for burst in [1, 2, 1_000_003, Quota::BURST_MAX] {
                let quota = quota(rate, burst);
                assert!(quota.level_max() <= Quota::LEVEL_MAX, "{rate} {burst}");
            }
        }
        let slowest = quota("1/30day", Quota::BURST_MAX);
        assert_eq!(slowest.tick_us(), 1_000_000);
        assert_eq!(slowest.fill_time().as_secs(), Quota::BURST_MAX * 30 * 86_400);
    }

    #[test]
    fn what_cannot_be_counted_says_why_and_the_largest_burst_that_can() {
        let rate: Rate = "1/2591999999999us".parse().unwrap();
        let error = Quota::new(rate, Quota::BURST_MAX).unwrap_err();
        assert!(error.is_unrepresentable());
        assert_eq!(
            error.to_string(),
            "burst 2147483647 at rate 1/2591999999999us cannot be counted exactly in 53 bits: \
             use a period of whole seconds, or a burst of at most 3474"
        );
        assert!(Quota::new(rate, 3_474).is_ok());
        assert!(Quota::new(rate, 3_475).is_err());
    }

    #[test]
    fn whole_seconds_are_advised_only_where_they_help() {
        for (rate, most) in [("1/366day", 284_836_042), ("1/31622399999999us", 284)] {
            let rate: Rate = rate.parse().unwrap();
            let error = Quota::new(rate, Quota::BURST_MAX).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "burst 2147483647 at rate {rate} cannot be counted exactly in 53 bits: \
                     use a burst of at most {most}"
                )
            );
            assert!(Quota::new(rate, most).is_ok());
            assert!(Quota::new(rate, most + 1).is_err());
        }
    }

    #[test]
    fn bursts_outside_the_range_are_refused() {
        let rate: Rate = "1/s".parse().unwrap();
        assert!(Quota::new(rate, 0).unwrap_err().is_burst());
        for burst in [1 << 31, 1 << 53, (1 << 53) + 1, u64::MAX] {
            let error = Quota::new(rate, burst).unwrap_err();
            assert!(error.is_burst());
            assert_eq!(
                error.to_string(),
                format!(
                    "burst {burst} is above the largest burst of 2147483647: give at most that"
                )
            );
        }
        let error = Quota::from_rate("5000000000/hour".parse().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "burst defaults to the 5000000000 units of rate 5000000000/hour, \
             above the largest burst of 2147483647: set a burst"
        );
    }
}
