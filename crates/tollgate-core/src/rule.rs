//! One rule: which requests it applies to, what makes its buckets, and their quota.

use std::fmt;
use std::num::NonZeroU32;

use crate::attributes::{Attributes, DOMAIN_DEFAULT};
use crate::cost_rule::CostRule;
use crate::exception::{Exception, Treatment};
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::fraction::Fraction;
use crate::hot_keys::{HotKeys, LeaseTerms};
use crate::key;
use crate::matcher::Matcher;
use crate::quota::{Quota, QuotaError};
use crate::shards::ShardTerms;

/// A named limit: which requests it applies to, what makes its buckets, and their quota.
///
/// A rule applies to a request of its domain when its [`matcher`](Self::matcher) does and every
/// attribute of its [`key`](Self::key) is present. It then charges one bucket per combination of
/// the key's values; without a key, one bucket for all.
///
/// # Examples
///
/// ```
/// use tollgate_core::{Quota, Rule};
///
/// let quota = Quota::from_rate("20/min".parse()?)?;
/// let rule = Rule::new("login-per-ip", quota)
///     .with_match("path", ["/login"])
///     .with_match("method", ["POST"])
///     .with_key(["ip"]);
/// assert_eq!(rule.name(), "login-per-ip");
/// # Ok::<(), tollgate_core::QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    name: String,
    domain: String,
    /// With what the keys of all its buckets begin: `<domain>:<name>`.
    key_start: String,
    matcher: Matcher,
    key: Vec<String>,
    quota: Quota,
    shadow_quota: Option<Quota>,
    cost: CostRule,
    exceptions: Vec<Exception>,
    missing: Missing,
    shadow: bool,
    on_store_failure: FailurePolicy,
    local_share: LocalShare,
    hot_keys: HotKeys,
}

/// What a rule does when an attribute of its key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The rule does not apply.
    #[default]
    Skip,
    /// The rule applies, and all such requests share one bucket.
    Share,
}

impl Rule {
    /// The most attributes in one key: 8.
    pub const KEY_COUNT_MAX: usize = 8;

