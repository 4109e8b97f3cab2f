//! `match` and `key`: which requests a rule applies to, and what makes its buckets.

use std::ops::Range;

use tollgate_core::Rule;

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::source::Format;
use crate::tree::{Node, Value};

impl Decoder<'_> {
    pub(super) fn matches(&mut self, node: &Node) -> Option<Vec<(String, Vec<String>)>> {
        let Value::Mapping(entries) = &node.value else {
            let help = "name the attribute, for example `match: { path: /login }`";
            let help = (self.format == Format::Yaml).then_some(help);
            self.expected(node, "`match`", "a mapping of attributes to values", help);
            return None;
        };
        let mut matches = Vec::new();
        for entry in entries {
            self.is_name(&entry.name, &entry.name_span, "an attribute");
            let items = self.list(&entry.value);
            if items.is_empty() || entry.value.value == Value::Null {
                let message = format!("{} has no value to match", quoted(&entry.name));
                self.error(
                    Mistake::new(entry.name_span.clone(), message)
                        .label("the rule would never apply")
                        .help("give it a value or a list of values, or remove it"),
                );
                continue;
            }
            let mut patterns = Vec::new();
            for item in items {
                let field = format!("a value of {}", quoted(&entry.name));
                if let Some(pattern) = self.text(item, &field, "text") {
                    self.doubt_pattern(&entry.name, pattern, item);
                    patterns.push(pattern.to_owned());
                }
            }
            matches.push((entry.name.clone(), patterns));
        }
        Some(matches)
    }

    /// Warns of patterns that no HTTP request can match.
    fn doubt_pattern(&mut self, attribute: &str, pattern: &str, node: &Node) {
        let (message, instead) = match attribute {
            "path" if !pattern.starts_with(['/', '*']) => {
                ("no path begins like this", format!("/{pattern}"))
            }
            "method" if pattern.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                ("methods are written in capitals", pattern.to_ascii_uppercase())
            }
            _ => return,
        };
        let message = format!("{} matches no request: {message}", quoted(pattern));
        let help = format!("write {}", quoted(&instead));
        self.warning(Mistake::new(node.span.clone(), message).help(help));
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
