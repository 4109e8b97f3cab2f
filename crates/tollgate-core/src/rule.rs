//! One rule: which requests it applies to, what makes its buckets, and their quota.

use std::fmt;
use std::num::NonZeroU32;

use crate::attributes::{Attributes, DOMAIN_DEFAULT};
use crate::key;
use crate::pattern::Pattern;
use crate::quota::{Quota, QuotaError};
use crate::rate::Rate;

/// A named limit: which requests it applies to, what makes its buckets, and their quota.
///
/// A rule applies to a request of its domain when every [`matching`](Self::matching) attribute
/// matches and every attribute of its [`key`](Self::key) is present. It then charges one bucket
/// per combination of the key's values; without a key, one bucket for all.
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
    matches: Vec<(String, Vec<Pattern>)>,
    key: Vec<String>,
    quota: Quota,
    missing: Missing,
    shadow: bool,
    on_store_failure: FailurePolicy,
    local_share: LocalShare,
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

/// What a rule answers when the store cannot answer within its deadline (G10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// This node's own in-memory bucket decides, with a share of the quota.
    #[default]
    Local,
    /// The request is allowed.
    Open,
    /// The request is refused as a store failure.
    Closed,
}

impl FailurePolicy {
    /// Returns the policy as the configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// Which part of a rule's quota one node grants on its own under [`FailurePolicy::Local`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LocalShare {
    /// The quota divided by the number of live nodes.
    #[default]
    Auto,
    /// A fixed fraction of the quota.
    Fraction(Fraction),
}

/// An exact fraction above 0 and at most 1.
///
/// # Examples
///
/// ```
/// use tollgate_core::Fraction;
///
/// let share = Fraction::parse("0.8").unwrap();
/// assert_eq!((share.numerator().get(), share.denominator().get()), (8, 10));
/// assert_eq!(Fraction::parse("0"), None);
/// assert_eq!(Fraction::parse("1.5"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: NonZeroU32,
    denominator: NonZeroU32,
}

impl Fraction {
    /// The whole.
    pub const ONE: Self = Self { numerator: NonZeroU32::MIN, denominator: NonZeroU32::MIN };

    /// Makes the fraction 1 / `denominator`.
    pub const fn one_of(denominator: NonZeroU32) -> Self {
        Self { numerator: NonZeroU32::MIN, denominator }
    }

    /// Parses a decimal such as `0.8` or `1`, with at most 6 decimals. Gives `None` for anything
    /// that is not above 0 and at most 1.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 6 {
            return None;
        }
        let denominator = 10_u32.pow(u32::try_from(decimals.len()).ok()?);
        let tail = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
        let numerator = whole.parse::<u32>().ok()?.checked_mul(denominator)?.checked_add(tail)?;
        if numerator > denominator {
            return None;
        }
        Some(Self {
            numerator: NonZeroU32::new(numerator)?,
            denominator: NonZeroU32::new(denominator)?,
        })
    }

    /// Returns the numerator.
    pub const fn numerator(self) -> NonZeroU32 {
        self.numerator
    }

    /// Returns the denominator.
    pub const fn denominator(self) -> NonZeroU32 {
        self.denominator
    }

    /// Returns this part of `quota`: the rate exactly, the burst rounded down but at least 1.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if the part is below the lowest rate or cannot be counted exactly.
    pub fn of(self, quota: &Quota) -> Result<Quota, QuotaError> {
        if self.numerator == self.denominator {
            return Ok(*quota);
        }
        let (numerator, denominator) = (self.numerator.get(), self.denominator.get());
        let units = quota.rate().units().checked_mul(u64::from(numerator));
        let period = quota.rate().period().checked_mul(denominator);
        let (Some(units), Some(period)) = (units, period) else {
            return Err(QuotaError::rate(format!("rate {} is too high to divide", quota.rate())));
        };
        let burst = u64::from(quota.burst()) * u64::from(numerator) / u64::from(denominator);
        Quota::new(Rate::new(units, period)?, burst.max(1))
    }
}

impl Rule {
    /// The most attributes in one key: 8.
    pub const KEY_COUNT_MAX: usize = 8;

