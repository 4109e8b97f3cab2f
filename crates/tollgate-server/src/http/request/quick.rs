//! The body of a check that is in order, read in one go.
//!
//! It reads less than [`Fields`](super::Fields) do and says nothing of what it does not read: a body with a
//! mistake is read again by those, which name it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use tollgate::{Attributes, Cost};
use tollgate_core::key;

use super::ApiRequest;
use super::attributes::COUNT_MAX;

/// Reads a body, if it is in order.
pub(super) fn read(body: &[u8]) -> Option<ApiRequest> {
    let Body(request) = serde_json::from_slice(body).ok()?;
    Some(request)
}

struct Body(ApiRequest);

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(Fields).map(Self)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = ApiRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ApiRequest, A::Error> {
        let (mut domain, mut attributes, mut cost) = (None, None, None);
        while let Some(Text(name)) = map.next_key()? {
            let is_first = match name.as_ref() {
                "domain" => domain.replace(map.next_value::<Text<'_>>()?).is_none(),
                "attributes" => attributes.replace(map.next_value::<Pairs>()?).is_none(),
                "cost" => cost.replace(map.next_value::<u64>()?).is_none(),
                _ => false,
            };
            if !is_first {
                return Err(mistake());
            }
        }
        let Pairs(mut attributes) = attributes.ok_or_else(mistake)?;
        if let Some(Text(domain)) = domain {
            if !key::is_name(&domain) {
                return Err(mistake());
            }
            if domain != attributes.domain() {
                attributes = attributes.with_domain(domain.into_owned());
            }
        }
        Ok(ApiRequest { attributes, cost: cost.map(Cost::new) })
    }
}

/// Attributes, of which there is at least one.
struct Pairs(Attributes);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(Names).map(Self)
    }
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::new();
        while let Some(Text(name)) = map.next_key()? {
            let Text(value) = map.next_value()?;
            let is_new = attributes.value(&name).is_none() && attributes.len() < COUNT_MAX;
            if value.is_empty() || !key::is_name(&name) || !is_new {
                return Err(mistake());
            }
            attributes.insert(name.into_owned(), value);
        }
        if attributes.is_empty() { Err(mistake()) } else { Ok(attributes) }
    }
}

/// A string, where it stands unless it has escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_str(Characters).map(Self)
    }
}

struct Characters;

impl<'de> Visitor<'de> for Characters {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// What stops the reading. Nobody sees it.
fn mistake<E: Error>() -> E {
    E::custom("")
}

#[cfg(test)]
mod tests {
    use crate::http::request::{Call, Fields};

    use super::*;

    fn thorough(body: &[u8]) -> Option<ApiRequest> {
        let fields = Fields::of(body, ApiRequest::FIELDS, ApiRequest::EXAMPLE).ok()?;
        ApiRequest::read(&fields).ok()
    }

    #[test]
    fn both_ways_read_the_same() {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            " ",
            "null",
            "true",
            "0",
            "1",
            "-1",
            "-0",
            "1.0",
            "1e2",
            "01",
            "18446744073709551615",
            "18446744073709551616",
            "\"\"",
            "\"ip\"",
            "\"i\\u0070\"",
            "\"a b\"",
            "\"\\ud800\"",
            "\"domain\"",
            "\"attributes\"",
            "\"cost\"",
            "\"other\"",
            "\"shop\"",
            "\"\u{e9}\"",
            "\"domain\":\"shop\"",
            "\"cost\":1",
            "\"cost\":null",
            "\"attributes\":{\"ip\":\"1\"}",
            "\"attributes\":{\"ip\":\"1\",\"path\":\"/\"}",
            "\"attributes\":{\"ip\":\"1\",\"ip\":\"2\"}",
            "\"attributes\":{\"ip\":\"\"}",
            "\"attributes\":{\"ip\":1}",
            "\"attributes\":[\"ip\",\"1\"]",
            "\"domain\":\"a b\"",
            "\"domain\":\"default\"",
            "\"attributes\":{}",
            "\"attributes\":{\"ip\":\"\\n\"}",
        ];
        let mut state = 7_u64;
        let mut next = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % end as u64) as usize
        };
        let mut read = 0;
        for round in 0..60_000 {
            // Mostly objects, so that some are in order.
            let count = next(5);
            let mut drawn: Vec<&str> = (0..count).map(|_| pieces[next(pieces.len())]).collect();
            let body = if round % 4 == 0 {
                drawn.concat()
            } else {
                drawn.retain(|piece| piece.contains(':') || round % 8 == 1);
                format!("{{{}}}", drawn.join(","))
            };
            let expected = thorough(body.as_bytes());
            assert_eq!(super::read(body.as_bytes()), expected, "{body}");
            read += u32::from(expected.is_some());
        }
        assert!(read > 1_000, "only {read} were in order");
        for body in [&b"{\"attributes\":{\"ip\":\"\xff\"}}"[..], b"\xff", b"", b"  "] {
            assert_eq!((super::read(body), thorough(body)), (None, None));
        }
        let attributes = |count| {
            let pairs: Vec<_> = (0..count).map(|index| format!("\"a{index}\":\"v\"")).collect();
            format!("{{\"attributes\":{{{}}}}}", pairs.join(","))
        };
        assert_eq!(super::read(attributes(64).as_bytes()), thorough(attributes(64).as_bytes()));
        assert_eq!(super::read(attributes(65).as_bytes()), None);
    }
}
