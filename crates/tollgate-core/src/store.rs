//! What keeps buckets, and how it fails.

use std::error::Error;
use std::fmt;
use std::future::Future;

use crate::charge::Charge;
use crate::operation::Operation;
use crate::time::Timestamp;
use crate::together::Decisions;

/// Keeps the state of buckets and changes it atomically.
///
/// # What an implementor guarantees
///
/// 1. [`apply`](Self::apply) decides as [`decide_together`](crate::decide_together) does on the
///    stored states, and reads, decides and writes in one atomic step: concurrent calls equal some
///    serial order (G6, G7, G8).
/// 2. An absent bucket is a full one, and only full buckets are dropped (G5, G9).
/// 3. A call that fails is never reported as a decision. It is reported as an error, and has
///    spent nothing (G3), unless the answer was lost on its way: after a
///    [timeout](StoreError::is_timeout) or a [broken connection](StoreError::is_unavailable) that
///    is not known.
/// 4. Memory is bounded whatever keys are sent (G9).
///
/// # What a caller guarantees
///
/// No two charges of one call name the same key. A cost above its quota's burst is denied like any
/// that does not fit; whoever must tell that it never can asks
/// [`Quota::admits`](crate::Quota::admits) first. `now` comes from one clock; a store that has a
/// shared clock of its own may use that instead.
///
/// # How to prove it
///
/// `tollgate_testkit::conformance` replays the worked timelines on any `Store`.
pub trait Store: Send + Sync {
    /// Applies `operation` to all charges of one request and gives a decision for each, in order.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store could not answer; see its predicates. A denial is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the operation may or may not have been applied. It is never
    /// applied in part.
    fn apply(
        &self,
        operation: Operation,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Forgets the buckets at `keys`, which fills them. Records stay: a reservation from before can
    /// still be settled, and a refund under a ticket is not repeated.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store could not answer; some of the buckets may have been filled.
    fn reset(&self, keys: &[&str]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A store that could not answer.
///
/// This is never a denial. The text is for operators; it may name keys and servers, so a service
/// does not pass it on to its callers.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What kind of failure a [`StoreError`] is, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store gave no answer within the deadline; the units may have been spent.
    Timeout,
    /// The store could not be reached, or the connection broke.
    Unavailable,
    /// The key holds something that is not a bucket.
    Corrupt,
    /// The store holds as many live buckets as it may.
    Full,
    /// The store refused the operation.
    Refused,
    /// The call broke the contract of [`Store`].
    Invalid,
}

impl StoreErrorKind {
    /// Returns the kind as a lower-case word, as metrics and logs show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }
}

impl StoreError {
    /// Makes an error of `kind` with a text that says what was wrong and what to do.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Makes the error of a call that broke the contract of [`Store`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Invalid, message)
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns what kind of failure this is.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Tells whether the deadline passed. The units may have been spent, so a retry may spend twice.
    pub fn is_timeout(&self) -> bool {
        self.kind == StoreErrorKind::Timeout
    }

    /// Tells whether the store could not be reached, or the connection broke. If it broke after the
    /// call was sent, the units may have been spent.
    pub fn is_unavailable(&self) -> bool {
        self.kind == StoreErrorKind::Unavailable
    }

    /// Tells whether a key holds something that is not a bucket. It stays so until the key is
    /// removed or the prefix is changed.
    pub fn is_corrupt(&self) -> bool {
        self.kind == StoreErrorKind::Corrupt
    }

    /// Tells whether the store holds as many live buckets as it may.
    pub fn is_full(&self) -> bool {
        self.kind == StoreErrorKind::Full
    }

    /// Tells whether the call broke the contract of [`Store`].
    pub fn is_invalid(&self) -> bool {
        self.kind == StoreErrorKind::Invalid
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