    /// Makes the rule `name` of the domain `default` that applies to every request and has one
    /// bucket for all.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            domain: DOMAIN_DEFAULT.to_owned(),
            matches: Vec::new(),
            key: Vec::new(),
            quota,
            missing: Missing::default(),
            shadow: false,
            on_store_failure: FailurePolicy::default(),
            local_share: LocalShare::default(),
        }
    }

    /// Sets the domain. A rule applies only to requests of its domain.
    #[must_use]
    pub fn with_domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = domain.into();
        self
    }

    /// Requires that `attribute` is present and matches one of `patterns`; see [`Pattern`].
    #[must_use]
    pub fn with_match<P: Into<String>>(
        mut self,
        attribute: impl Into<String>,
        patterns: impl IntoIterator<Item = P>,
    ) -> Self {
        let patterns = patterns.into_iter().map(Pattern::new).collect();
        self.matches.push((attribute.into(), patterns));
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

    /// Returns what is matched: attributes, each with the patterns of which one must match.
    pub fn matching(&self) -> &[(String, Vec<Pattern>)] {
        &self.matches
    }

    /// Returns the quota of each bucket.
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

    /// Returns the part of the quota that one node grants on its own.
    pub const fn local_share(&self) -> LocalShare {
        self.local_share
    }

    /// Returns the quota that one of `nodes` live nodes grants on its own under
    /// [`FailurePolicy::Local`].
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if that part of the quota cannot be counted exactly.
    pub fn local_quota(&self, nodes: NonZeroU32) -> Result<Quota, QuotaError> {
        match self.local_share {
            LocalShare::Auto => Fraction::one_of(nodes).of(&self.quota),
            LocalShare::Fraction(fraction) => fraction.of(&self.quota),
        }
    }

    /// Tells whether the rule applies to a request.
    pub fn applies(&self, attributes: &Attributes) -> bool {
        self.domain == attributes.domain()
            && self.matches.iter().all(|(name, patterns)| {
                let value = attributes.value(name);
                value.is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value)))
            })
            && (self.missing == Missing::Share
                || self.key.iter().all(|name| attributes.value(name).is_some()))
    }

    /// Writes the key of the bucket that a request is charged to; see the [`key`](crate::key)
    /// module.
    pub fn bucket_key(&self, attributes: &Attributes) -> String {
        let mut text = String::with_capacity(self.domain.len() + self.name.len() + 64);
        text.push_str(&self.domain);
        text.push(':');
        text.push_str(&self.name);
        for name in &self.key {
            key::push_attribute(&mut text, name, attributes.value(name));
        }
        text
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
        if let Err(error) = self.local_quota(NonZeroU32::MIN) {
            return Err(self.error(format!("local share of the quota: {error}")));
        }
        for (attribute, patterns) in &self.matches {
            named("matched attribute", attribute)?;
            if patterns.is_empty() {
                return Err(self.error(format!(
                    "match of {attribute:?} has no pattern, so the rule would never apply"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn error(&self, problem: String) -> RuleError {
        RuleError { rule: self.name.clone(), problem }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(rate: &str, burst: u64) -> Quota {
        Quota::new(rate.parse().unwrap(), burst).unwrap()
    }

    #[test]
    fn a_part_of_a_quota_is_exact_and_holds_at_least_one_unit() {
        let third = Fraction::one_of(NonZeroU32::new(3).unwrap()).of(&quota("1/s", 2)).unwrap();
        assert_eq!(third, quota("1/3s", 1));
        let most = Fraction::parse("0.8").unwrap().of(&quota("10/s", 10)).unwrap();
        assert_eq!((most.units_per_tick(), most.scale()), (1, 125_000));
        assert_eq!(most.burst(), 8);
        assert_eq!(Fraction::parse("1").unwrap().of(&quota("7/s", 7)).unwrap(), quota("7/s", 7));
    }

    #[test]
    fn only_decimals_above_0_and_up_to_1_are_fractions() {
        for text in ["0", "0.0", "1.1", "2", "-0.5", "+1", ".5", "0.5.5", "", "a", "0.1234567"] {
            assert_eq!(Fraction::parse(text), None, "{text:?}");
        }
        for text in ["1", "1.0", "0.5", "0.000001"] {
            assert!(Fraction::parse(text).is_some(), "{text:?}");
        }
    }
}
