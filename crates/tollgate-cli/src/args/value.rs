//! The values of options on costs and on what is held.

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::Hold;

use super::wait;

pub(super) fn cost(text: &str) -> Result<u64, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| format!("write a whole number from 0 to {}, for example 5", u64::MAX))
}

pub(super) fn reservation(text: &str) -> Result<Hold, String> {
    match hold(text)? {
        hold if hold.is_slots() => Err("it is the id of a lease: renew or release it".to_owned()),
        hold => Ok(hold),
    }
}

pub(super) fn lease(text: &str) -> Result<Hold, String> {
    match hold(text)? {
        hold if hold.is_slots() => Ok(hold),
        _ => Err("it is the id of a reservation: commit or cancel it".to_owned()),
    }
}

fn hold(text: &str) -> Result<Hold, String> {
    text.parse().map_err(|error| format!("it is {error}"))
}

pub(super) fn ttl(text: &str) -> Result<Duration, String> {
    const RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
    let ttl = wait(text)?;
    match RANGE.contains(&ttl) {
        true => Ok(ttl),
        false => Err("write a time from 1s to 24hour, for example 1min".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_whole_number_without_a_sign() {
        assert_eq!(cost("0"), Ok(0));
        assert_eq!(cost("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "-1", "+1", "1.5", "1e3", " 1", "18446744073709551616"] {
            let error = "write a whole number from 0 to 18446744073709551615, for example 5";
            assert_eq!(cost(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_reservation_stands_for_a_second_to_a_day() {
        for (text, seconds) in [("1s", 1), ("1000ms", 1), ("24hour", 86_400)] {
            assert_eq!(ttl(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["0s", "999ms", "25hour", "1day", "60"] {
            assert!(ttl(text).is_err(), "{text}");
        }
    }
}
