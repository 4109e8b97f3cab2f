//! What a store keeps for a bucket, and how a decision changes it.

use std::time::Duration;

use crate::concurrency::Slots;
use crate::edit::Edit;
use crate::fixed_window::Window;
use crate::sliding_window::Cells;
use crate::time::Timestamp;
use crate::token_bucket::Bucket;

/// The stored state of one bucket in which something is spent.
///
/// A bucket in which nothing is spent has no state: it is full (G5). State that the quota's
/// algorithm cannot read counts as none. Rules keep it under other keys; see [`mod@crate::key`].
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

impl State {
    /// Returns the state of a token bucket or a leaky bucket, if it is one.
    pub const fn as_bucket(&self) -> Option<&Bucket> {
        match self {
            Self::Bucket(bucket) => Some(bucket),
            _ => None,
        }
    }

    /// Returns the instant of the last spending, which is ahead of a clock that has stepped back.
    /// Slots tell only when they end.
    pub const fn ts(&self) -> Option<Timestamp> {
        match self {
            Self::Bucket(bucket) => Some(bucket.ts),
            Self::Window(window) => Some(window.ts),
            Self::Cells(cells) => Some(cells.ts),
            Self::Slots(_) => None,
        }
    }

    /// Moves every instant of the state back by `by`, and returns by how much it was moved: cells
    /// move by whole cells only. What is spent stays spent for as long as before, seen from the
    /// moved instants.
    pub fn wind_back(&mut self, by: Duration) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.ts = bucket.ts.saturating_sub(by),
            Self::Window(window) => window.ts = window.ts.saturating_sub(by),
            Self::Cells(cells) => return cells.wind_back(by),
            Self::Slots(slots) => slots.wind_back(by),
        }
        by
    }

    /// Returns the heap memory of the state in bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Bucket(_) | Self::Window(_) => 0,
            Self::Cells(cells) => size_of::<Cells>() + cells.heap_bytes(),
            Self::Slots(slots) => size_of::<Slots>() + slots.heap_bytes(),
        }
    }
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
