//! The body of an API call: a small strict decoder that names the field at fault.

mod attributes;
mod calls;
mod object;
mod quick;
mod value;

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::{Attributes, Cost, Hold};
use tollgate_core::key;

pub(crate) use self::calls::{
    AcquireRequest, ApiRequest, CancelRequest, CommitRequest, LeaseRequest, RefundRequest,
    ReserveRequest,
};
use self::object::Object;
use self::value::{not_a_name, shortened, text, whole_number};

/// The most bytes of the attributes of a request that holds something, 8 for each attribute
/// included: its id has room for them.
const HELD_LEN_MAX: usize = 8 * 1024;

/// What a call is asked, as it is read from its body.
pub(crate) trait Call: Sized {
    /// The names of its fields, in alphabetical order.
    const FIELDS: &'static [&'static str];

    /// A body that is in order.
    const EXAMPLE: &'static str;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake>;

    fn parse(body: &[u8]) -> Result<Self, Mistake> {
        Self::read(&Fields::of(body, Self::FIELDS, Self::EXAMPLE)?)
    }
}

/// What is wrong with a body, and in which field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// `cost`, `attributes.ip` and the like; `None` if the body as a whole is at fault.
    pub(crate) field: Option<String>,
    pub(crate) detail: String,
}

impl Mistake {
    fn body(detail: String) -> Self {
        Self { field: None, detail }
    }

    fn field(field: impl Into<String>, detail: String) -> Self {
        Self { field: Some(field.into()), detail }
    }

    fn missing(field: &str, example: &str) -> Self {
        Self::field(field, format!("{field} is missing: send JSON such as {example}"))
    }

    /// Makes the mistake of a domain that cannot be a name.
    pub(crate) fn domain(domain: &str) -> Self {
        Self::field("domain", not_a_name("domain", domain))
    }

    /// Makes the mistake of a query of forward auth that has something else than a domain.
    pub(crate) fn parameter(name: &str) -> Self {
        let name = shortened(name);
        let detail = format!(
            "unknown parameter {name:?} in the query: the only one is domain. If it is the client's, \
             give the gateway's call a query of its own, such as /v1/auth?domain=default"
        );
        Self::field(name, detail)
    }

    /// Makes the mistake of a query that names a domain twice.
    pub(crate) fn domain_twice() -> Self {
        Self::field("domain", "domain is given twice in the query: give it once".to_owned())
    }
}

/// The fields of a body, known by name and given once, their values not yet read.
pub(crate) struct Fields<'a>(Vec<(String, &'a str)>);

impl<'a> Fields<'a> {
    fn of(body: &'a [u8], names: &[&str], example: &str) -> Result<Self, Mistake> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Mistake::body(format!("the body is not UTF-8 after byte {}", error.valid_up_to()))
        })?;
        if text.trim_ascii().is_empty() {
            return Err(Mistake::body(format!("the body is empty: send JSON such as {example}")));
        }
        let Object(fields) = serde_json::from_str(text).map_err(|error: serde_json::Error| {
            Mistake::body(if error.is_data() {
                format!("the body must be a JSON object such as {example}")
            } else {
                format!("the body is not valid JSON: {error}")
            })
        })?;
        for (index, (name, _)) in fields.iter().enumerate() {
            if !names.contains(&name.as_str()) {
                let (name, names) = (shortened(name), names.join(", "));
                let detail = match names.contains(',') {
                    true => format!("unknown field {name:?}: the fields are {names}"),
                    false => format!("unknown field {name:?}: the only field is {names}"),
                };
                return Err(Mistake::field(name, detail));
            }
            if fields[..index].iter().any(|(other, _)| other == name) {
                return Err(Mistake::field(name, format!("{name} is given twice: give it once")));
            }
        }
        Ok(Self(fields))
    }

    /// Returns the value of a field, as it was written.
    fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, raw)| *raw)
    }

    /// Reads the value of a field, if it is there.
    fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Mistake> {
        let value = self.raw(name).map(read).transpose();
        value.map_err(|detail| Mistake::field(name, detail))
    }

    fn attributes(&self, example: &str) -> Result<Attributes, Mistake> {
        let raw = self.raw("attributes").ok_or_else(|| Mistake::missing("attributes", example))?;
        attributes::read(raw)
    }

    fn cost(&self) -> Result<Option<Cost>, Mistake> {
        self.optional("cost", |raw| Ok(Cost::new(whole_number("cost", raw, 0..=u64::MAX)?)))
    }

    fn domain(&self) -> Result<Option<String>, Mistake> {
        self.optional("domain", |raw| {
            let domain = text("domain", raw)?;
            if key::is_name(&domain) { Ok(domain) } else { Err(not_a_name("domain", &domain)) }
        })
    }

    fn duration_ms(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<Duration>, Mistake> {
        self.optional(name, |raw| whole_number(name, raw, range).map(Duration::from_millis))
    }

    fn id(&self, name: &str, len: RangeInclusive<usize>) -> Result<Option<String>, Mistake> {
        self.optional(name, |raw| {
            let id = text(name, raw)?;
            if len.contains(&id.len()) {
                return Ok(id);
            }
            let (least, most) = (len.start(), len.end());
            Err(format!("{name} must have {least} to {most} bytes, not {}", id.len()))
        })
    }

    /// Reads what `/v1/acquire` answered.
    fn lease(&self, name: &str, example: &str) -> Result<Hold, Mistake> {
        let is_lease = |hold: &Hold| match hold.is_slots() {
            true => Ok(()),
            false => Err(format!("{name} is the id of a reservation: commit or cancel it")),
        };
        self.hold(name, example, is_lease)
    }

    /// Reads what `/v1/reserve` answered.
    fn reservation(&self, name: &str, example: &str) -> Result<Hold, Mistake> {
        let is_reservation = |hold: &Hold| match hold.is_slots() {
            false => Ok(()),
            true => Err(format!("{name} is the id of a lease: renew or release it")),
        };
        self.hold(name, example, is_reservation)
    }

    fn hold(
        &self,
        name: &str,
        example: &str,
        check: impl FnOnce(&Hold) -> Result<(), String>,
    ) -> Result<Hold, Mistake> {
        let hold = self.optional(name, |raw| {
            let hold = text(name, raw)?.parse().map_err(|error| format!("{name} is {error}"))?;
            check(&hold).map(|()| hold)
        })?;
        hold.ok_or_else(|| Mistake::missing(name, example))
    }

    /// Reads the attributes of a request that holds something, which its id carries.
    fn short_attributes(&self, example: &str) -> Result<Attributes, Mistake> {
        let attributes = self.attributes(example)?;
        let len: usize = attributes.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        if len > HELD_LEN_MAX {
            let detail = format!(
                "the attributes take {len} bytes: a request that holds something may have \
                 {HELD_LEN_MAX}, so leave out or shorten what no rule looks at"
            );
            return Err(Mistake::field("attributes", detail));
        }
        Ok(attributes)
    }
}

#[cfg(test)]
mod tests;
