//! What a rule answers when the store cannot answer.

use crate::fraction::Fraction;

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
