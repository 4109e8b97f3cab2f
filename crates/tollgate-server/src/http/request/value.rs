//! The value of one field, read from JSON as it was written.

use std::ops::RangeInclusive;

use tollgate_core::key;

/// A value that is not text.
pub(super) enum NotText {
    Kind(&'static str),
    Escape,
}

/// Reads a whole number. It is read from the digits, since a JSON number beyond u64 would arrive
/// as a rounded float.
pub(super) fn whole_number(
    field: &str,
    raw: &str,
    range: RangeInclusive<u64>,
) -> Result<u64, String> {
    if raw.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = raw.parse()
        && range.contains(&number)
    {
        return Ok(number);
    }
    let found = match kind_of(raw) {
        "a number" => shortened(raw),
        kind => kind.to_owned(),
    };
    let (least, most) = (range.start(), range.end());
    Err(format!("{field} must be a whole number from {least} to {most}, not {found}"))
}

/// Reads a string.
pub(super) fn string(raw: &str) -> Result<String, NotText> {
    if !raw.starts_with('"') {
        return Err(NotText::Kind(kind_of(raw)));
    }
    serde_json::from_str(raw).map_err(|_| NotText::Escape)
}

/// Reads the string of a field that takes nothing else.
pub(super) fn text(field: &str, raw: &str) -> Result<String, String> {
    string(raw).map_err(|error| match error {
        NotText::Kind(kind) => format!("{field} must be a string, not {kind}"),
        NotText::Escape => bad_escape(field),
    })
}

pub(super) fn kind_of(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

pub(super) fn not_a_name(what: &str, name: &str) -> String {
    format!(
        "{what} must be 1 to {} letters, digits, '_', '-' or '.', not {:?}",
        key::NAME_LEN_MAX,
        shortened(name)
    )
}

pub(super) fn bad_escape(what: &str) -> String {
    format!("{what} has half of a surrogate pair: a character above U+FFFF needs both halves")
}

/// Returns the text, cut if it is too long to be repeated in an answer.
pub(super) fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = key::NAME_LEN_MAX;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
