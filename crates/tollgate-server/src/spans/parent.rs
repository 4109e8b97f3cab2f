//! `traceparent` and `tracestate`, by which a caller tells of its trace (W3C Trace Context).

use ::http::{HeaderMap, HeaderName};
use opentelemetry::trace::{SpanId, TraceId, TraceState};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest `tracestate` that is passed on, in bytes; a longer one is left out.
const STATE_LEN_MAX: usize = 512;

/// The length of a `traceparent` of version 00.
const LEN: usize = 55;

/// The span of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    /// Whether the caller records its span.
    pub(super) is_sampled: bool,
}

impl Parent {
    /// Reads the span of the caller. One that is malformed, or told more than once, is none.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        match values.next() {
            None => Self::parse(value.as_bytes()),
            Some(_) => None,
        }
    }

    /// Parses `00-<trace>-<span>-<flags>`. Versions to come may have more behind it.
    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LEN)?;
        let version = hex(&known[..2])?;
        let is_whole = match version {
            0x00 => rest.is_empty(),
            0xff => return None,
            _ => rest.is_empty() || rest[0] == b'-',
        };
        if !is_whole || known[2] != b'-' || known[35] != b'-' || known[52] != b'-' {
            return None;
        }
        let trace_id = u128::from(hex(&known[3..19])?) << 64 | u128::from(hex(&known[19..35])?);
        let span_id = hex(&known[36..52])?;
        let flags = hex(&known[53..])?;
        (trace_id != 0 && span_id != 0).then(|| Self {
            trace_id: TraceId::from(trace_id),
            span_id: SpanId::from(span_id),
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Reads `tracestate`, or nothing if it is malformed or too long.
pub(super) fn state(headers: &HeaderMap) -> TraceState {
    let mut text = String::new();
    for value in headers.get_all(TRACESTATE) {
        let Ok(value) = value.to_str() else { return TraceState::NONE };
        if !text.is_empty() {
            text.push(',');
        }
        if text.len() + value.len() > STATE_LEN_MAX {
            return TraceState::NONE;
        }
        text.push_str(value);
    }
    if text.is_empty() { TraceState::NONE } else { text.parse().unwrap_or(TraceState::NONE) }
}

/// What each byte is as a hexadecimal digit in lower case; 0xff for what is none.
const DIGITS: [u8; 256] = {
    let mut digits = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

/// Reads lower-case hexadecimal digits, 16 at most. Every request of a caller with a trace pays for
/// this, so there is no branch for each digit.
fn hex(digits: &[u8]) -> Option<u64> {
    let (mut number, mut seen) = (0, 0);
    for digit in digits {
        let value = DIGITS[usize::from(*digit)];
        seen |= value;
        number = number << 4 | u64::from(value & 0xf);
    }
    (seen < 16).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn parse(text: &str) -> Option<(String, String, bool)> {
        let parent = Parent::parse(text.as_bytes())?;
        Some((parent.trace_id.to_string(), parent.span_id.to_string(), parent.is_sampled))
    }

    #[test]
    fn a_traceparent_is_read_to_the_last_digit() {
        let expected = |sampled| Some((TRACE.to_owned(), SPAN.to_owned(), sampled));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-01")), expected(true));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-00")), expected(false));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-ff")), expected(true), "flags to come");
        assert_eq!(parse(&format!("cc-{TRACE}-{SPAN}-01")), expected(true), "a version to come");
        assert_eq!(parse(&format!("cc-{TRACE}-{SPAN}-01-more")), expected(true));
    }

    #[test]
    fn what_the_specification_calls_invalid_is_no_parent() {
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("cc-{TRACE}-{SPAN}-01.more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn two_traceparents_are_none() {
        let one = format!("00-{TRACE}-{SPAN}-01");
        assert!(Parent::of(&headers(TRACEPARENT, &[&one])).is_some());
        assert_eq!(Parent::of(&headers(TRACEPARENT, &[&one, &one])), None);
        assert_eq!(Parent::of(&HeaderMap::new()), None);
    }

    #[test]
    fn the_lines_of_tracestate_are_joined_and_a_long_one_is_left_out() {
        let read = |values: &[&str]| state(&headers(TRACESTATE, values)).header();
        assert_eq!(read(&["a=1,b=2", "c=3"]), "a=1,b=2,c=3");
        assert_eq!(read(&[]), "");
        assert_eq!(read(&["no list"]), "");
        let long = format!("a={}", "x".repeat(200));
        assert_eq!(read(&[&long, &long.replace('a', "b")]).len(), 405);
        assert_eq!(read(&[&long, &long.replace('a', "b"), &long.replace('a', "c")]), "");
    }
}
