//! How many nodes share the budget.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often a node announces itself to the store.
pub(crate) const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before the first time, which a process that only asks once does not live through.
pub(crate) const ANNOUNCE_FIRST: Duration = Duration::from_millis(100);

/// How long fewer nodes must be seen before they are believed. A store that has come back empty
/// sees the nodes one by one.
const FEWER_AFTER: Duration = Duration::from_secs(3);

/// The last known number of live nodes, this one included.
#[derive(Debug)]
pub(crate) struct Nodes {
    assumed: NonZeroU32,
    seen: Mutex<Option<Seen>>,
    /// Whether the last announcement was refused by a store that answers otherwise.
    refused: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    count: NonZeroU32,
    /// Since when fewer were seen, and the most of those.
    fewer: Option<(Instant, NonZeroU32)>,
}

impl Nodes {
    pub(crate) const fn new(assumed: NonZeroU32) -> Self {
        Self { assumed, seen: Mutex::new(None), refused: AtomicBool::new(false) }
    }

    /// Returns the last number that the store told.
    pub(crate) fn known(&self) -> Option<NonZeroU32> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).map(|seen| seen.count)
    }

    /// Returns the last known number, or the assumed one if the store never told any.
    pub(crate) fn count(&self) -> NonZeroU32 {
        self.known().unwrap_or(self.assumed)
    }

    /// Notes that the store told `count` at `now`. More nodes count at once, fewer after a while;
    /// tells the number if it has changed.
    pub(crate) fn observe(&self, count: NonZeroU32, now: Instant) -> Option<NonZeroU32> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, fewer) = match *seen {
            Some(Seen { count: known, fewer }) if count < known => {
                let (since, most) = fewer.unwrap_or((now, count));
                let most = most.max(count);
                match now.saturating_duration_since(since) >= FEWER_AFTER {
                    true => (most, None),
                    false => (known, Some((since, most))),
                }
            }
            _ => (count, None),
        };
        let before = seen.replace(Seen { count: known, fewer });
        (before.map(|before| before.count) != Some(known)).then_some(known)
    }

    /// Notes whether a store that answers otherwise refused the announcement, and tells whether that
    /// is new.
    pub(crate) fn note_refusal(&self, refused: bool) -> bool {
        // Ordering: a hint for the log.
        !self.refused.swap(refused, Ordering::Relaxed) && refused
    }

    /// Notes that the store did not answer: what it tells next may be incomplete.
    pub(crate) fn lost(&self) {
        if let Some(seen) = &mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            seen.fewer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    #[test]
    fn without_any_announcement_the_assumed_number_counts() {
        let nodes = Nodes::new(of(3));
        assert_eq!((nodes.known(), nodes.count()), (None, of(3)));
        assert_eq!(nodes.observe(of(1), Instant::now()), Some(of(1)));
        assert_eq!((nodes.known(), nodes.count()), (Some(of(1)), of(1)));
    }

    #[test]
    fn more_nodes_count_at_once_and_fewer_after_three_seconds() {
        let (nodes, start) = (Nodes::new(of(1)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(nodes.observe(of(3), at(0)), Some(of(3)));
        assert_eq!(nodes.observe(of(1), at(1)), None, "they may not have come back yet");
        assert_eq!(nodes.observe(of(2), at(2)), None);
        assert_eq!(nodes.observe(of(2), at(4)), Some(of(2)));
        assert_eq!(nodes.observe(of(5), at(5)), Some(of(5)));
        assert_eq!(nodes.observe(of(5), at(6)), None, "it has not changed");
    }

    #[test]
    fn a_loss_in_between_begins_the_wait_anew() {
        let (nodes, start) = (Nodes::new(of(1)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        nodes.observe(of(3), at(0));
        nodes.observe(of(1), at(1));
        nodes.lost();
        assert_eq!(nodes.observe(of(1), at(10)), None);
        assert_eq!(nodes.observe(of(3), at(11)), None, "all are back");
        assert_eq!(nodes.count(), of(3));
    }
}
