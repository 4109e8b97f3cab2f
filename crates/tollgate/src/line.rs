//! Who waits for a bucket, in the order of their coming.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// How soon a line first looks again for slots that another process may have released; nothing in
/// this process wakes it then.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(25);

/// The longest pause of a line that finds none.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The lines of all buckets that somebody waits for. A line exists as long as somebody is in it.
#[derive(Default)]
pub(crate) struct Lines {
    by_key: Mutex<HashMap<String, Line>>,
    arrivals: AtomicU64,
}

/// When somebody came, among all who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

/// Those who wait for one bucket. Whoever has the turn asks the store; the others wait for it, first
/// come, first served.
#[derive(Default)]
struct Line {
    waiting: BTreeMap<Arrival, Waiter>,
    turn: Option<Arrival>,
    units: u64,
    /// How often nothing had come free since something did.
    looked_in_vain: u32,
    /// Woken when something is given back in this process.
    given_back: Arc<Notify>,
}

struct Waiter {
    units: u64,
    /// Woken when it may be its turn.
    turn: Arc<Notify>,
}

/// A place in a line; leaving it is dropping it.
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    key: String,
    arrival: Arrival,
    turn: Arc<Notify>,
    given_back: Arc<Notify>,
    /// The units that the others in the line wait for.
    pub(crate) ahead: u64,
}

impl Lines {
    /// Notes that somebody comes.
    pub(crate) fn arrive(&self) -> Arrival {
        Arrival(self.arrivals.fetch_add(1, Ordering::Relaxed))
    }

    /// Queues up for `units` of the bucket at `key`, before those who came later.
    pub(crate) fn join(&self, key: &str, units: u64, arrival: Arrival) -> Place<'_> {
        let mut by_key = self.lock();
        let line = by_key.entry(key.to_owned()).or_default();
        let ahead = line.units;
        line.units = ahead.saturating_add(units);
        let (turn, given_back) = (Arc::new(Notify::new()), Arc::clone(&line.given_back));
        line.waiting.insert(arrival, Waiter { units, turn: Arc::clone(&turn) });
        Place { lines: self, key: key.to_owned(), arrival, turn, given_back, ahead }
    }

    /// Tells whether somebody waits for the bucket at `key`.
    pub(crate) fn is_waited_for(&self, key: &str) -> bool {
        self.lock().contains_key(key)
    }

    /// Wakes whoever has the turn at `key`, if anybody waits.
    pub(crate) fn wake(&self, key: &str) {
        if let Some(line) = self.lock().get_mut(key) {
            line.looked_in_vain = 0;
            line.given_back.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Line>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until nobody who came before is in the line.
    pub(crate) async fn turn(&self) {
        while !self.takes_turn() {
            self.turn.notified().await;
        }
    }

    /// Waits until something is given back in this process.
    pub(crate) async fn given_back(&self) {
        self.given_back.notified().await;
    }

    /// Notes that nothing had come free, and returns how soon to look again.
    pub(crate) fn pause(&self) -> Duration {
        let mut by_key = self.lines.lock();
        let Some(line) = by_key.get_mut(&self.key) else { return PAUSE_MIN };
        let doubled = 1_u32.checked_shl(line.looked_in_vain).unwrap_or(u32::MAX);
        line.looked_in_vain = line.looked_in_vain.saturating_add(1);
        PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
    }

    /// Leaves the line with what it waited for.
    pub(crate) fn leave_served(self) {
        if let Some(line) = self.lines.lock().get_mut(&self.key) {
            line.looked_in_vain = 0;
        }
    }

    /// Where it waits.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    fn takes_turn(&self) -> bool {
        let mut by_key = self.lines.lock();
        let Some(line) = by_key.get_mut(&self.key) else { return true };
        let is_first = line.waiting.keys().next() == Some(&self.arrival);
        if line.turn.is_none() && is_first {
            line.turn = Some(self.arrival);
        }
        line.turn == Some(self.arrival)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut by_key = self.lines.lock();
        let Some(line) = by_key.get_mut(&self.key) else { return };
        if let Some(left) = line.waiting.remove(&self.arrival) {
            line.units = line.units.saturating_sub(left.units);
        }
        if line.turn == Some(self.arrival) {
            line.turn = None;
        }
        match line.waiting.values().next() {
            Some(next) if line.turn.is_none() => next.turn.notify_one(),
            Some(_) => {}
            None => drop(by_key.remove(&self.key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    /// Whether a future is ready when it is asked once.
    async fn is_ready(future: impl Future<Output = ()>) -> bool {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn the_turn_is_of_whoever_came_first_however_late_it_joined() {
        let lines = Lines::default();
        let (first, second, third) = (lines.arrive(), lines.arrive(), lines.arrive());
        let two = lines.join("a", 5, second);
        assert!(is_ready(two.turn()).await);
        let three = lines.join("a", 7, third);
        let one = lines.join("a", 1, first);
        assert_eq!((two.ahead, three.ahead, one.ahead), (0, 5, 12));
        // Who has the turn keeps it.
        assert!(!is_ready(one.turn()).await && !is_ready(three.turn()).await);
        drop(two);
        assert!(!is_ready(three.turn()).await && is_ready(one.turn()).await);
        drop(one);
        assert!(is_ready(three.turn()).await);
        assert!(lines.is_waited_for("a"));
        drop(three);
        assert!(!lines.is_waited_for("a"));
    }

    #[tokio::test]
    async fn who_leaves_from_the_middle_does_not_pass_the_turn() {
        let lines = Lines::default();
        let arrivals: Vec<_> = (0..3).map(|_| lines.arrive()).collect();
        let mut places: Vec<_> = arrivals.iter().map(|one| lines.join("a", 1, *one)).collect();
        assert!(is_ready(places[0].turn()).await);
        drop(places.remove(1));
        assert!(!is_ready(places[1].turn()).await);
        drop(places.remove(0));
        assert!(is_ready(places[0].turn()).await);
    }

    #[tokio::test]
    async fn a_line_pauses_the_longer_the_longer_nothing_comes_free_whoever_is_first_in_it() {
        let lines = Lines::default();
        let mut places: Vec<_> = (0..3).map(|_| lines.join("a", 1, lines.arrive())).collect();
        let other = lines.join("b", 1, lines.arrive());
        let pauses = |place: &Place<'_>, count| -> Vec<_> {
            (0..count).map(|_| place.pause().as_millis()).collect()
        };
        assert_eq!(pauses(&places[0], 3), [25, 50, 100]);
        // Who gives up has found nothing.
        drop(places.remove(0));
        assert_eq!(pauses(&places[0], 40)[..3], [200, 250, 250]);
        assert_eq!(pauses(&places[0], 1), [250]);
        lines.wake("a");
        assert_eq!(pauses(&places[0], 2), [25, 50]);
        places.remove(0).leave_served();
        assert_eq!((pauses(&places[0], 1), pauses(&other, 1)), (vec![25], vec![25]));
    }

    #[tokio::test]
    async fn what_is_given_back_wakes_the_line_of_its_bucket_alone() {
        let lines = Lines::default();
        let (a, b) = (lines.join("a", 1, lines.arrive()), lines.join("b", 1, lines.arrive()));
        lines.wake("a");
        assert!(is_ready(a.given_back()).await && !is_ready(b.given_back()).await);
    }
}
