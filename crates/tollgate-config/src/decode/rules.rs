//! `rules`: the list, and what no two rules may share.

use std::collections::HashMap;
use std::ops::Range;

use tollgate_core::{Rule, RuleSet};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::mistake::{Mistake, quoted};
use crate::source::Format;
use crate::tree::{Node, Value};

/// The places of the rules of the file, by domain and name.
type Places = HashMap<(String, String), Range<usize>>;

impl Decoder<'_> {
    /// Decodes the rules of the file, whose fields are `file`.
    pub(super) fn rules(&mut self, file: &Fields<'_>) -> Option<RuleSet> {
        let Some(entry) = file.entry("rules") else {
            self.no_rules(0..0, "the file has no `rules`");
            return None;
        };
        let items = match &entry.value.value {
            Value::Sequence(items) if !items.is_empty() => items,
            Value::Sequence(_) | Value::Null => {
                self.no_rules(entry.name_span.clone(), "`rules` is empty");
                return None;
            }
            Value::Mapping(_) => {
                let help = match self.format {
                    Format::Yaml => "begin each rule with `- `",
                    Format::Toml => "begin each rule with `[[rules]]`",
                };
                self.expected(&entry.value, "`rules`", "a list", Some(help));
                return None;
            }
            _ => {
                self.expected(&entry.value, "`rules`", "a list", None);
                return None;
            }
        };
        let mut places = Places::new();
        let rules: Vec<_> = items.iter().map(|item| self.listed_rule(item, &mut places)).collect();
        let rules: Vec<_> = rules.into_iter().collect::<Option<_>>()?;
        // What the set would refuse has been reported with its place, except for a defect of ours.
        if self.has_errors() {
            return None;
        }
        match RuleSet::new(rules) {
            Ok(rules) => Some(rules),
            Err(error) => {
                self.error(Mistake::new(entry.name_span.clone(), error.to_string()));
                None
            }
        }
    }

    fn listed_rule(&mut self, node: &Node, places: &mut Places) -> Option<Rule> {
        let (rule, identity) = self.rule(node);
        if let Some((domain, name, span)) = identity {
            let message =
                format!("the domain `{domain}` has two rules of the name {}", quoted(&name));
            match places.get(&(domain.clone(), name.clone())) {
                // An alias repeats a whole rule, and then both stand at one place.
                Some(first) if *first == span => {
                    self.error(Mistake::new(span, message).help("give each rule its own name"));
                }
                Some(first) => {
                    let first = first.clone();
                    self.error(
                        Mistake::new(span, message)
                            .label("this rule needs another name")
                            .also(first, "the first rule of this name"),
                    );
                }
                None => {
                    places.insert((domain, name), span);
                }
            }
        }
        rule
    }

    fn no_rules(&mut self, span: Range<usize>, message: &str) {
        let example = match self.format {
            Format::Yaml => {
                "rules:\n  - name: login-per-ip\n    match: { path: /login }\n    key: [ip]\n    \
                 limit: 20/min"
            }
            Format::Toml => {
                "[[rules]]\nname = \"login-per-ip\"\nmatch = { path = \"/login\" }\n\
                 key = [\"ip\"]\nlimit = \"20/min\""
            }
        };
        self.error(
            Mistake::new(span, format!("{message}, so every request would be allowed"))
                .help(format!("write at least one rule:\n{example}")),
        );
    }
}
