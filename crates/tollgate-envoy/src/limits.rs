//! The limits of envoyproxy/ratelimit's format, arranged for look-ups.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate_config::{
    EnvoyAmount, EnvoyDescriptor, EnvoyDomain, EnvoyLimit, EnvoyLimits, Metadata,
};
use tollgate_core::{Applied, Matcher, Pattern, Quota, Rate, Rule, Treatment};

use crate::key;
use crate::name;
use crate::proto::rate_limit_descriptor::Entry;
use crate::unit::CurrentLimit;

/// The limits of all domains.
#[derive(Debug)]
pub(crate) struct Limits {
    domains: HashMap<String, Level>,
    rules: Arc<[Arc<Rule>]>,
}

/// One level of descriptors: by the key of an entry.
#[derive(Default)]
struct Level(HashMap<String, Values>);

/// The descriptors of one key.
#[derive(Default)]
struct Values {
    exact: HashMap<String, Node>,
    /// In the order of the file.
    patterns: Vec<(Pattern, Node)>,
    any: Option<Box<Node>>,
}

struct Node {
    /// What stands in the bucket's key in place of the value.
    shared: Option<String>,
    limit: Option<Arc<Limit>>,
    next: Level,
}

/// One limit.
pub(crate) struct Limit {
    pub(crate) amount: Amount,
    pub(crate) name: Option<String>,
    pub(crate) replaces: Vec<String>,
    pub(crate) quota_mode: bool,
    pub(crate) metadata: Option<Struct>,
}

pub(crate) enum Amount {
    Unlimited,
    Limited {
        /// Its name is the path of the descriptor.
        rule: Arc<Rule>,
        quota: Option<Quota>,
        reported: CurrentLimit,
    },
}

/// A limit that concerns a descriptor, and the key of its bucket.
pub(crate) struct Found {
    pub(crate) limit: Arc<Limit>,
    pub(crate) key: String,
}

