//! The keys of buckets that no rule of the configuration file writes.

use tollgate_config::EnvoyUnit;
use tollgate_core::key;

/// Where the name of a rule stands in the keys of configured limits; no rule can have it.
pub(crate) const LIMIT: &str = "@envoy";

/// What stands in place of the name of a rule in the keys of limits that came with a request. Windows of
/// different lengths are different buckets: in one, each would begin anew whenever the other is asked.
pub(crate) const fn overriding(unit: EnvoyUnit) -> &'static str {
    match unit {
        EnvoyUnit::Second => "@override:second",
        EnvoyUnit::Minute => "@override:minute",
        EnvoyUnit::Hour => "@override:hour",
        EnvoyUnit::Day => "@override:day",
        EnvoyUnit::Week => "@override:week",
        EnvoyUnit::Month => "@override:month",
        EnvoyUnit::Year => "@override:year",
    }
}

/// Begins a key: `<domain>:<owner>`.
pub(crate) fn begin(domain: &str, owner: &str) -> String {
    let mut text = String::with_capacity(domain.len() + 64);
    push_escaped(&mut text, domain);
    text.push(':');
    text.push_str(owner);
    text
}

/// Appends `:<name>=<value>`, whatever characters the two have.
pub(crate) fn push_entry(text: &mut String, name: &str, value: &str) {
    if key::is_name(name) {
        key::push_attribute(text, name, Some(value));
    } else {
        let mut escaped = String::new();
        push_escaped(&mut escaped, name);
        key::push_attribute(text, &escaped, Some(value));
    }
}

/// The longest key, in bytes, that is kept readable.
const LEN_MAX: usize = 1024;

/// Replaces the entries of a key by a hash if there are too many to keep it short.
pub(crate) fn bounded(text: String, domain: &str, owner: &str) -> String {
    if text.len() <= LEN_MAX {
        return text;
    }
    let mut short = begin(domain, owner);
    key::push_attribute(&mut short, "entries", Some(&text));
    short
}

/// Appends text in the form that values have in keys, and without a `=`.
fn push_escaped(text: &mut String, name: &str) {
    if key::is_name(name) {
        text.push_str(name);
        return;
    }
    let mut escaped = String::new();
    key::push_attribute(&mut escaped, "", Some(name));
    text.push_str(&escaped[":=".len()..].replace('=', "%3D"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_descriptors_have_one_key() {
        let key = |domain: &str, entries: &[(&str, &str)]| {
            let mut text = begin(domain, LIMIT);
            entries.iter().for_each(|(name, value)| push_entry(&mut text, name, value));
            bounded(text, domain, LIMIT)
        };
        let many: Vec<_> = (0..2_000).map(|index| format!("x{index}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), "a")).collect();
        assert_eq!(
            key("shop", &[("tenant", "acme"), ("route", "/api/{id}")]),
            "shop:@envoy:tenant=acme:route=/api/%7Bid%7D"
        );
        let keys = [
            key("shop", &[("a", "b:c=d")]),
            key("shop", &[("a", "b"), ("c", "d")]),
            key("shop", &[("a=b", "c")]),
            key("shop", &[("a", "b=c")]),
            key("shop", &[("a:b", "c")]),
            key("shop:@envoy", &[("a", "b")]),
            key("shop", &[("@envoy", "b")]),
            key("shop", &[("a", "")]),
            key("shop", &[("a", &"x".repeat(1_000))]),
            key("shop", &[(&"x".repeat(1_000), "a")]),
            key("shop", &many),
            key("shop", &many[1..]),
            key("shop:@envoy", &many),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(one), "{one}");
            assert!(one.len() < 300, "{one}");
        }
    }
}
