//! A sustained rate and its text form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::quota::QuotaError;

const MICROS_PER_SECOND: u64 = 1_000_000;
const MICROS_PER_DAY: u64 = 86_400 * MICROS_PER_SECOND;

/// Units and their names, largest first: the first name of each is the one that is printed.
const TIME_UNITS: [(u64, &[&str]); 6] = [
    (MICROS_PER_DAY, &["day", "d", "days"]),
    (3_600 * MICROS_PER_SECOND, &["hour", "h", "hours"]),
    (60 * MICROS_PER_SECOND, &["min", "minute", "minutes"]),
    (MICROS_PER_SECOND, &["s", "sec", "second", "seconds"]),
    (1_000, &["ms"]),
    (1, &["us"]),
];

/// A sustained rate: so many units in a period.
///
/// The rate lies between 1 unit per [`PERIOD_MAX`](Self::PERIOD_MAX) and 1,000,000,000 units per
/// second. It is kept as two integers and never divided, so 3 per second stays exactly 3 per second.
///
/// # Text form
///
/// `UNITS/PERIOD`, where the period is a unit of time with an optional whole number before it:
/// `20/min`, `100/s`, `5000/hour`, `1/day`, `700/60s`, `10/500ms`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Rate;
///
/// let rate: Rate = "700/60s".parse()?;
/// assert_eq!(rate.units(), 700);
/// assert_eq!(rate.period(), Duration::from_secs(60));
/// assert_eq!(rate.to_string(), "700/min");
///
/// let error = "0/s".parse::<Rate>().unwrap_err();
/// assert_eq!(error.to_string(), "rate 0/s is zero: give at least 1 unit per period");
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    period_us: u64,
}

impl Rate {
    /// The longest period: 366 days.
    pub const PERIOD_MAX: Duration = Duration::from_secs(366 * 86_400);

    /// The lowest rate: 1 unit per [`PERIOD_MAX`](Self::PERIOD_MAX).
    pub(crate) const LOWEST: Self =
        Self { units: 1, period_us: Self::PERIOD_MAX.as_secs() * MICROS_PER_SECOND };

    /// The highest rate, in units per second.
    pub const UNITS_PER_SECOND_MAX: u64 = 1_000_000_000;

    /// Makes the rate of `units` units every `period`.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `units` is 0, if the period is 0, longer than
    /// [`PERIOD_MAX`](Self::PERIOD_MAX) or not a whole number of microseconds, or if the rate is
    /// above [`UNITS_PER_SECOND_MAX`](Self::UNITS_PER_SECOND_MAX).
    pub fn new(units: u64, period: Duration) -> Result<Self, QuotaError> {
        if period > Self::PERIOD_MAX {
            return Err(QuotaError::rate(format!(
                "period {period:?} is too long: the longest is 366 days"
            )));
        }
        if !period.subsec_nanos().is_multiple_of(1_000) {
            return Err(QuotaError::rate(format!(
                "period {period:?} is not a whole number of microseconds"
            )));
        }
        let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(units, micros)
    }

    fn from_micros(units: u64, period_us: u64) -> Result<Self, QuotaError> {
        let rate = Self { units, period_us };
        rate.checked(&rate)
    }

    /// Refuses a rate that cannot be, under the text by which its author knows it.
    fn checked(self, written: &dyn fmt::Display) -> Result<Self, QuotaError> {
        let Self { units, period_us } = self;
        if period_us == 0 {
            return Err(QuotaError::rate(format!(
                "rate {written} has a period of zero: give a period of at least 1us"
            )));
        }
        if u128::from(period_us) > Self::PERIOD_MAX.as_micros() {
            return Err(QuotaError::rate(format!(
                "period of rate {written} is too long: the longest is 366 days"
            )));
        }
        if units == 0 {
            return Err(QuotaError::rate(format!(
                "rate {written} is zero: give at least 1 unit per period"
            )));
        }
        let most = u128::from(Self::UNITS_PER_SECOND_MAX) * u128::from(period_us);
        if u128::from(units) * u128::from(MICROS_PER_SECOND) > most {
            return Err(QuotaError::rate(format!(
                "rate {written} is too high: the highest is 1000000000/s"
            )));
        }
        Ok(self)
    }

    /// Makes the rate of `units` units every second.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `units` is 0 or above 1,000,000,000.
    pub fn per_second(units: u64) -> Result<Self, QuotaError> {
        Self::from_micros(units, MICROS_PER_SECOND)
    }

    /// Makes the rate of `units` units every minute.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `units` is 0 or the rate is above 1,000,000,000 per second.
    pub fn per_minute(units: u64) -> Result<Self, QuotaError> {
        Self::from_micros(units, 60 * MICROS_PER_SECOND)
    }

    /// Makes the rate of `units` units every hour.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `units` is 0 or the rate is above 1,000,000,000 per second.
    pub fn per_hour(units: u64) -> Result<Self, QuotaError> {
        Self::from_micros(units, 3_600 * MICROS_PER_SECOND)
    }

    /// Makes the rate of `units` units every day of 24 hours.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if `units` is 0 or the rate is above 1,000,000,000 per second.
    pub fn per_day(units: u64) -> Result<Self, QuotaError> {
        Self::from_micros(units, MICROS_PER_DAY)
    }

    /// Returns the units of one period, at least 1.
    pub const fn units(self) -> u64 {
        self.units
    }

