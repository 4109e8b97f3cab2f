//! `rules`: the list, and what no two rules may share.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tollgate_core::{Charge, Rule, RuleSet};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::decode::rule::{Identity, shadow_name};
use crate::mistake::{Mistake, quoted};
use crate::source::Format;
use crate::tree::{Node, Value};

/// The names of the rules so far, and where they stand.
#[derive(Default)]
struct Names {
    /// By domain and name.
    rules: HashMap<(String, String), Range<usize>>,
    /// The rules that are counted under a second name, and where their shadow limits stand.
    shadows: Vec<(String, String, Range<usize>)>,
}

impl Decoder<'_> {
    /// Decodes the rules of the file, whose fields are `file`.
    pub(super) fn rules(&mut self, file: &Fields<'_>) -> Option<RuleSet> {
        let Some(entry) = file.entry("rules") else {
            if self.has_limits {
                return Some(RuleSet::default());
            }
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
        let mut names = Names::default();
        let rules: Vec<_> = items.iter().map(|item| self.listed_rule(item, &mut names)).collect();
        self.check_shadows(&names);
        let rules: Vec<_> = rules.into_iter().collect::<Option<_>>()?;
        // What the set would refuse has been reported with its place, except for a defect of ours.
        if self.has_errors() {
            return None;
        }
        match RuleSet::new(rules) {
            Ok(rules) => {
                self.doubt_count(&rules, &entry.name_span);
                Some(rules)
            }
            Err(error) => {
                self.error(Mistake::new(entry.name_span.clone(), error.to_string()));
                None
            }
        }
    }

    fn listed_rule(&mut self, node: &Node, names: &mut Names) -> Option<Rule> {
        let (rule, identity) = self.rule(node);
        let Identity { domain, name, span, shadow } = identity?;
        let message = format!("the domain `{domain}` has two rules of the name {}", quoted(&name));
        match names.rules.get(&(domain.clone(), name.clone())) {
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
                if let Some(limit) = shadow {
                    names.shadows.push((domain.clone(), name.clone(), limit));
                }
                names.rules.insert((domain, name), span);
            }
        }
        rule
    }

    /// Reports rules that have the name under which the shadow limit of another is counted.
    fn check_shadows(&mut self, names: &Names) {
        for (domain, name, limit) in &names.shadows {
            let taken = shadow_name(name);
            if let Some(span) = names.rules.get(&(domain.clone(), taken.clone())) {
                let message =
                    format!("the shadow limit of {} has the name {}", quoted(name), quoted(&taken));
                self.error(
                    Mistake::new(span.clone(), message)
                        .label("this rule needs another name")
                        .also(limit.clone(), "this limit is counted under that name"),
                );
            }
        }
    }

    /// Warns of a domain whose rules without a `match` are more than a request may be charged by.
    fn doubt_count(&mut self, rules: &RuleSet, span: &Range<usize>) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.matcher().is_empty()) {
            *counts.entry(rule.domain()).or_default() += 1;
        }
        for (domain, count) in counts.into_iter().filter(|(_, count)| *count > Charge::COUNT_MAX) {
            let most = Charge::COUNT_MAX;
            let message = format!(
                "the domain `{domain}` has {count} rules and shadow limits without a `match`"
            );
            self.warning(
                Mistake::new(span.clone(), message)
                    .label(format!(
                        "a request is charged by at most {most}, and refused above that"
                    ))
                    .help("give them a `match`, or some of them another `domain`"),
            );
        }
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
