//! Which requests something applies to.

use crate::attributes::Attributes;
use crate::pattern::Pattern;

/// A condition on the attributes of a request: all of the named attributes must be present, and
/// each must match one of its patterns. Without any it applies always.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Attributes, Matcher};
///
/// let exports = Matcher::new().with("path", ["/export/*"]).with("method", ["GET", "POST"]);
/// assert!(exports.matches(&Attributes::from([("path", "/export/7"), ("method", "GET")])));
/// assert!(!exports.matches(&Attributes::from([("path", "/export/7")])));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    conditions: Vec<(String, Vec<Pattern>)>,
}

impl Matcher {
    /// Makes the condition that always holds.
    pub const fn new() -> Self {
        Self { conditions: Vec::new() }
    }

    /// Requires that `attribute` is present and matches one of `patterns`.
    #[must_use]
    pub fn with<P: Into<String>>(
        mut self,
        attribute: impl Into<String>,
        patterns: impl IntoIterator<Item = P>,
    ) -> Self {
        let patterns = patterns.into_iter().map(Pattern::new).collect();
        self.conditions.push((attribute.into(), patterns));
        self
    }

    /// Tells whether the condition holds for a request.
    #[inline]
    pub fn matches(&self, attributes: &Attributes) -> bool {
        self.conditions.iter().all(|(name, patterns)| {
            let value = attributes.value(name);
            value.is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value)))
        })
    }

    /// Returns the attributes with the patterns of which one must match.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Pattern])> {
        self.conditions.iter().map(|(name, patterns)| (name.as_str(), patterns.as_slice()))
    }

    /// Tells whether the condition always holds.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}
