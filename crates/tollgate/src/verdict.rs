//! What a limiter answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Algorithm, Decision, Quota, Rule, StoreErrorKind, Treatment};

/// The answer to one request: allowed or denied, by which rule, and what every rule said.
///
/// The top-level values are those of the most restrictive enforced rule: among denials the one
/// with the longest wait, otherwise the one with the fewest units left. A shadow rule is listed
/// in [`rules`](Self::rules) but never speaks for the verdict.
///
/// `Display` writes one line for a log: the outcome, the rule that speaks and its numbers, and the
/// shadow rules that would deny. It names rules only, nothing that a caller sent.
///
/// # Examples
///
/// ```
/// use tollgate::{Attributes, Limiter, ManualClock, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .rule(Rule::new("login", Quota::new("20/min".parse()?, 1)?))
///     .clock(ManualClock::new())
///     .build()?;
/// let request = Attributes::new();
/// assert_eq!(limiter.check(&request).await?.to_string(), "allowed by login, 0 of 1 left");
/// assert_eq!(
///     limiter.check(&request).await?.to_string(),
///     "denied by login, 0 of 1 left, retry after 3s"
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict that is not acted upon limits nothing"]
pub struct Verdict {
    rules: SmallVec<[RuleDecision; 2]>,
    binding: Option<usize>,
    store_failure: Option<StoreErrorKind>,
    asked_store: bool,
}

/// What one rule said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    pub(crate) rule: Arc<Rule>,
    pub(crate) exception: Option<usize>,
    pub(crate) decision: Decision,
    pub(crate) mode: Mode,
    /// Which shard of the bucket decided, if it is kept in such.
    pub(crate) shard: Option<u8>,
    /// Whether the same request can succeed later.
    pub(crate) retryable: bool,
}

/// On what ground a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The shared store decided.
    Exact,
    /// A slice of the bucket decided that this node had debited ahead of time.
    Lease,
    /// The store could not answer, and this node's own bucket decided.
    Local,
    /// The store could not answer, and the rule allows requests then.
    Open,
    /// The store could not answer, and the rule refuses requests then.
    Closed,
    /// No enforced rule applies.
    Unlimited,
}

impl Mode {
    /// Returns the mode as the HTTP API and the metrics write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Unlimited => "unlimited",
        }
    }
}

impl RuleDecision {
    /// Returns the rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Returns the quota that holds for the request: the rule's, or that of an exception; `None` if
    /// the rule blocks the request.
    pub fn quota(&self) -> Option<Quota> {
        match self.rule.treatment(self.exception) {
            Treatment::Quota(quota) => Some(quota),
            _ => None,
        }
    }

    /// Returns what the rule said. A shadow rule may say deny in an allowed verdict.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns on what ground the rule decided.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the time until the cost fits, if the rule denied and the cost can fit at all. A
    /// rule that blocks the request, and a shadow rule whose burst is below the cost, give `None`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after().filter(|_| self.retryable)
    }
}

impl Verdict {
    pub(crate) fn new(
        rules: SmallVec<[RuleDecision; 2]>,
        store_failure: Option<StoreErrorKind>,
    ) -> Self {
        let mut verdict = Self { rules, binding: None, store_failure, asked_store: false };
        verdict.bind();
        verdict
    }

    /// Makes the verdict of no rule, for what rules say to be pushed to it.
    #[inline]
    pub(crate) fn of_none() -> Self {
        Self { rules: SmallVec::new(), binding: None, store_failure: None, asked_store: false }
    }

    /// Adds what a rule says, coarse to fine. [`bind`](Self::bind) comes last.
    #[inline]
    pub(crate) fn push(&mut self, rule: RuleDecision) {
        self.rules.push(rule);
    }

    /// Finds the most restrictive rule.
    #[inline]
    pub(crate) fn bind(&mut self) {
        let enforced = self.rules.iter().enumerate().filter(|(_, rule)| !rule.rule.is_shadow());
        let binding = enforced.min_by(|(_, a), (_, b)| restriction(a).cmp(&restriction(b)));
        self.binding = binding.map(|(index, _)| index);
    }

    /// Says whether the store was asked.
    #[inline]
    pub(crate) const fn with_asked(mut self, asked_store: bool) -> Self {
        self.asked_store = asked_store;
        self
    }

