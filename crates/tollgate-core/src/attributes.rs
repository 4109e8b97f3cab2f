//! The facts of one request that rules match and key on.

use std::borrow::Cow;

/// The facts of one request: its domain and named values such as `ip` or `path`.
///
/// Setting a name again replaces its value. An attribute that the request does not have is left
/// out; it is not set to an empty value.
///
/// # Examples
///
/// ```
/// use tollgate_core::Attributes;
///
/// let attributes = Attributes::from([("path", "/login"), ("ip", "203.0.113.7")]);
/// assert_eq!(attributes.domain(), "default");
/// assert_eq!(attributes.value("ip"), Some("203.0.113.7"));
/// assert_eq!(attributes.value("account"), None);
///
/// let account = format!("a{}", 7);
/// let attributes = Attributes::from([("account", account)]).with("ip", "203.0.113.7");
/// assert_eq!(attributes.value("account"), Some("a7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    domain: Cow<'static, str>,
    pairs: Vec<(Cow<'static, str>, String)>,
}

/// The domain of requests and rules that name none.
pub const DOMAIN_DEFAULT: &str = "default";

impl Attributes {
    /// Makes attributes of the domain `default`, without any value.
    pub const fn new() -> Self {
        Self { domain: Cow::Borrowed(DOMAIN_DEFAULT), pairs: Vec::new() }
    }

    /// Sets the domain, the set of rules that the request is judged by.
    #[must_use]
    pub fn with_domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.domain = domain.into();
        self
    }

    /// Sets `name` to `value`.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.insert(name, value);
        self
    }

    /// Sets `name` to `value`.
    pub fn insert(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.pairs.push((name, value)),
        }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the value of `name`, if the request has it.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the names and values in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_ref(), value.as_str()))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Tells whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

impl Default for Attributes {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Into<String>, const N: usize> From<[(&'static str, V); N]> for Attributes {
    fn from(pairs: [(&'static str, V); N]) -> Self {
        pairs.into_iter().fold(Self::new(), |all, (name, value)| all.with(name, value))
    }
}
