//! The body of an API call: a small strict decoder that names the field at fault.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate::{Attributes, Cost};
use tollgate_core::key;

/// The largest body in bytes.
pub(crate) const BODY_LEN_MAX: usize = 64 * 1024;

/// The most attributes of one request.
pub(crate) const ATTRIBUTE_COUNT_MAX: usize = 64;

/// What `/v1/check` and its siblings are asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    pub(crate) attributes: Attributes,
    /// `None` if the body names no cost.
    pub(crate) cost: Option<Cost>,
}

/// What is wrong with a body, and in which field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// `cost`, `attributes.ip` and the like; `None` if the body as a whole is at fault.
    pub(crate) field: Option<String>,
    pub(crate) detail: String,
}

const EXAMPLE: &str = r#"{"attributes":{"ip":"203.0.113.7"}}"#;

impl ApiRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Mistake> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Mistake::body(format!("the body is not UTF-8 after byte {}", error.valid_up_to()))
        })?;
        if text.trim_ascii().is_empty() {
            return Err(Mistake::body(format!("the body is empty: send JSON such as {EXAMPLE}")));
        }
        let mistakes = Mistakes::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed = json.deserialize_any(Body { mistakes: &mistakes });
        // What follows the object matters only if the object is in order.
        let parsed = parsed.and_then(|request| json.end().map(|()| request));
        parsed.map_err(|error| {
            mistakes.take().unwrap_or_else(|| {
                Mistake::body(if error.is_data() {
                    format!("the body must be a JSON object such as {EXAMPLE}")
                } else {
                    format!("the body is not valid JSON: {error}")
                })
            })
        })
    }
}

impl Mistake {
    fn body(detail: String) -> Self {
        Self { field: None, detail }
    }

    fn field(field: impl Into<String>, detail: String) -> Self {
        Self { field: Some(field.into()), detail }
    }

    /// Makes the mistake of a domain that cannot be a name.
    pub(crate) fn domain(domain: &str) -> Self {
        Self::field("domain", not_a_name("domain", domain))
    }
}

/// Carries a mistake past serde, whose errors hold only text.
#[derive(Default)]
struct Mistakes {
    first: Cell<Option<Mistake>>,
}

impl Mistakes {
    fn stop<E: serde::de::Error>(&self, mistake: Mistake) -> E {
        self.first.set(Some(mistake));
        E::custom("mistake")
    }

    fn take(&self) -> Option<Mistake> {
        self.first.take()
    }
}

/// Reads the whole body.
struct Body<'m> {
    mistakes: &'m Mistakes,
}

impl<'de> Visitor<'de> for Body<'_> {
    type Value = ApiRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object such as {EXAMPLE}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ApiRequest, A::Error> {
        let mistakes = self.mistakes;
        let (mut domain, mut attributes, mut cost) = (None, None, None);
        while let Some(name) = map.next_key::<String>()? {
            let taken = match name.as_str() {
                "domain" => domain.is_some(),
                "attributes" => attributes.is_some(),
                "cost" => cost.is_some(),
                _ => {
                    let name = shortened(&name);
                    let detail =
                        format!("unknown field {name:?}: the fields are attributes, cost, domain");
                    return Err(mistakes.stop(Mistake::field(name, detail)));
                }
            };
            if taken {
                let detail = format!("{name} is given twice: give it once");
                return Err(mistakes.stop(Mistake::field(name, detail)));
            }
            match name.as_str() {
                "attributes" => {
                    attributes = Some(map.next_value_seed(AttributesField { mistakes })?)
                }
                field => {
                    let raw = map.next_value::<&RawValue>()?.get();
                    let read = if field == "cost" {
                        read_cost(raw).map(|units| cost = Some(units))
                    } else {
                        read_domain(raw).map(|name| domain = Some(name))
                    };
                    read.map_err(|detail| mistakes.stop(Mistake::field(field, detail)))?;
                }
            }
        }
        let Some(mut attributes) = attributes else {
            let detail = format!("attributes is missing: send JSON such as {EXAMPLE}");
            return Err(mistakes.stop(Mistake::field("attributes", detail)));
        };
        if let Some(domain) = domain {
            attributes = attributes.with_domain(domain);
        }
        Ok(ApiRequest { attributes, cost })
    }
}

/// Reads the value of `attributes`.
struct AttributesField<'m> {
    mistakes: &'m Mistakes,
}

impl<'de> DeserializeSeed<'de> for AttributesField<'_> {
    type Value = Attributes;

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<Attributes, D::Error> {
        let mistakes = self.mistakes;
        let raw = <&RawValue as serde::Deserialize>::deserialize(json)?.get();
        if !raw.starts_with('{') {
            let detail = format!("attributes must be an object of strings, not {}", kind_of(raw));
            return Err(mistakes.stop(Mistake::field("attributes", detail)));
        }
        let read = serde_json::Deserializer::from_str(raw).deserialize_map(self);
        read.map_err(|_| match mistakes.first.take() {
            Some(mistake) => mistakes.stop(mistake),
            // The syntax has been checked, all but the escapes in the names.
            None => {
                let detail = bad_escape("attribute name");
                mistakes.stop(Mistake::field("attributes", detail))
            }
        })
    }
}

impl<'de> Visitor<'de> for AttributesField<'_> {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::new();
        while let Some(name) = map.next_key::<String>()? {
            let mistake = |detail| {
                let field = match name.as_str() {
                    "" => "attributes".to_owned(),
                    name => format!("attributes.{}", shortened(name)),
                };
                self.mistakes.stop(Mistake::field(field, detail))
            };
            check_name(&attributes, &name).map_err(mistake)?;
            let raw = map.next_value::<&RawValue>()?.get();
            let value = read_value(&name, raw).map_err(mistake)?;
            attributes.insert(name, value);
        }
        if attributes.is_empty() {
            let detail = "attributes is empty: name at least one attribute of the request";
            let mistake = Mistake::field("attributes", detail.to_owned());
            return Err(self.mistakes.stop(mistake));
        }
        Ok(attributes)
    }
}

fn check_name(attributes: &Attributes, name: &str) -> Result<(), String> {
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

fn read_value(name: &str, raw: &str) -> Result<String, String> {
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

fn read_domain(raw: &str) -> Result<String, String> {
    match read_string(raw) {
        Ok(domain) if key::is_name(&domain) => Ok(domain),
        Ok(domain) => Err(not_a_name("domain", &domain)),
        Err(NotText::Kind(kind)) => Err(format!("domain must be a string, not {kind}")),
        Err(NotText::Escape) => Err(bad_escape("domain")),
    }
}

fn read_cost(raw: &str) -> Result<Cost, String> {
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

fn kind_of(raw: &str) -> &'static str {
    match raw.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

fn not_a_name(what: &str, name: &str) -> String {
    format!(
        "{what} must be 1 to {} letters, digits, '_', '-' or '.', not {:?}",
        key::NAME_LEN_MAX,
        shortened(name)
    )
}

fn bad_escape(what: &str) -> String {
    format!("{what} has half of a surrogate pair: a character above U+FFFF needs both halves")
}

/// Returns the text, cut if it is too long to be repeated in an answer.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = key::NAME_LEN_MAX;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
