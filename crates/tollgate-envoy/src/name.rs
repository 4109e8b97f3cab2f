//! The names of limits, by which headers, metrics and the log speak of them.

use std::fmt::Write;

/// The name of limits that came with a request. No descriptor of a file has it.
pub(crate) const OVERRIDE: &str = "@override";

/// Names the descriptor of a key, and of a value if it has one, below `path`:
/// `key=value:key=value`, in printable ASCII.
///
/// What would read as another path, and what cannot stand in a header, is written as `%XX` for each
/// byte, so that no two descriptors of a domain have one name.
pub(crate) fn within(path: &str, key: &str, value: Option<&str>) -> String {
    let mut name = path.to_owned();
    if !name.is_empty() {
        name.push(':');
    }
    push(&mut name, key, |byte| matches!(byte, b'=' | b'@'));
    if let Some(value) = value {
        name.push('=');
        push(&mut name, value, |_| false);
    }
    name
}

fn push(name: &mut String, text: &str, is_special: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~')
            && !matches!(byte, b':' | b'%' | b'"' | b'\\')
            && !is_special(byte)
        {
            name.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_descriptors_have_one_name() {
        let name = |descriptors: &[(&str, Option<&str>)]| {
            descriptors.iter().fold(String::new(), |path, (key, value)| within(&path, key, *value))
        };
        assert_eq!(
            name(&[("path", Some("/api/*?a=b")), ("remote_address", None)]),
            "path=/api/*?a=b:remote_address"
        );
        assert_eq!(name(&[("a", Some("caf\u{e9} \"x\\y\"\n"))]), "a=caf%C3%A9 %22x%5Cy%22%0A");
        let names = [
            name(&[("a", Some("b:c=d"))]),
            name(&[("a", Some("b")), ("c", Some("d"))]),
            name(&[("a=b", Some("c"))]),
            name(&[("a", Some("b=c"))]),
            name(&[("a:b", None)]),
            name(&[("a", None), ("b", None)]),
            name(&[("a", Some(""))]),
            name(&[("a", None)]),
            name(&[("a", Some("%3A"))]),
            name(&[("a", Some(":"))]),
            name(&[("a", Some("\u{e9}"))]),
            name(&[("a", Some("\u{e8}"))]),
            name(&[("@override", None)]),
            OVERRIDE.to_owned(),
        ];
        for (index, one) in names.iter().enumerate() {
            assert!(!names[..index].contains(one), "{one}");
        }
    }
}
