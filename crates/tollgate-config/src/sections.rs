//! What a file says apart from its rules, and which of it has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::config::Config;
use crate::tree::{Node, Value};

/// What each section of a file but `rules` says. [`Debug`](fmt::Debug) shows nothing of it, since
/// there are passwords in it.
#[derive(Clone, Default)]
pub(crate) struct Sections(BTreeMap<String, String>);

impl Sections {
    pub(crate) fn of(root: &Node) -> Self {
        let Value::Mapping(entries) = &root.value else { return Self::default() };
        let others = entries.iter().filter(|entry| entry.name != "rules");
        Self(others.map(|entry| (entry.name.clone(), entry.value.canonical())).collect())
    }

    fn differing(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let differ = names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name));
        differ.cloned().collect()
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sections").finish_non_exhaustive()
    }
}

impl Config {
    /// Returns the names of the sections that differ in `later` and that take effect only when the
    /// service is started again, in the order of the names.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let parse = |listen: &str, limit: &str| {
    ///     let text = format!("listen: {{ http: {listen} }}\nrules: [{{ name: a, limit: {limit} }}]");
    ///     Config::parse(&text, "tollgate.yaml")
    /// };
    /// let config = parse("127.0.0.1:8080", "20/min")?;
    /// assert!(config.needs_restart(&parse("127.0.0.1:8080", "30/min")?).is_empty());
    /// assert_eq!(config.needs_restart(&parse("127.0.0.1:80", "20/min")?), ["listen"]);
    /// # Ok::<(), tollgate_config::ConfigErrors>(())
    /// ```
    pub fn needs_restart(&self, later: &Self) -> Vec<String> {
        self.sections.differing(&later.sections)
    }
}
