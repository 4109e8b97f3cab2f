//! How long a caller waits.

use std::time::Duration;

/// Returns how long the store may take, by the `grpc-timeout` of a request: three quarters of the time that
/// the caller gives, so that the answer of the rules' policies still arrives in time. `None` if it is no
/// such timeout.
pub fn patience(timeout: &str) -> Option<Duration> {
    parse(timeout).map(|timeout| timeout * 3 / 4)
}

/// Parses a `grpc-timeout`: at most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, timeout) in [
            ("20m", Some(Duration::from_millis(20))),
            ("1S", Some(Duration::from_secs(1))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("250000u", Some(Duration::from_millis(250))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000n", None),
            ("", None),
            ("m", None),
            ("20", None),
            ("-1m", None),
            ("+1m", None),
            ("1.5S", None),
            ("20\u{e9}", None),
        ] {
            assert_eq!(parse(text), timeout, "{text}");
        }
    }

    #[test]
    fn a_quarter_of_the_time_is_left_for_the_way_back() {
        assert_eq!(patience("20m"), Some(Duration::from_millis(15)));
        assert_eq!(patience("soon"), None);
    }
}
