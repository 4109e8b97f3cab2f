//! `match` and `key`: which requests a rule applies to, and what makes its buckets.

use std::collections::{HashMap, hash_map};
use std::ops::Range;

use tollgate_core::{Matcher, Rule};

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::tree::{Node, Value};

/// Attributes, each with the patterns of which one must match.
pub(super) type Conditions = Vec<(String, Vec<String>)>;

/// Makes the core's form of conditions.
pub(super) fn matcher(conditions: Conditions) -> Matcher {
    conditions
        .into_iter()
        .fold(Matcher::new(), |matcher, (attribute, patterns)| matcher.with(attribute, patterns))
}

/// Writes conditions in a form that is the same for all that hold for the same requests because
/// they differ in nothing but their order.
fn normalized(conditions: &Conditions) -> Conditions {
    let mut conditions = conditions.clone();
    conditions.sort();
    for (_, patterns) in &mut conditions {
        patterns.sort();
        patterns.dedup();
    }
    conditions
}

impl Decoder<'_> {
    /// Reads the `match` of a rule.
    pub(super) fn matches(&mut self, node: &Node) -> Option<Conditions> {
        let example = self.format.mapping("path", "/login");
        self.conditions(node, "`match`", &self.format.assign("match", &example))
    }

    /// Reads conditions that do not hold for every request. They are `what` in a sentence.
    pub(super) fn narrow_conditions(
        &mut self,
        node: &Node,
        what: &str,
        example: &str,
    ) -> Option<Conditions> {
        let conditions = self.conditions(node, what, example)?;
        if conditions.is_empty() {
            self.error(
                Mistake::new(node.span.clone(), format!("{what} is empty"))
                    .label("it would hold for every request")
                    .help(format!("name an attribute, for example `{example}`")),
            );
            return None;
        }
        Some(conditions)
    }

    /// Warns of conditions behind others that hold for the same requests and come first.
    pub(super) fn doubt_repetition(
        &mut self,
        seen: &mut HashMap<Conditions, Range<usize>>,
        conditions: &Conditions,
        span: &Range<usize>,
        what: &str,
        help: &str,
    ) {
        match seen.entry(normalized(conditions)) {
            hash_map::Entry::Occupied(first) => {
                let mistake = Mistake::new(span.clone(), format!("{what} never holds")).help(help);
                // An alias repeats the conditions, and then both stand at one place.
                self.warning(if first.get() == span {
                    mistake
                } else {
                    mistake.also(first.get().clone(), "the same requests are met here before")
                });
            }
            hash_map::Entry::Vacant(place) => {
                place.insert(span.clone());
            }
        }
    }

    fn conditions(&mut self, node: &Node, what: &str, example: &str) -> Option<Conditions> {
        let Value::Mapping(entries) = &node.value else {
            let help = format!("name the attribute, for example `{example}`");
            self.expected(node, what, "a mapping of attributes to values", Some(&help));
            return None;
        };
        let mut conditions = Vec::new();
        let mut is_valid = true;
        for entry in entries {
            is_valid &= self.is_name(&entry.name, &entry.name_span, "an attribute");
            let items = self.list(&entry.value);
            if items.is_empty() || entry.value.value == Value::Null {
                let message = format!("{} has no value to match", quoted(&entry.name));
                self.error(
                    Mistake::new(entry.name_span.clone(), message)
                        .label("this would never hold")
                        .help("give it a value or a list of values, or remove it"),
                );
                is_valid = false;
                continue;
            }
            let mut patterns = Vec::new();
            for item in items {
                let field = format!("a value of {}", quoted(&entry.name));
                match self.text(item, &field, "text") {
                    Some(pattern) => {
                        self.doubt_pattern(&entry.name, pattern, item);
                        patterns.push(pattern.to_owned());
                    }
                    None => is_valid = false,
                }
            }
            conditions.push((entry.name.clone(), patterns));
        }
        is_valid.then_some(conditions)
    }

    pub(super) fn key(&mut self, node: &Node) -> Option<Vec<String>> {
        let items = self.list(node);
        if items.len() > Rule::KEY_COUNT_MAX {
            let message = format!("`key` has {} attributes", items.len());
            let help = format!("give at most {}", Rule::KEY_COUNT_MAX);
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        }
        let mut seen: Vec<(&str, Range<usize>)> = Vec::new();
        let mut is_valid = true;
        for item in items {
            let Some(name) = self.text(item, "a part of `key`", "the name of an attribute") else {
                is_valid = false;
                continue;
            };
            is_valid &= self.is_name(name, &item.span, "an attribute");
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == name) {
                let message = format!("`key` names {} twice", quoted(name));
                let mistake = Mistake::new(item.span.clone(), message);
                self.error(mistake.also(first.clone(), "named here first").help("remove one"));
                is_valid = false;
            }
            seen.push((name, item.span.clone()));
        }
        is_valid.then(|| seen.into_iter().map(|(name, _)| name.to_owned()).collect())
    }
}
