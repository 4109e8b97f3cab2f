//! All rules in force, and the charges they make of a request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::attributes::Attributes;
use crate::exception::Treatment;
use crate::quota::Quota;
use crate::rule::{Rule, RuleError};

/// A rule that applies to a request, and the bucket that it charges.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The key of the bucket.
    pub key: String,
    /// The quota that holds for the request, or `None` if the rule blocks it.
    pub quota: Option<Quota>,
    /// Which of the rule's exceptions holds, if one does.
    pub exception: Option<usize>,
}

impl Applied {
    fn new(rule: &Arc<Rule>, attributes: &Attributes) -> Option<Self> {
        let exception = rule.exception(attributes);
        let quota = match rule.treatment(exception) {
            Treatment::Quota(quota) => Some(quota),
            Treatment::Blocked => None,
            Treatment::Unlimited => return None,
        };
        let key = rule.bucket_key(attributes, quota.as_ref().unwrap_or_else(|| rule.quota()));
        Some(Self { rule: Arc::clone(rule), key, quota, exception })
    }
}

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
///     .map(|applied| applied.key)
///     .collect();
/// assert_eq!(keys, ["default:everyone", "default:per-ip:ip=203.0.113.7"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: HashMap<String, Vec<Arc<Rule>>, RandomState>,
}

impl RuleSet {
    /// Makes the set of `rules`.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if two rules of a domain have one name, or if a rule has a name, a domain, a
    /// key or a match that cannot be.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleError> {
        let mut domains: HashMap<String, Vec<Arc<Rule>>, RandomState> = HashMap::default();
        let with_shadows = rules.into_iter().flat_map(|rule| {
            let shadow = rule.shadow_rule();
            [Some(rule), shadow].into_iter().flatten()
        });
        let mut names = HashSet::new();
        for rule in with_shadows {
            rule.validate()?;
            let domain = domains.entry(rule.domain().to_owned()).or_default();
            if !names.insert((rule.domain().to_owned(), rule.name().to_owned())) {
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

    /// Returns the rules that apply to a request, coarse to fine, each with the bucket to charge.
    /// No two keys are the same, since no two rules of a domain have one name.
    pub fn charges(&self, attributes: &Attributes) -> impl Iterator<Item = Applied> {
        let rules = self.of_domain(attributes.domain()).iter();
        let applying = rules.filter(|rule| rule.applies_in_domain(attributes));
        applying.filter_map(|rule| Applied::new(rule, attributes))
    }

    /// Returns the rules of a domain, coarse to fine; none if the domain has none.
    pub fn of_domain(&self, domain: &str) -> &[Arc<Rule>] {
        self.domains.get(domain).map_or(&[], Vec::as_slice)
    }

    /// Returns what the rule `name` charges a request, whether it applies to it or not; `None` if
    /// there is no such rule in the request's domain, or if an exception frees the request.
    ///
    /// For what a request holds: it is given back where the same request would be charged now.
    pub fn charge_by(&self, name: &str, attributes: &Attributes) -> Option<Applied> {
        let domain = self.domains.get(attributes.domain())?;
        Applied::new(domain.iter().find(|rule| rule.name() == name)?, attributes)
    }

    /// Tells whether a domain has rules. Requests of one that has none are allowed.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
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
