//! Mappings with known fields.

use crate::decode::Decoder;
use crate::mistake::{Mistake, listed, quoted};
use crate::tree::{Entry, Node, Value};

/// Which fields a mapping may have.
pub(crate) struct Shape {
    /// What the mapping is, in a sentence.
    pub(crate) what: &'static str,
    pub(crate) fields: &'static [&'static str],
    /// Words that other limiters use, each with the field that is meant here.
    pub(crate) synonyms: &'static [(&'static str, &'static str)],
}

/// The fields of one mapping of the file.
pub(crate) struct Fields<'n> {
    shape: &'static Shape,
    node: &'n Node,
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// Opens a mapping and reports the fields that it may not have.
    pub(crate) fn of(
        node: &'n Node,
        shape: &'static Shape,
        decoder: &mut Decoder<'_>,
    ) -> Option<Self> {
        let Value::Mapping(entries) = &node.value else {
            let help = format!("its fields are {}", listed(shape.fields));
            decoder.expected(node, shape.what, "a mapping of fields", Some(&help));
            return None;
        };
        for entry in entries {
            if !shape.fields.contains(&entry.name.as_str()) {
                unknown(entry, shape, decoder);
            }
        }
        Some(Self { shape, node, entries })
    }

    /// Returns a field, whatever its value.
    pub(crate) fn entry(&self, name: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the value of a field, and reports a field without a value.
    pub(crate) fn value(&self, name: &str, decoder: &mut Decoder<'_>) -> Option<&'n Node> {
        let entry = self.entry(name)?;
        match entry.value.value {
            Value::Broken => None,
            Value::Null => {
                decoder.error(
                    Mistake::new(entry.name_span.clone(), format!("`{name}` has no value"))
                        .help("give it a value, or remove the line to have the default"),
                );
                None
            }
            _ => Some(&entry.value),
        }
    }

    /// Returns the value of a field, and reports its absence; `example` is a line to add.
    pub(crate) fn required(
        &self,
        name: &str,
        example: &str,
        decoder: &mut Decoder<'_>,
    ) -> Option<&'n Node> {
        let Some(entry) = self.entry(name) else {
            let place = self.entries.first().map_or_else(
                || self.node.span.clone(),
                |first| first.name_span.start..first.value.span.end,
            );
            let what = self.shape.what;
            decoder.error(
                Mistake::new(place, format!("{what} has no `{name}`"))
                    .help(format!("add `{example}`")),
            );
            return None;
        };
        if entry.value.value == Value::Null {
            decoder.error(
                Mistake::new(entry.name_span.clone(), format!("`{name}` has no value"))
                    .help(format!("write `{example}`")),
            );
            return None;
        }
        self.value(name, decoder)
    }
}

fn unknown(entry: &Entry, shape: &Shape, decoder: &mut Decoder<'_>) {
    let lower = entry.name.to_lowercase();
    if ["password", "secret", "passwd", "credential"].iter().any(|word| lower.contains(word)) {
        decoder.hide(entry.value.span.clone());
    }
    let message = format!("{} has no field {}", shape.what, quoted(&entry.name));
    let mut mistake = Mistake::new(entry.name_span.clone(), message)
        .help(format!("its fields are {}", listed(shape.fields)));
    if !decoder.is_full()
        && let Some(meant) = meant(&entry.name, shape.fields, shape.synonyms)
    {
        mistake = mistake.label(format!("did you mean `{meant}`?"));
    }
    decoder.error(mistake);
}

/// Returns the known word that a wrong one most likely stands for.
pub(crate) fn meant(
    word: &str,
    known: &[&'static str],
    synonyms: &[(&str, &'static str)],
) -> Option<&'static str> {
    // No known word is longer, and the distance takes time in the product of the lengths.
    const LEN_MAX: usize = 40;
    if word.len() > LEN_MAX {
        return None;
    }
    let word = word.to_lowercase().replace(['-', ' '], "_");
    if let Some((_, meant)) = synonyms.iter().find(|(synonym, _)| *synonym == word) {
        return Some(meant);
    }
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&word, known), *known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_and_words_of_others_find_the_field() {
        let known = &["name", "burst", "on_store_failure"];
        let synonyms = &[("capacity", "burst")];
        for (word, field) in [
            ("brust", Some("burst")),
            ("Burst", Some("burst")),
            ("on-store-failure", Some("on_store_failure")),
            ("on_store_fail", Some("on_store_failure")),
            ("capacity", Some("burst")),
            ("nam", Some("name")),
            ("color", None),
            ("", None),
        ] {
            assert_eq!(meant(word, known, synonyms), field, "{word}");
        }
        assert_eq!(meant(&"burst".repeat(1_000), known, synonyms), None);
    }
}
