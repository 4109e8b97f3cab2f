//! What a store keeps for a bucket, and how a decision changes it.

use crate::concurrency::Slots;
use crate::edit::Edit;
use crate::fixed_window::Window;
use crate::sliding_window::Cells;
use crate::token_bucket::Bucket;

/// The stored state of one bucket in which something is spent.
///
/// A bucket in which nothing is spent has no state: it is full (G5). State of another algorithm
/// than the quota's counts as none, so a rule whose algorithm changes starts afresh.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Of a token bucket, and of a leaky bucket, which counts the same way.
    Bucket(Bucket),
    /// Of a fixed window.
    Window(Window),
    /// Of a sliding window, and of a sliding log, which is a window with cells of 1 µs.
    Cells(Box<Cells>),
    /// Of a concurrency limit.
    Slots(Box<Slots>),
}

/// What a store must do with a bucket's state after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a change that is not stored admits the same units twice"]
pub enum Change {
    /// Leave the stored state as it is.
    Keep,
    /// Change the stored state, which may not exist yet.
    Edit(Edit),
    /// Remove the stored state, because nothing is spent any more.
    Remove,
}

impl Change {
    /// Carries the change out on the state that was judged.
    pub fn apply(self, state: &mut Option<State>) {
        match self {
            Self::Keep => {}
            Self::Edit(edit) => edit.apply(state),
            Self::Remove => *state = None,
        }
    }
}
