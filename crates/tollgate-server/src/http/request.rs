//! The body of an API call: a small strict decoder that names the field at fault.

mod fields;

use std::cell::Cell;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate::{Attributes, Cost};

use self::fields::{
    bad_escape, check_name, kind_of, not_a_name, read_cost, read_domain, read_value, shortened,
};

/// The largest body in bytes.
pub(crate) const BODY_LEN_MAX: usize = 64 * 1024;

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

#[cfg(test)]
mod tests;
