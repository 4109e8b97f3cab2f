//! The text form of a bucket's key: readable, unambiguous and bounded.
//!
//! `<domain>:<rule>:<attribute>=<value>[:<attribute>=<value>...]`. A store that shares its space
//! with others puts a prefix before it, `tollgate:` unless set otherwise.
//!
//! What is not counted in a bucket has `:@fixed_window`, `:@sliding` (a sliding window or a sliding
//! log) or `:@concurrency` at its end. So nodes that do not agree on a rule's algorithm, while a
//! change is rolled out, each count on their own instead of discarding what the others wrote.
//!
//! A bucket that is kept in [shards](crate::ShardTerms) has `:@shard=<number>` at the end of each of
//! its keys.
//!
//! In a value `:`, `{`, `}`, `%` and control characters are written as `%XX` per byte. A value
//! whose escaped form is over 128 bytes becomes `%sha256-` and the first 128 bits of its SHA-256 in
//! hex; since a literal `%` is always followed by two hex digits, no other value has that form. An
//! attribute that the request does not have, under `missing: share`, stands as its bare name.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::algorithm::Algorithm;

/// The longest escaped value in a key, in bytes; a longer one is replaced by a hash.
pub const VALUE_LEN_MAX: usize = 128;

/// The longest name of a rule, a domain or an attribute, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// Appends `:<attribute>=<value>` to `key`, or `:<attribute>` for a missing value.
///
/// # Examples
///
/// ```
/// use tollgate_core::key::push_attribute;
///
/// let mut key = String::from("default:login");
/// push_attribute(&mut key, "ip", Some("2001:db8::1"));
/// push_attribute(&mut key, "account", None);
/// assert_eq!(key, "default:login:ip=2001%3Adb8%3A%3A1:account");
/// ```
pub fn push_attribute(key: &mut String, attribute: &str, value: Option<&str>) {
    key.push(':');
    key.push_str(attribute);
    let Some(value) = value else { return };
    key.push('=');
    match value.len() <= VALUE_LEN_MAX && is_all_plain(value) {
        true => key.push_str(value),
        false => push_escaped(key, value),
    }
}

#[cold]
fn push_escaped(key: &mut String, value: &str) {
    let start = key.len();
    for character in value.chars() {
        if matches!(character, ':' | '{' | '}' | '%') || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                push_hex(key, byte, "%");
            }
        } else {
            key.push(character);
        }
        if key.len() - start > VALUE_LEN_MAX {
            key.truncate(start);
            push_hash(key, value);
            return;
        }
    }
}

/// Appends what tells how the bucket at `key` is counted; nothing for a token bucket and a leaky
/// bucket.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Algorithm, key::push_algorithm};
///
/// let mut key = String::from("default:password-reset:account=7");
/// push_algorithm(&mut key, Algorithm::TokenBucket);
/// push_algorithm(&mut key, Algorithm::SlidingLog);
/// assert_eq!(key, "default:password-reset:account=7:@sliding");
/// ```
pub fn push_algorithm(key: &mut String, algorithm: Algorithm) {
    key.push_str(match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => "",
        Algorithm::FixedWindow => ":@fixed_window",
        Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => ":@sliding",
        Algorithm::Concurrency { .. } => ":@concurrency",
    });
}

/// Whether all of a value stands for itself, as most values do. Sixteen bytes are looked at in one
/// step, and what is left is looked up, four bytes in one step.
fn is_all_plain(value: &str) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            plain[byte] = is_plain(byte as u8);
            byte += 1;
        }
        plain
    };
    let (many, rest) = value.as_bytes().as_chunks::<16>();
    let (few, rest) = rest.as_chunks::<4>();
    let looked_up = |byte: &u8| PLAIN[usize::from(*byte)];
    many.iter().all(|step| step.iter().fold(true, |plain, byte| plain & is_plain(*byte)))
        && few.iter().all(|step| step.iter().fold(true, |plain, byte| plain & looked_up(byte)))
        && rest.iter().all(looked_up)
}

