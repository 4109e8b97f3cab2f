//! How often a small call is made beside others.

use std::time::Duration;

use tokio::time::Instant;

/// Where calls come less often than this, a check that finds others in flight goes at once as well: a call of its own
/// costs the server and this process more than a place in another, which counts only where there are many.
const INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 10 });

/// How many calls may come at once after a while without any.
const BURST: u32 = if cfg!(test) { 2 } else { 8 };

/// The calls of a store, counted by the generic cell rate algorithm (ITU-T I.371).
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next call would come if all of them came at even distances.
    next: Option<Instant>,
}

impl Pace {
    /// Counts a call if calls are few, and tells whether they are.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let next = self.next.map_or(now, |next| next.max(now));
        let are_few = next.duration_since(now) <= INTERVAL * (BURST - 1);
        if are_few {
            self.next = Some(next + INTERVAL);
        }
        are_few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_calls_is_few_and_then_one_an_interval() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!([(); 3].map(|()| pace.admits(start)), [true, true, false]);
        let later = start + INTERVAL;
        assert_eq!([(); 2].map(|()| pace.admits(later)), [true, false]);
        // What was not used is kept up to a burst.
        let much_later = start + 100 * INTERVAL;
        assert_eq!([(); 3].map(|()| pace.admits(much_later)), [true, true, false]);
        // A clock that was read earlier by another thread grants nothing.
        assert!(!pace.admits(start));
    }
}