    /// Returns the period, a whole number of microseconds.
    pub const fn period(self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    pub(crate) const fn period_us(self) -> u64 {
        self.period_us
    }
}

impl FromStr for Rate {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let Some((units, period)) = trimmed.split_once('/') else {
            return Err(QuotaError::rate(format!(
                "rate {text:?} has no '/': write it as units/period, for example \"20/min\""
            )));
        };
        let (units, period) = (units.trim(), period.trim());
        let digits_end = period.find(|c: char| !c.is_ascii_digit()).unwrap_or(period.len());
        let (count, name) = period.split_at(digits_end);

        let units = parse_whole(units).ok_or_else(|| {
            QuotaError::rate(format!(
                "units {units:?} of rate {text:?} are not a whole number that fits 64 bits"
            ))
        })?;
        let count = if count.is_empty() { Some(1) } else { parse_whole(count) };
        let name = name.trim();
        let unit_us = TIME_UNITS
            .iter()
            .find(|(_, names)| names.contains(&name))
            .map(|(micros, _)| *micros)
            .ok_or_else(|| {
                QuotaError::rate(format!(
                    "unknown time unit {name:?} in rate {text:?}: \
                     use us, ms, s, min, hour or day, for example \"20/min\""
                ))
            })?;
        let period_us = count.and_then(|count| unit_us.checked_mul(count)).ok_or_else(|| {
            QuotaError::rate(format!(
                "period of rate {text:?} is too long: the longest is 366 days"
            ))
        })?;
        Self { units, period_us }.checked(&trimmed)
    }
}

/// Parses plain digits. `str::parse` alone would also take a sign, which no rate has.
fn parse_whole(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.period_us == 0 {
            return write!(f, "{}/0s", self.units);
        }
        let divides = |(micros, _): &&(u64, &[&str])| self.period_us.is_multiple_of(*micros);
        // A microsecond divides every period.
        let (micros, names) = TIME_UNITS.iter().find(divides).unwrap_or(&TIME_UNITS[5]);
        match self.period_us / micros {
            1 => write!(f, "{}/{}", self.units, names[0]),
            count => write!(f, "{}/{count}{}", self.units, names[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        text.parse::<Rate>().unwrap_err().to_string()
    }

    #[test]
    fn rate_strings_of_the_configuration_parse() {
        for (text, units, seconds) in [
            ("20/min", 20, 60),
            ("100/s", 100, 1),
            ("5000/hour", 5_000, 3_600),
            ("1/day", 1, 86_400),
            ("700/60s", 700, 60),
            (" 7 / 2 hours ", 7, 7_200),
            ("1/30days", 1, 30 * 86_400),
            ("1000000000/s", 1_000_000_000, 1),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.units(), rate.period().as_secs()), (units, seconds), "{text}");
        }
        let rate: Rate = "1000/us".parse().unwrap();
        assert_eq!(rate.period(), Duration::from_micros(1));
    }

    #[test]
    fn a_rate_is_printed_in_the_largest_unit_that_divides_its_period() {
        for (text, printed) in [
            ("1/5000s", "1/5000s"),
            ("7/1440min", "7/day"),
            ("7/25hours", "7/25hour"),
            ("7/1500ms", "7/1500ms"),
            ("7/60000000us", "7/min"),
            ("7/1001us", "7/1001us"),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), printed, "{text}");
        }
    }

    #[test]
    fn a_wrong_rate_is_repeated_as_it_was_written() {
        assert_eq!(
            message(" 0/90seconds "),
            "rate 0/90seconds is zero: give at least 1 unit per period"
        );
        assert_eq!(
            message("1/9000h"),
            "period of rate 1/9000h is too long: the longest is 366 days"
        );
        let error = Rate::new(1, Duration::ZERO).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rate 1/0s has a period of zero: give a period of at least 1us"
        );
    }

    #[test]
    fn display_parses_back_to_the_same_rate() {
        for text in ["20/min", "3/7us", "1/366d", "12/90s", "5/1500ms", "1/2591999999999us"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate, "{text}");
        }
    }

    #[test]
    fn wrong_rates_say_what_was_wrong_and_what_to_write() {
        assert_eq!(
            message("20"),
            "rate \"20\" has no '/': write it as units/period, for example \"20/min\""
        );
        assert_eq!(
            message("20/m"),
            "unknown time unit \"m\" in rate \"20/m\": \
             use us, ms, s, min, hour or day, for example \"20/min\""
        );
        assert_eq!(message("0/s"), "rate 0/s is zero: give at least 1 unit per period");
        assert_eq!(
            message("5/0s"),
            "rate 5/0s has a period of zero: give a period of at least 1us"
        );
        for units in ["1.5", "-1", "+1", "1e3", "18446744073709551616"] {
            assert_eq!(
                message(&format!("{units}/s")),
                format!(
                    "units {units:?} of rate \"{units}/s\" are not a whole number that fits 64 bits"
                )
            );
        }
        assert_eq!(
            message("1000000001/s"),
            "rate 1000000001/s is too high: the highest is 1000000000/s"
        );
        assert_eq!(message("1001/us"), "rate 1001/us is too high: the highest is 1000000000/s");
        assert_eq!(
            message("1/367day"),
            "period of rate 1/367day is too long: the longest is 366 days"
        );
        assert_eq!(
            message("1/99999999999999999999day"),
            "period of rate \"1/99999999999999999999day\" is too long: the longest is 366 days"
        );
    }

    #[test]
    fn a_part_of_a_microsecond_is_refused() {
        let error = Rate::new(1, Duration::from_nanos(1_500)).unwrap_err();
        assert_eq!(error.to_string(), "period 1.5µs is not a whole number of microseconds");
        assert!(Rate::new(1, Rate::PERIOD_MAX + Duration::from_secs(1)).is_err());
        assert!(Rate::new(u64::MAX, Rate::PERIOD_MAX).is_err());
    }
}
