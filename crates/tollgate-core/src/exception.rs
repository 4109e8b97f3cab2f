//! Requests that a rule treats in another way.

use crate::matcher::Matcher;
use crate::quota::Quota;

/// An exception to a rule: what holds instead for the requests that match.
///
/// A rule's exceptions are tried in order and the first that matches counts. The bucket's key
/// stays the rule's, so an exception for one account changes the quota of that account's bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Which requests it is for.
    pub matcher: Matcher,
    /// What holds for them.
    pub treatment: Treatment,
}

/// What an exception does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Treatment {
    /// Another quota holds.
    Quota(Quota),
    /// The rule does not apply.
    Unlimited,
    /// The rule denies, whatever was spent.
    Blocked,
}