/// Whether a byte of a value is a character that stands for itself; others are looked at one by one.
const fn is_plain(byte: u8) -> bool {
    let is_printed = (byte >= b' ') & (byte <= b'~');
    is_printed & (byte != b':') & (byte != b'{') & (byte != b'}') & (byte != b'%')
}

/// Returns the key of a shard of the bucket at `key`, from 0 on.
///
/// A Redis Cluster finds a slot by what stands between the first `{` and the next `}`, if a key has
/// that. The number is put inside it, so that each shard has a slot of its own; the first four are in
/// four different quarters of all slots.
///
/// # Examples
///
/// ```
/// use tollgate_core::key::shard;
///
/// assert_eq!(shard("default:all", 3), "default:all:@shard=3");
/// assert_eq!(shard("{shop}:all", 3), "{shop:@shard=3}:all");
/// ```
pub fn shard(key: &str, number: usize) -> String {
    let end = key.split_once('{').and_then(|(before, rest)| {
        let len = rest.find('}').filter(|len| *len > 0)?;
        Some(before.len() + 1 + len)
    });
    let (before, after) = key.split_at(end.unwrap_or(key.len()));
    format!("{before}:@shard={number}{after}")
}

fn push_hash(key: &mut String, value: &str) {
    key.push_str("%sha256-");
    for byte in &Sha256::digest(value.as_bytes())[..16] {
        push_hex(key, *byte, "");
    }
}

fn push_hex(key: &mut String, byte: u8, before: &str) {
    // Writing to a String cannot fail.
    let _ = write!(key, "{before}{byte:02X}");
}

/// Tells whether `name` can name a rule, a domain or an attribute in a key: 1 to 64 letters,
/// digits, `_`, `-` and `.`.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_in_key(value: &str) -> String {
        let mut key = String::new();
        push_attribute(&mut key, "a", Some(value));
        key.strip_prefix(":a=").unwrap().to_owned()
    }

    #[test]
    fn separators_and_control_characters_are_escaped() {
        assert_eq!(value_in_key("a:b{c}d%e\r\n\0"), "a%3Ab%7Bc%7Dd%25e%0D%0A%00");
        assert_eq!(value_in_key("\u{85}"), "%C2%85");
        assert_eq!(value_in_key("J\u{fc}rgen /x?y=1"), "J\u{fc}rgen /x?y=1");
        assert_eq!(value_in_key(""), "");
    }

    #[test]
    fn separators_are_escaped_wherever_they_stand() {
        for len in 1..=40 {
            let plain = "x".repeat(len);
            assert_eq!(value_in_key(&plain), plain);
            for at in 0..len {
                for (special, escaped) in [(":", "%3A"), ("%", "%25"), ("}", "%7D"), ("\n", "%0A")]
                {
                    let value = [&plain[..at], special, &plain[at + 1..]].concat();
                    let expected = [&plain[..at], escaped, &plain[at + 1..]].concat();
                    assert_eq!(value_in_key(&value), expected);
                }
            }
        }
    }

    #[test]
    fn different_values_never_share_a_key() {
        let values =
            ["%3A", ":", "%", "%25", "", "a=b", "%sha256-", &"x".repeat(129), &"x".repeat(130)];
        let hashed = value_in_key(&"x".repeat(129));
        let mut keys: Vec<_> = values.into_iter().map(value_in_key).collect();
        keys.push(value_in_key(&hashed));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn g9_a_value_never_takes_more_than_128_bytes() {
        assert_eq!(value_in_key(&"x".repeat(128)).len(), 128);
        let hashed = value_in_key(&"x".repeat(1_000_000));
        assert_eq!(hashed.len(), "%sha256-".len() + 32);
        assert_eq!(value_in_key(&":".repeat(42)).len(), 126);
        assert!(value_in_key(&":".repeat(43)).starts_with("%sha256-"));
    }

    #[test]
    fn the_hash_is_the_sha256_of_the_raw_value() {
        let value = "a".repeat(1_000_000);
        assert_eq!(value_in_key(&value), "%sha256-CDC76E5C9914FB9281A1C7E284D73E67");
    }
}