impl Limits {
    pub(crate) fn new(limits: &EnvoyLimits) -> Self {
        let domain = |domain: &EnvoyDomain| {
            (domain.name.clone(), Level::new(&domain.name, "", &domain.descriptors))
        };
        let domains: HashMap<_, _> = limits.domains.iter().map(domain).collect();
        let mut rules = Vec::new();
        domains.values().for_each(|level| level.push_rules(&mut rules));
        Self { domains, rules: rules.into() }
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// Finds the limit of the descriptor with as many levels as there are entries: for each entry
    /// the descriptor with its very value, else the first whose pattern matches, else the one
    /// without a value.
    pub(crate) fn find(&self, domain: &str, entries: &[Entry]) -> Option<Found> {
        let mut level = self.domains.get(domain)?;
        let mut limit = None;
        let mut key = key::begin(domain, key::LIMIT);
        for entry in entries {
            let node = level.0.get(&entry.key)?.find(&entry.value)?;
            let value = node.shared.as_deref().unwrap_or(&entry.value);
            key::push_entry(&mut key, &entry.key, value);
            limit = node.limit.as_ref();
            level = &node.next;
        }
        Some(Found { limit: Arc::clone(limit?), key: key::bounded(key, domain, key::LIMIT) })
    }

    /// Returns the rules of all limits.
    pub(crate) const fn rules(&self) -> &Arc<[Arc<Rule>]> {
        &self.rules
    }
}

impl Level {
    fn new(domain: &str, path: &str, descriptors: &[EnvoyDescriptor]) -> Self {
        let mut level = Self::default();
        for one in descriptors {
            let path = name::within(path, &one.key, one.value.as_deref());
            let node = Node {
                shared: one.value.clone().filter(|_| one.share_threshold),
                limit: one
                    .limit
                    .as_ref()
                    .map(|limit| Arc::new(Limit::new(domain, &path, one, limit))),
                next: Self::new(domain, &path, &one.descriptors),
            };
            let values = level.0.entry(one.key.clone()).or_default();
            match &one.value {
                Some(value) if value.contains('*') => {
                    values.patterns.push((Pattern::new(value), node));
                }
                Some(value) => {
                    values.exact.insert(value.clone(), node);
                }
                None => values.any = Some(Box::new(node)),
            }
        }
        level
    }
}

impl Level {
    fn push_rules(&self, rules: &mut Vec<Arc<Rule>>) {
        for values in self.0.values() {
            let patterns = values.patterns.iter().map(|(_, node)| node);
            for node in values.exact.values().chain(patterns).chain(values.any.as_deref()) {
                if let Some(Amount::Limited { rule, .. }) = node.limit.as_ref().map(|l| &l.amount) {
                    rules.push(Arc::clone(rule));
                }
                node.next.push_rules(rules);
            }
        }
    }
}

impl Values {
    fn find(&self, value: &str) -> Option<&Node> {
        let by_pattern = || {
            let mut patterns = self.patterns.iter();
            patterns.find(|(pattern, _)| pattern.matches(value)).map(|(_, node)| node)
        };
        self.exact.get(value).or_else(by_pattern).or(self.any.as_deref())
    }
}

impl Limit {
    fn new(domain: &str, path: &str, descriptor: &EnvoyDescriptor, limit: &EnvoyLimit) -> Self {
        let amount = match limit.amount {
            EnvoyAmount::Unlimited => Amount::Unlimited,
            EnvoyAmount::PerUnit { requests, unit, quota } => {
                let rule = rule(path, domain, quota)
                    .with_shadow(descriptor.shadow_mode)
                    .with_failure_policy(limit.on_store_failure);
                let name = limit.name.clone().unwrap_or_default();
                let reported = CurrentLimit::new(requests, unit, name);
                Amount::Limited { rule: Arc::new(rule), quota, reported }
            }
        };
        Self {
            amount,
            name: limit.name.clone(),
            replaces: limit.replaces.clone(),
            quota_mode: descriptor.quota_mode,
            metadata: descriptor.metadata.as_ref().map(structure),
        }
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Makes the rule of a quota, or one that blocks if there is none.
pub(crate) fn rule(name: &str, domain: &str, quota: Option<Quota>) -> Rule {
    match quota {
        Some(quota) => Rule::new(name, quota).with_domain(domain),
        None => Rule::new(name, never_used())
            .with_domain(domain)
            .with_exception(Matcher::new(), Treatment::Blocked),
    }
}

/// Makes the charge of a rule that [`rule`] made.
pub(crate) fn applied(rule: &Arc<Rule>, mut key: String, quota: Option<Quota>) -> Applied {
    if let Some(quota) = &quota {
        tollgate_core::key::push_algorithm(&mut key, quota.algorithm());
    }
    let exception = if quota.is_none() { Some(0) } else { None };
    Applied { rule: Arc::clone(rule), key, quota, exception }
}

/// The quota of a rule whose only exception blocks every request.
#[expect(clippy::panic, reason = "a test makes it")]
fn never_used() -> Quota {
    match Rate::per_second(1).and_then(Quota::from_rate) {
        Ok(quota) => quota,
        Err(error) => panic!("{error}"),
    }
}

fn structure(map: &BTreeMap<String, Metadata>) -> Struct {
    Struct { fields: map.iter().map(|(name, one)| (name.clone(), value(one))).collect() }
}

fn value(metadata: &Metadata) -> Value {
    let kind = match metadata {
        Metadata::Null => Kind::NullValue(0),
        Metadata::Bool(boolean) => Kind::BoolValue(*boolean),
        Metadata::Number(number) => Kind::NumberValue(*number),
        Metadata::Text(text) => Kind::StringValue(text.clone()),
        Metadata::List(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(value).collect() })
        }
        Metadata::Map(map) => Kind::StructValue(structure(map)),
    };
    Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(descriptors: &str) -> Limits {
        let text = format!("domain: shop\ndescriptors:\n{descriptors}");
        Limits::new(&EnvoyLimits::parse(&text, "shop.yaml").unwrap())
    }

    fn find(limits: &Limits, entries: &[(&str, &str)]) -> Option<(String, String)> {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| Entry { key: (*key).to_owned(), value: (*value).to_owned() })
            .collect();
        let found = limits.find("shop", &entries)?;
        let rule = match &found.limit.amount {
            Amount::Limited { rule, .. } => rule.name().to_owned(),
            Amount::Unlimited => "unlimited".to_owned(),
        };
        Some((rule, found.key))
    }

    #[test]
    fn the_very_value_comes_before_patterns_and_patterns_before_any_value() {
        let limits = limits(
            "
  - { key: path, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: path, value: /a*, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: path, value: '*b', rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: path, value: /ab, rate_limit: { unit: day, requests_per_unit: 4 } }
",
        );
        for (value, rule) in [
            ("/ab", "path=/ab"),
            ("/acb", "path=/a*"),
            ("/cb", "path=*b"),
            ("/c", "path"),
            ("", "path"),
        ] {
            let found = find(&limits, &[("path", value)]).unwrap();
            assert_eq!(found.0, rule, "{value}");
            assert_eq!(found.1, format!("shop:@envoy:path={value}"));
        }
    }

    #[test]
    fn a_rule_that_blocks_needs_a_quota_that_is_never_used() {
        let limits = limits("  - { key: a, rate_limit: { unit: day, requests_per_unit: 0 } }");
        assert!(find(&limits, &[("a", "b")]).is_some());
        let rule = rule("a", "shop", None);
        assert_eq!(rule.treatment(Some(0)), Treatment::Blocked);
        assert_eq!(never_used().burst(), 1);
    }
}
