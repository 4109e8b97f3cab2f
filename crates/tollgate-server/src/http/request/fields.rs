//! The values of the fields, each read from its JSON text, and the words for what is wrong.

use tollgate::{Attributes, Cost};
use tollgate_core::key;

/// The most attributes of one request.
const ATTRIBUTE_COUNT_MAX: usize = 64;

pub(super) fn check_name(attributes: &Attributes, name: &str) -> Result<(), String> {
    if !key::is_name(name) {
        return Err(not_a_name("attribute name", name));
    }
    if attributes.value(name).is_some() {
        return Err(format!("attribute {name:?} is given twice: give it once"));
    }
    if attributes.len() == ATTRIBUTE_COUNT_MAX {
        return Err(format!(
            "attribute {name:?} is one too many: a request has at most {ATTRIBUTE_COUNT_MAX}"
        ));
    }
    Ok(())
}

pub(super) fn read_value(name: &str, raw: &str) -> Result<String, String> {
    let value = match read_string(raw) {
        Ok(value) => value,
        Err(NotText::Kind(kind @ ("a number" | "a boolean"))) => {
            return Err(format!(
                "attribute {name:?} must be a string, not {kind}: write \"{}\"",
                shortened(raw)
            ));
        }
        Err(NotText::Kind(kind)) => {
            return Err(format!(
                "attribute {name:?} must be a string, not {kind}: leave out what the request does \
                 not have"
            ));
        }
        Err(NotText::Escape) => return Err(bad_escape(&format!("attribute {name:?}"))),
    };
    if value.is_empty() {
        return Err(format!(
            "attribute {name:?} is empty: leave out what the request does not have"
        ));
    }
    Ok(value)
}

pub(super) fn read_domain(raw: &str) -> Result<String, String> {
    match read_string(raw) {
        Ok(domain) if key::is_name(&domain) => Ok(domain),
        Ok(domain) => Err(not_a_name("domain", &domain)),
        Err(NotText::Kind(kind)) => Err(format!("domain must be a string, not {kind}")),
        Err(NotText::Escape) => Err(bad_escape("domain")),
    }
}

pub(super) fn read_cost(raw: &str) -> Result<Cost, String> {
    // Read from the digits, since a JSON number beyond u64 would arrive as a rounded float.
    if raw.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(units) = raw.parse()
    {
        return Ok(Cost::new(units));
    }
    let found = match kind_of(raw) {
        "a number" => shortened(raw),
        kind => kind.to_owned(),
    };
    Err(format!("cost must be a whole number from 0 to {}, not {found}", u64::MAX))
}

enum NotText {
    Kind(&'static str),
    Escape,
}

fn read_string(raw: &str) -> Result<String, NotText> {
    if !raw.starts_with('"') {
        return Err(NotText::Kind(kind_of(raw)));
    }
    serde_json::from_str(raw).map_err(|_| NotText::Escape)
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