    /// Puts what rules said into one verdict, for a caller who had them judge
    /// [parts](crate::Part) of a request and weighs the decisions itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Attributes, Limiter, ManualClock, Quota, Rule, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder()
    ///     .rule(Rule::new("login", Quota::new("20/min".parse()?, 20)?))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// let verdict = limiter.check(&Attributes::new()).await?;
    /// let weighed = Verdict::from_rules(verdict.rules().iter().cloned());
    /// assert_eq!(weighed.decision(), verdict.decision());
    /// assert!(!weighed.asked_store(), "nobody asked for this one");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_rules(rules: impl IntoIterator<Item = RuleDecision>) -> Self {
        Self::new(rules.into_iter().collect(), None)
    }

    /// Tells whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.decision().is_none_or(Decision::is_allow)
    }

    /// Returns the decision of the most restrictive rule, or `None` if no enforced rule applies.
    pub fn decision(&self) -> Option<&Decision> {
        self.most_restrictive().map(|rule| &rule.decision)
    }

    /// Returns the most restrictive rule, or `None` if no enforced rule applies.
    pub fn rule(&self) -> Option<&Rule> {
        self.most_restrictive().map(|rule| rule.rule.as_ref())
    }

    /// Returns the most restrictive rule with what it said, or `None` if no enforced rule applies.
    pub fn most_restrictive(&self) -> Option<&RuleDecision> {
        self.binding.map(|index| &self.rules[index])
    }

    /// Returns on what ground the most restrictive rule decided.
    pub fn mode(&self) -> Mode {
        self.most_restrictive().map_or(Mode::Unlimited, |rule| rule.mode)
    }

    /// Returns the time until the same request can succeed, if it was denied.
    pub fn retry_after(&self) -> Option<Duration> {
        self.most_restrictive().and_then(RuleDecision::retry_after)
    }

    /// Returns the whole units left under the most restrictive rule, or `None` if no enforced rule
    /// applies.
    pub fn remaining(&self) -> Option<u32> {
        self.decision().map(Decision::remaining)
    }

    /// Returns the time the caller must wait before it goes on: the longest that an enforced rule
    /// asks for, zero but for a leaky bucket.
    pub fn delay(&self) -> Duration {
        let enforced = self.rules.iter().filter(|rule| !rule.rule.is_shadow());
        enforced.map(|rule| rule.decision.delay()).max().unwrap_or_default()
    }

    /// Returns what every rule that applies said, coarse to fine, shadow rules included.
    pub fn rules(&self) -> &[RuleDecision] {
        &self.rules
    }

    /// Tells whether the store was asked. It is not where no rule applies, a denial is known to hold
    /// yet, a leased slice covers the cost, or the store failed too often.
    pub const fn asked_store(&self) -> bool {
        self.asked_store
    }

    /// Returns how the store failed, if it did and the failure policies of the rules answered.
    pub const fn store_failure(&self) -> Option<StoreErrorKind> {
        self.store_failure
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most_restrictive() {
            None => f.write_str("allowed, no enforced rule applies")?,
            Some(binding) => {
                let outcome = if self.is_allowed() { "allowed" } else { "denied" };
                write!(f, "{outcome} by {}, {}", binding.rule.name(), Count(binding))?;
            }
        }
        if self.is_allowed() && !self.delay().is_zero() {
            write!(f, ", go on after {:?}", self.delay())?;
        }
        if let Some(wait) = self.retry_after() {
            write!(f, ", retry after {wait:?}")?;
        }
        let denies = |rule: &&RuleDecision| rule.rule.is_shadow() && !rule.decision.is_allow();
        for shadow in self.rules.iter().filter(denies) {
            write!(f, ", shadow {} would deny", shadow.rule.name())?;
        }
        match self.store_failure {
            Some(kind) => write!(f, " (store: {}, mode: {})", kind.as_str(), self.mode().as_str()),
            None => Ok(()),
        }
    }
}

/// What is left under a rule, or taken of it, as its algorithm counts.
struct Count<'a>(&'a RuleDecision);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = &self.0.decision;
        let (remaining, limit) = (decision.remaining(), decision.limit());
        let taken = limit.saturating_sub(remaining);
        match self.0.quota().as_ref().map(Quota::algorithm) {
            None => f.write_str("which blocks it"),
            Some(Algorithm::Concurrency { .. }) => write!(f, "{taken} of {limit} in flight"),
            Some(Algorithm::LeakyBucket) => write!(f, "{taken} of {limit} in the queue"),
            Some(_) => write!(f, "{remaining} of {limit} left"),
        }
    }
}

/// Orders rules from the most to the least restrictive: denials first, those that no wait helps
/// and then the longest wait first; then the fewest units left, the longest time to full first.
fn restriction(rule: &RuleDecision) -> impl Ord + use<> {
    let wait = rule.decision.retry_after().unwrap_or_default();
    (
        rule.decision.is_allow(),
        rule.retryable,
        std::cmp::Reverse(wait),
        rule.decision.remaining(),
        std::cmp::Reverse(rule.decision.reset_after()),
    )
}
