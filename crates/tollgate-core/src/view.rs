//! What every algorithm can tell of a stored state at `now`.

use crate::cost::Cost;
use crate::decision::Decision;
use crate::record::Record;
use crate::state::Change;

/// A stored state brought up to `now`, under one quota.
///
/// [`fits`](Self::fits) is asked once, and then exactly one of the others is called.
pub(crate) trait View: Sized {
    /// Tells whether `cost` can be spent now.
    fn fits(&self, cost: Cost) -> bool;

    /// Spends a cost that fits and is not 0.
    fn spend(self, cost: Cost) -> (Decision, Change);

    /// Allows a cost that fits, and leaves its units where they are.
    fn keep(self, cost: Cost) -> (Decision, Change);

    /// Denies a cost that does not fit.
    fn deny(self, cost: Cost) -> (Decision, Change);

    /// Gives a cost back.
    fn refund(self, cost: Cost) -> (Decision, Change);

    /// Gives back some of what was spent under a reservation, unless that has stopped to count: a
    /// window that it has left would otherwise admit as much again, and one who comes behind a
    /// place in a queue would go on at the time of another.
    fn give_back(self, cost: Cost, reserved: &Record) -> (Decision, Change);
}
