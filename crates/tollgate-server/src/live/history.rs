//! The versions that were in force.

use std::collections::VecDeque;

use tollgate_config::RulesId;

use crate::live::version::Version;

/// The last versions that were in force, the newest first. Their number and size are bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    versions: VecDeque<Version>,
    /// How often it has changed.
    number: u64,
}

impl History {
    /// The most versions.
    const LEN_MAX: usize = 20;

    /// The most bytes of text that versions other than the first two may have together.
    const BYTES_MAX: usize = 4 << 20;

    pub(super) fn current(&self) -> Option<&Version> {
        self.versions.front()
    }

    pub(super) fn previous(&self) -> Option<&Version> {
        self.versions.get(1)
    }

    /// Returns how often the history has changed, so that the later of two can be told.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn find(&self, id: &RulesId) -> Option<&Version> {
        self.versions.iter().find(|version| version.id == *id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Version> {
        self.versions.iter()
    }

    pub(super) fn push(&mut self, version: Version) {
        self.number += 1;
        self.versions.push_front(version);
        self.versions.truncate(Self::LEN_MAX);
        while self.versions.len() > 2 && self.bytes() > Self::BYTES_MAX {
            self.versions.pop_back();
        }
    }

    /// Takes over a text that says the same in other words.
    pub(super) fn set_document(&mut self, version: &Version) {
        self.number += 1;
        if let Some(current) = self.versions.front_mut() {
            current.document = version.document.clone();
        }
    }

    /// Puts versions from before the start behind those since.
    pub(super) fn extend(&mut self, older: impl IntoIterator<Item = Version>) {
        self.versions.extend(older);
        self.versions.truncate(Self::LEN_MAX);
    }

    fn bytes(&self) -> usize {
        self.versions.iter().map(|version| version.document.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_config::RulesFile;

    use super::*;

    fn version(limit: usize, document_len: usize) -> Version {
        let text = format!("rules: [{{ name: a, limit: {limit}/min }}]");
        let id = RulesFile::parse(&text, "t.yaml").unwrap().id;
        Version::new(id, "x".repeat(document_len).into(), 1)
    }

    #[test]
    fn the_last_20_versions_are_kept_and_fewer_if_they_are_large() {
        let mut history = History::default();
        for limit in 1..=30 {
            history.push(version(limit, 10));
        }
        assert_eq!(history.iter().count(), 20);
        assert_eq!(history.current().unwrap().id, version(30, 0).id);
        assert_eq!(history.previous().unwrap().id, version(29, 0).id);
        assert!(history.find(&version(11, 0).id).is_some());
        assert!(history.find(&version(10, 0).id).is_none());
        for limit in 1..=10 {
            history.push(version(limit, 1 << 20));
        }
        assert_eq!(history.iter().count(), 4);
    }
}
