//! The keys of buckets, which are made of what callers send.

use tollgate_core::key::{VALUE_LEN_MAX, is_name, push_attribute};

const HASH_PREFIX: &str = "%sha256-";

/// Checks that a value in a key is bounded, keeps to its place and can be told from every other.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut key = String::from("default:rule");
    push_attribute(&mut key, "a", Some(&text));
    push_attribute(&mut key, "b", None);
    push_attribute(&mut key, "c", Some(&text));
    let parts: Vec<_> = key.split(':').collect();
    let [_, _, first, "b", second] = parts[..] else { panic!("{key:?} of {text:?}") };
    let value = first.strip_prefix("a=").unwrap_or_else(|| panic!("{first:?} of {text:?}"));
    assert_eq!(second.strip_prefix("c="), Some(value));
    assert!(value.len() <= VALUE_LEN_MAX, "{} bytes: {value:?}", value.len());
    assert!(!value.contains(['{', '}']) && !value.chars().any(char::is_control), "{value:?}");
    match value.strip_prefix(HASH_PREFIX) {
        Some(hash) => {
            assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(text.len() * 3 > VALUE_LEN_MAX, "{text:?} was hashed");
        }
        // Who can get the text back has not lost any part of it.
        None => assert_eq!(unescaped(value).as_deref(), Some(&*text)),
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    assert_eq!(is_name(&text), (1..=64).contains(&text.len()) && text.chars().all(is_plain));
}

fn unescaped(value: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        bytes.push(match byte {
            b'%' => {
                let (digits, more) = rest.split_at_checked(2)?;
                rest = more;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}
