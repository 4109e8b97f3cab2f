//! All rules in force, and the charges they make of a request.

use std::collections::HashMap;
use std::sync::Arc;

use crate::attributes::Attributes;
use crate::rule::{Rule, RuleError};

/// The rules in force.
///
/// Rules are kept coarse to fine: those with fewer key attributes first, and in the order given
/// among equals. No rule is the last word on a request: every rule that applies is charged.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Attributes, Quota, Rule, RuleSet};
///
/// let quota = Quota::from_rate("20/min".parse()?)?;
/// let rules = RuleSet::new([
///     Rule::new("per-ip", quota).with_key(["ip"]),
///     Rule::new("everyone", quota),
/// ])?;
/// let keys: Vec<_> = rules
///     .charges(&Attributes::from([("ip", "203.0.113.7")]))
///     .map(|(_, key)| key)
///     .collect();
/// assert_eq!(keys, ["default:everyone", "default:per-ip:ip=203.0.113.7"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<String, Vec<Arc<Rule>>>,
}

impl RuleSet {
    /// Makes the set of `rules`.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if two rules of a domain have one name, or if a rule has a name, a domain, a
    /// key or a match that cannot be.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleError> {
        let mut domains: HashMap<String, Vec<Arc<Rule>>> = HashMap::new();
        for rule in rules {
            rule.validate()?;
            let domain = domains.entry(rule.domain().to_owned()).or_default();
            if domain.iter().any(|other| other.name() == rule.name()) {
                return Err(rule.error(format!(
                    "the domain {:?} has another rule of this name: give each its own",
                    rule.domain()
                )));
            }
            domain.push(Arc::new(rule));
        }
        for rules in domains.values_mut() {
            rules.sort_by_key(|rule| rule.key().len());
        }
        Ok(Self { domains })
    }

    /// Returns the rules that apply to a request, coarse to fine, each with the key of the bucket
    /// to charge. No two keys are the same, since no two rules of a domain have one name.
    pub fn charges(&self, attributes: &Attributes) -> impl Iterator<Item = (&Arc<Rule>, String)> {
        let domain = self.domains.get(attributes.domain());
        domain
            .into_iter()
            .flatten()
            .filter(|rule| rule.applies(attributes))
            .map(|rule| (rule, rule.bucket_key(attributes)))
    }

    /// Returns all rules, those of one domain together and coarse to fine.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.domains.values().flatten()
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.domains.values().map(Vec::len).sum()
    }

    /// Tells whether there are no rules, so that every request is allowed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
