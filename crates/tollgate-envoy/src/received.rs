//! Requests as gateways really send them.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use prost::{DecodeError, Message};

use crate::proto::rate_limit_descriptor::Entry;
use crate::proto::{RateLimitDescriptor, RateLimitRequest};

/// Decodes a request.
///
/// Envoy copies headers of its clients into descriptors as they are, also bytes that no text of
/// Protobuf may have. An error would let such a request pass by `failure_mode_deny: false`, so they are
/// taken as Latin-1, as forward auth takes them.
pub(crate) fn decode(message: &[u8]) -> Result<RateLimitRequest, DecodeError> {
    if let Some(request) = plain(message) {
        return Ok(request);
    }
    RateLimitRequest::decode(message).or_else(|error| {
        let mended = mended(message, Shape::Request).ok_or(error)?;
        RateLimitRequest::decode(&*mended)
    })
}

/// The tags of the fields that nearly every request has, and no other.
const DOMAIN: u8 = 1 << 3 | 2;
const DESCRIPTOR: u8 = 2 << 3 | 2;
const HITS: u8 = 3 << 3;
const ENTRY: u8 = 1 << 3 | 2;
const KEY: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;

/// Room for the descriptors of nearly every request, and for the entries of each.
const ROOM: usize = 4;

/// Decodes a request that has nothing but those fields, with less ado than for all that a message can be.
/// `None` if there is anything else, or anything is wrong.
fn plain(mut message: &[u8]) -> Option<RateLimitRequest> {
    let mut request =
        RateLimitRequest { descriptors: Vec::with_capacity(ROOM), ..RateLimitRequest::default() };
    while !message.is_empty() {
        if let [HITS, hits @ ..0x80, rest @ ..] = message {
            (request.hits_addend, message) = (u32::from(*hits), rest);
            continue;
        }
        match field(&mut message)? {
            (DOMAIN, domain) => request.domain = text(domain)?,
            (DESCRIPTOR, descriptor) => request.descriptors.push(plain_descriptor(descriptor)?),
            _ => return None,
        }
    }
    Some(request)
}

fn plain_descriptor(mut message: &[u8]) -> Option<RateLimitDescriptor> {
    // What has no entries takes no room for them.
    let mut entries = Vec::with_capacity(if message.is_empty() { 0 } else { ROOM });
    while !message.is_empty() {
        let (ENTRY, mut message) = field(&mut message)? else { return None };
        let mut entry = Entry::default();
        while !message.is_empty() {
            match field(&mut message)? {
                (KEY, key) => entry.key = text(key)?,
                (VALUE, value) => entry.value = text(value)?,
                _ => return None,
            }
        }
        entries.push(entry);
    }
    Some(RateLimitDescriptor { entries, ..RateLimitDescriptor::default() })
}