    /// Makes the rule `name` of the domain `default` that applies to every request and has one
    /// bucket for all.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        let name = name.into();
        Self {
            key_start: key_start(DOMAIN_DEFAULT, &name),
            name,
            domain: DOMAIN_DEFAULT.to_owned(),
            matcher: Matcher::new(),
            key: Vec::new(),
            quota,
            shadow_quota: None,
            cost: CostRule::default(),
            exceptions: Vec::new(),
            missing: Missing::default(),
            shadow: false,
            on_store_failure: FailurePolicy::default(),
            local_share: LocalShare::default(),
            hot_keys: HotKeys::default(),
        }
    }

    /// Sets the domain. A rule applies only to requests of its domain.
    #[must_use]
    pub fn with_domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = domain.into();
        self.key_start = key_start(&self.domain, &self.name);
        self
    }

    /// Requires that `attribute` is present and matches one of `patterns`; see
    /// [`Pattern`](crate::Pattern).
    #[must_use]
    pub fn with_match<P: Into<String>>(
        mut self,
        attribute: impl Into<String>,
        patterns: impl IntoIterator<Item = P>,
    ) -> Self {
        self.matcher = self.matcher.with(attribute, patterns);
        self
    }

    /// Sets the attributes that make the bucket: one bucket per combination of their values.
    #[must_use]
    pub fn with_key<A: Into<String>>(mut self, attributes: impl IntoIterator<Item = A>) -> Self {
        self.key = attributes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what happens when an attribute of the key is absent.
    #[must_use]
    pub const fn with_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Sets whether the rule is judged and counted but never denies.
    #[must_use]
    pub const fn with_shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// Adds a second quota in shadow: it is judged and counted in buckets of its own, and reported
    /// as the rule `<name>.shadow`, but never denies. So a new limit can be watched beside the one
    /// in force.
    #[must_use]
    pub const fn with_shadow_quota(mut self, quota: Quota) -> Self {
        self.shadow_quota = Some(quota);
        self
    }

    /// Sets what a request costs. The default is one unit.
    #[must_use]
    pub fn with_cost(mut self, cost: CostRule) -> Self {
        self.cost = cost;
        self
    }

    /// Adds an exception: for requests that match, `treatment` holds instead. The first exception
    /// that matches counts.
    #[must_use]
    pub fn with_exception(mut self, matcher: Matcher, treatment: Treatment) -> Self {
        self.exceptions.push(Exception { matcher, treatment });
        self
    }

    /// Sets the answer when the store cannot answer.
    #[must_use]
    pub const fn with_failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.on_store_failure = policy;
        self
    }

    /// Sets the part of the quota that this node grants on its own under [`FailurePolicy::Local`].
    #[must_use]
    pub const fn with_local_share(mut self, share: LocalShare) -> Self {
        self.local_share = share;
        self
    }

    /// Sets how a key with much traffic is served.
    #[must_use]
    pub const fn with_hot_keys(mut self, hot_keys: HotKeys) -> Self {
        self.hot_keys = hot_keys;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the attributes that make the bucket.
    pub fn key(&self) -> &[String] {
        &self.key
    }

    /// Returns which requests of the domain the rule applies to.
    pub const fn matcher(&self) -> &Matcher {
        &self.matcher
    }

    /// Returns what a request costs.
    pub const fn cost(&self) -> &CostRule {
        &self.cost
    }

    /// Returns the exceptions, in the order in which they are tried.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// Returns which exception holds for a request, if one does: the first that matches.
    #[inline]
    pub fn exception(&self, attributes: &Attributes) -> Option<usize> {
        self.exceptions.iter().position(|one| one.matcher.matches(attributes))
    }

    /// Returns what holds under an exception, or without one.
    pub fn treatment(&self, exception: Option<usize>) -> Treatment {
        let exception = exception.and_then(|index| self.exceptions.get(index));
        exception.map_or(Treatment::Quota(self.quota), |one| one.treatment)
    }

    /// Returns the quota of each bucket that no exception concerns.
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns what happens when an attribute of the key is absent.
    pub const fn missing(&self) -> Missing {
        self.missing
    }

    /// Tells whether the rule is judged and counted but never denies.
    pub const fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns the answer when the store cannot answer.
    pub const fn failure_policy(&self) -> FailurePolicy {
        self.on_store_failure
    }

    /// Returns how a key with much traffic is served.
    pub const fn hot_keys(&self) -> HotKeys {
        self.hot_keys
    }

    /// Returns the terms on which slices of a bucket under `quota` are leased, if the rule does
    /// that.
    pub fn lease_terms(&self, quota: &Quota) -> Option<LeaseTerms> {
        match self.hot_keys {
            HotKeys::Lease if !self.shadow => LeaseTerms::of(quota),
            _ => None,
        }
    }

    /// Returns how a bucket under `quota` is kept in shards, if the rule does that and the quota can
    /// be.
    pub fn shard_terms(&self, quota: &Quota) -> Option<ShardTerms> {
        match self.hot_keys {
            HotKeys::Shards(count) => ShardTerms::of(quota, count).ok(),
            _ => None,
        }
    }

    /// Returns the part of the quota that one node grants on its own.
    pub const fn local_share(&self) -> LocalShare {
        self.local_share
    }

    /// Returns the part of `quota` that one of `nodes` live nodes grants on its own under
    /// [`FailurePolicy::Local`].
    ///
    /// The rate is divided exactly and the burst rounded down, but to one unit at least: so all
    /// nodes together hold a burst of the quota's, or of one unit each if that is more. Under
    /// [`LocalShare::Auto`] a part that cannot be counted is the next lower one that can, and no
    /// lower than one unit in 366 days.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if a fixed fraction cannot be counted exactly.
    pub fn local_part(&self, quota: &Quota, nodes: NonZeroU32) -> Result<Quota, QuotaError> {
        match self.local_share {
            LocalShare::Auto => Fraction::one_of(nodes).of_or_below(quota),
            LocalShare::Fraction(fraction) => fraction.of(quota),
        }
    }

    /// Tells whether the rule applies to a request.
    pub fn applies(&self, attributes: &Attributes) -> bool {
        self.domain == attributes.domain() && self.applies_in_domain(attributes)
    }

    /// Tells whether the rule applies to a request of its domain.
    pub(crate) fn applies_in_domain(&self, attributes: &Attributes) -> bool {
        self.matcher.matches(attributes)
            && (self.missing == Missing::Share
                || self.key.iter().all(|name| attributes.value(name).is_some()))
    }

    /// Writes the key of the bucket that a request is charged to under a quota of the rule; see the
    /// [`key`](crate::key) module.
    pub fn bucket_key(&self, attributes: &Attributes, quota: &Quota) -> String {
        let mut text = String::with_capacity(self.key_start.len() + 64);
        self.write_bucket_key(&mut text, attributes, quota, Missing::Share);
        text
    }

    /// Appends the [key](Self::bucket_key) of the bucket that a request is charged to under a quota
    /// of the rule, and tells whether it has one: if the rule skips a request that lacks an
    /// attribute of the key, `text` stays as it was. Whether the request matches is not looked at.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_core::{Attributes, Quota, Rule};
    ///
    /// let quota = Quota::from_rate("20/min".parse()?)?;
    /// let rule = Rule::new("login", quota).with_key(["ip"]);
    /// let mut text = String::new();
    /// assert!(rule.push_bucket_key(&mut text, &Attributes::from([("ip", "203.0.113.7")]), &quota));
    /// assert!(!rule.push_bucket_key(&mut text, &Attributes::new(), &quota));
    /// assert_eq!(text, "default:login:ip=203.0.113.7");
    /// # Ok::<(), tollgate_core::QuotaError>(())
    /// ```
    pub fn push_bucket_key(
        &self,
        text: &mut String,
        attributes: &Attributes,
        quota: &Quota,
    ) -> bool {
        let start = text.len();
        let has_key = self.write_bucket_key(text, attributes, quota, self.missing);
        if !has_key {
            text.truncate(start);
        }
        has_key
    }

    /// Appends the key, or stops at an attribute that the request lacks and tells so, where
    /// `missing` says to skip it.
    #[inline]
    fn write_bucket_key(
        &self,
        text: &mut String,
        attributes: &Attributes,
        quota: &Quota,
        missing: Missing,
    ) -> bool {
        text.push_str(&self.key_start);
        for name in &self.key {
            let value = attributes.value(name);
            if value.is_none() && missing == Missing::Skip {
                return false;
            }
            key::push_attribute(text, name, value);
        }
        key::push_algorithm(text, quota.algorithm());
        true
    }

    pub(crate) fn validate(&self) -> Result<(), RuleError> {
        let named = |field: &str, name: &str| {
            if key::is_name(name) {
                return Ok(());
            }
            Err(self.error(format!(
                "{field} {name:?} must be 1 to {} letters, digits, '_', '-' or '.'",
                key::NAME_LEN_MAX
            )))
        };
        named("name", &self.name)?;
        named("domain", &self.domain)?;
        self.key.iter().try_for_each(|name| named("key attribute", name))?;
        if self.key.len() > Self::KEY_COUNT_MAX {
            return Err(self.error(format!(
                "key has {} attributes: the most is {}",
                self.key.len(),
                Self::KEY_COUNT_MAX
            )));
        }
        for (index, name) in self.key.iter().enumerate() {
            if self.key[..index].contains(name) {
                return Err(self.error(format!("key names the attribute {name:?} twice")));
            }
        }
        self.validate_matcher("match", &self.matcher)?;
        self.validate_quota(&self.quota)?;
        for exception in &self.exceptions {
            self.validate_matcher("match of an exception", &exception.matcher)?;
            if exception.matcher.is_empty() {
                return Err(self.error(
                    "an exception matches every request: change the rule instead".to_owned(),
                ));
            }
            if let Treatment::Quota(quota) = &exception.treatment {
                self.validate_quota(quota)?;
            }
        }
        match &self.cost {
            CostRule::One | CostRule::Constant(_) => Ok(()),
            CostRule::Attribute(name) => named("cost attribute", name),
            CostRule::PerMatch(costs) => costs
                .iter()
                .try_for_each(|(matcher, _)| self.validate_matcher("match of a cost", matcher)),
        }
    }

    fn validate_quota(&self, quota: &Quota) -> Result<(), RuleError> {
        if self.hot_keys == HotKeys::Lease && LeaseTerms::of(quota).is_none() {
            return Err(self.error(format!(
                "leases need a token bucket with a burst of at least {}, not {} with {}",
                LeaseTerms::BURST_MIN,
                quota.algorithm(),
                quota.burst()
            )));
        }
        if let HotKeys::Shards(count) = self.hot_keys {
            ShardTerms::of(quota, count).map_err(|error| self.error(error.to_string()))?;
        }
        let part = self.local_part(quota, NonZeroU32::MIN);
        part.map(drop).map_err(|error| self.error(format!("local share of the quota: {error}")))
    }

    fn validate_matcher(&self, field: &str, matcher: &Matcher) -> Result<(), RuleError> {
        for (attribute, patterns) in matcher.iter() {
            if !key::is_name(attribute) {
                return Err(self.error(format!(
                    "{field}: attribute {attribute:?} must be 1 to {} letters, digits, '_', '-' \
                     or '.'",
                    key::NAME_LEN_MAX
                )));
            }
            if patterns.is_empty() {
                return Err(self.error(format!(
                    "{field}: {attribute:?} has no pattern, so it would never hold"
                )));
            }
        }
        Ok(())
    }

    /// The rule that counts the shadow quota, if there is one.
    pub(crate) fn shadow_rule(&self) -> Option<Self> {
        let quota = self.shadow_quota?;
        let name = format!("{}.shadow", self.name);
        let key_start = key_start(&self.domain, &name);
        let hot_keys = match self.hot_keys {
            // The traffic of a key is the same under both.
            HotKeys::Shards(count) if ShardTerms::of(&quota, count).is_ok() => self.hot_keys,
            _ => HotKeys::Exact,
        };
        let (shadow_quota, shadow) = (None, true);
        Some(Self { name, key_start, quota, shadow_quota, shadow, hot_keys, ..self.clone() })
    }

    pub(crate) fn error(&self, problem: String) -> RuleError {
        RuleError { rule: self.name.clone(), problem }
    }
}

fn key_start(domain: &str, name: &str) -> String {
    format!("{domain}:{name}")
}

/// A rule, or a set of rules, that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    rule: String,
    problem: String,
}

impl RuleError {
    /// Returns the name of the rule at fault.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns what is wrong with it, without its name.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:?}: {}", self.rule, self.problem)
    }
}

impl std::error::Error for RuleError {}
