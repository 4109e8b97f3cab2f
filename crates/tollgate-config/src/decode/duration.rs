//! Durations such as `50ms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

const UNITS: [(&str, u64); 4] = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)];

impl Decoder<'_> {
    /// Reads a duration: a whole number and its unit.
    pub(super) fn duration(
        &mut self,
        node: &Node,
        field: &str,
        range: RangeInclusive<Duration>,
        example: &str,
    ) -> Option<Duration> {
        let text = self.text(node, &format!("`{field}`"), "a duration")?;
        let problem = match parse(text) {
            Ok(duration) if range.contains(&duration) => return Some(duration),
            Ok(_) => format!("it must be {} to {}", written(*range.start()), written(*range.end())),
            Err(problem) => problem.to_owned(),
        };
        let message = format!("`{field}` cannot be {}", quoted(text));
        let help = format!(
            "write a whole number and one of us, ms, s, min: `{}`",
            self.format.assign_text(field, example)
        );
        self.error(Mistake::new(node.span.clone(), message).label(problem).help(help));
        None
    }
}

/// Writes a duration as the configuration does.
fn written(duration: Duration) -> String {
    let micros = duration.as_micros();
    let fits = |(_, unit): &&(&str, u64)| micros.is_multiple_of(u128::from(*unit));
    let (name, unit) = UNITS.iter().rfind(fits).unwrap_or(&UNITS[0]);
    format!("{}{name}", micros / u128::from(*unit))
}

fn parse(text: &str) -> Result<Duration, &'static str> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    if digits.is_empty() {
        return Err("it does not begin with a whole number");
    }
    let unit = unit.trim();
    if unit.is_empty() {
        return Err("it has no unit");
    }
    if unit.starts_with('.') {
        return Err("the number is not whole");
    }
    let micros = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, micros)| *micros)
        .ok_or("it has an unknown unit")?;
    let count: u64 = digits.parse().map_err(|_| "it is too long")?;
    count.checked_mul(micros).map(Duration::from_micros).ok_or("it is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_its_largest_whole_unit() {
        for text in ["100us", "50ms", "1s", "1500ms", "1min", "90s"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        for (text, micros) in [
            ("50ms", 50_000),
            ("500us", 500),
            ("2s", 2_000_000),
            ("1min", 60_000_000),
            ("50 ms", 50_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "50", "ms", "1.5s", "-5ms", "5m", "5 hours", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("18446744073709551615min"), Err("it is too long"));
    }
}
