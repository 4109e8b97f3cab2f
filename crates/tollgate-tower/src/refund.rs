//! What an allowed request has spent, and when it has it back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::response::Parts;
use tollgate::{Attributes, Cost, Limiter, Mode, Verdict};

/// Tells of a response whether its request gets its cost back.
pub(crate) type RefundIf = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;

/// The refund under way; it tells what is left then, unless it failed.
pub(crate) type Refund = Pin<Box<dyn Future<Output = Option<Verdict>> + Send>>;

/// What a request has spent.
pub(crate) struct Spent {
    pub(crate) limiter: Limiter,
    pub(crate) attributes: Attributes,
    pub(crate) cost: Cost,
    pub(crate) refund_if: RefundIf,
}

impl Spent {
    /// Tells whether the store has anything to give back.
    pub(crate) fn is_in_store(verdict: &Verdict) -> bool {
        !verdict.rules().is_empty() && matches!(verdict.mode(), Mode::Exact | Mode::Unlimited)
    }

    pub(crate) fn refund(self) -> Refund {
        Box::pin(async move {
            match self.limiter.refund(&self.attributes, self.cost).await {
                Ok(verdict) => Some(verdict),
                Err(error) => {
                    tracing::debug!(%error, "the cost of a failed request stays spent");
                    None
                }
            }
        })
    }
}