/// Splits a field off whose length comes first, and is less than 16 KiB.
fn field<'m>(message: &mut &'m [u8]) -> Option<(u8, &'m [u8])> {
    let (tag, len, rest) = match message {
        [tag, len @ ..0x80, rest @ ..] => (*tag, usize::from(*len), rest),
        [tag, low, high @ 1..0x80, rest @ ..] => {
            (*tag, usize::from(*low & 0x7f) | usize::from(*high) << 7, rest)
        }
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(len)?;
    *message = rest;
    Some((tag, value))
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// A message with text in it, be it within others.
#[derive(Clone, Copy)]
enum Shape {
    Request,
    Descriptor,
    Entry,
}

enum Field {
    Text,
    Message(Shape),
    Other,
}

impl Shape {
    const fn field(self, number: u32) -> Field {
        match (self, number) {
            (Self::Request, 1) | (Self::Entry, 1 | 2) => Field::Text,
            (Self::Request, 2) => Field::Message(Self::Descriptor),
            (Self::Descriptor, 1) => Field::Message(Self::Entry),
            _ => Field::Other,
        }
    }
}

/// Writes a message with text in place of what is none, `None` if it is no message.
fn mended(mut message: &[u8], shape: Shape) -> Option<Vec<u8>> {
    let mut mended = Vec::with_capacity(message.len() * 2);
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        encode_key(number, wire_type, &mut mended);
        let length = match wire_type {
            WireType::Varint => {
                encode_varint(decode_varint(&mut message).ok()?, &mut mended);
                continue;
            }
            WireType::ThirtyTwoBit => 4,
            WireType::SixtyFourBit => 8,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        message = rest;
        if wire_type != WireType::LengthDelimited {
            mended.extend_from_slice(value);
            continue;
        }
        let value = match shape.field(number) {
            Field::Text if std::str::from_utf8(value).is_err() => {
                value.iter().copied().map(char::from).collect::<String>().into_bytes()
            }
            Field::Message(inner) => self::mended(value, inner)?,
            Field::Text | Field::Other => value.to_vec(),
        };
        encode_varint(value.len() as u64, &mut mended);
        mended.extend_from_slice(&value);
    }
    Some(mended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::rate_limit_descriptor::RateLimitOverride;

    fn request(value: &str) -> RateLimitRequest {
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let limit = Some(RateLimitOverride { requests_per_unit: 5, unit: 1 });
        let descriptor = RateLimitDescriptor {
            entries: vec![entry("tenant", value), entry("path", "/ü")],
            limit,
            hits_addend: Some(7),
            ..RateLimitDescriptor::default()
        };
        RateLimitRequest {
            domain: "shop".into(),
            descriptors: vec![descriptor.clone(), descriptor],
            hits_addend: 3,
        }
    }

    /// The bytes of a request in which each `?` is another byte.
    fn with_byte(text: &str, byte: u8) -> Vec<u8> {
        let mut message = request(text).encode_to_vec();
        message.iter_mut().filter(|at| **at == b'?').for_each(|at| *at = byte);
        message
    }

    #[test]
    fn bytes_that_are_no_text_are_taken_as_latin_1_and_all_else_stays() {
        assert_eq!(decode(&with_byte("a?b", 0xFF)).unwrap(), request("aÿb"));
        assert_eq!(decode(&with_byte("??", 0xC3)).unwrap(), request("ÃÃ"));
        assert_eq!(decode(&with_byte("", 0xFF)).unwrap(), request(""));
        let long = "?".repeat(20_000);
        assert_eq!(decode(&with_byte(&long, 0xE9)).unwrap(), request(&"é".repeat(20_000)));
    }

    #[test]
    fn what_is_read_with_less_ado_is_what_the_decoder_of_all_messages_reads() {
        let descriptor = |pairs: &[(&str, &str)]| RateLimitDescriptor {
            entries: pairs
                .iter()
                .map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() })
                .collect(),
            ..RateLimitDescriptor::default()
        };
        let long = "x".repeat(300);
        let all = RateLimitRequest {
            domain: "shop".into(),
            descriptors: vec![
                descriptor(&[("ip", "192.0.2.1"), ("path", "/ü"), ("", "")]),
                descriptor(&[]),
                descriptor(&[("agent", &long)]),
            ],
            hits_addend: 127,
        };
        let whole = all.encode_to_vec();
        assert_eq!(plain(&whole), Some(all));
        let mut read = 0;
        for length in 0..whole.len() {
            for (at, byte) in [(0, whole[0]), (length, 0), (length, 0x80), (length / 2, 0x18)] {
                let mut message = whole[..length].to_vec();
                message.get_mut(at).into_iter().for_each(|known| *known = byte);
                if let Some(request) = plain(&message) {
                    assert_eq!(RateLimitRequest::decode(&*message), Ok(request), "{message:?}");
                    read += 1;
                }
            }
        }
        assert!(read > 8, "{read}");
        assert_eq!(plain(&request("a").encode_to_vec()), None, "it has a limit");
    }

    #[test]
    fn what_is_no_request_stays_an_error() {
        let whole = with_byte("a?b", 0xFF);
        for length in 1..whole.len() {
            // A part that ends between two fields is a request with fewer of them.
            if let Ok(request) = decode(&whole[..length]) {
                assert!(request.encoded_len() <= whole.len(), "{length}");
            }
        }
        for message in
            [&b"\xFF"[..], b"\x0a\xFF", b"\x12\x03\x0a\x05a", b"\x0b\x0c", b"\x0a\x01\xFF\x07"]
        {
            assert!(decode(message).is_err(), "{message:?}");
        }
    }
}
