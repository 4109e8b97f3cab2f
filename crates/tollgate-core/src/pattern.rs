//! Patterns that attribute values are matched against.

use std::fmt;

/// A pattern for one attribute value, in which every `*` stands for any run of characters.
///
/// `*` also crosses `/`, so `/api/*` matches `/api/v1/users`. Everything else matches itself, and
/// case counts. Matching takes at most `pattern * value` steps, whatever the value is.
///
/// # Examples
///
/// ```
/// use tollgate_core::Pattern;
///
/// let pattern = Pattern::new("/api/*/users");
/// assert!(pattern.matches("/api/v1/users"));
/// assert!(!pattern.matches("/api/v1/users/7"));
/// assert!(Pattern::new("POST").matches("POST"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// Makes a pattern from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether `value` matches.
    pub fn matches(&self, value: &str) -> bool {
        let (pattern, value) = (self.0.as_bytes(), value.as_bytes());
        let (mut p, mut v) = (0, 0);
        // Where to go on if what follows the last `*` does not match: one byte further into it.
        let mut retry = None;
        while v < value.len() {
            if pattern.get(p) == Some(&b'*') {
                retry = Some((p + 1, v));
                p += 1;
            } else if pattern.get(p) == Some(&value[v]) {
                p += 1;
                v += 1;
            } else if let Some((after_star, from)) = retry {
                retry = Some((after_star, from + 1));
                p = after_star;
                v = from + 1;
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_run_and_everything_else_itself() {
        for (pattern, value, matches) in [
            ("/login", "/login", true),
            ("/login", "/login/", false),
            ("/login", "/Login", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("*", "anything/at all", true),
            ("/api/*", "/api/", true),
            ("/api/*", "/api", false),
            ("/api/*", "/api/v1/users", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**x**", "x", true),
            ("caf\u{e9}*", "caf\u{e9}s", true),
            ("a?c", "abc", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(value), matches, "{pattern} {value}");
        }
    }
}
