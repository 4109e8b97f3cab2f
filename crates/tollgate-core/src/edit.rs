//! A change to a stored state, as small as the state is large.

use crate::concurrency::SlotsEdit;
use crate::fixed_window::Window;
use crate::sliding_window::CellsEdit;
use crate::state::State;
use crate::token_bucket::Bucket;

/// A change to a stored state.
///
/// Small states are replaced; of a sliding window and of slots only what changes is told, so that
/// a decision does not copy thousands of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edit {
    /// Replace the state of a token bucket or a leaky bucket.
    Bucket(Bucket),
    /// Replace the state of a fixed window.
    Window(Window),
    /// Change the cells of a sliding window or a sliding log.
    Cells(CellsEdit),
    /// Change the slots of a concurrency limit.
    Slots(SlotsEdit),
}

impl Edit {
    pub(crate) fn apply(self, state: &mut Option<State>) {
        match self {
            Self::Bucket(bucket) => *state = Some(State::Bucket(bucket)),
            Self::Window(window) => *state = Some(State::Window(window)),
            Self::Cells(edit) => match state {
                Some(State::Cells(cells)) => edit.apply(cells),
                _ => *state = Some(State::Cells(Box::new(edit.on_empty()))),
            },
            Self::Slots(edit) => match state {
                Some(State::Slots(slots)) => edit.apply(slots),
                _ => *state = Some(State::Slots(Box::new(edit.on_empty()))),
            },
        }
    }
}
