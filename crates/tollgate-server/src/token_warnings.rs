//! Tokens that nobody has, shown to the admin listener.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Tells in the log of requests that show an unknown token, with pauses in between.
#[derive(Debug, Default)]
pub(crate) struct TokenWarnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    /// Since the last line.
    count: u64,
}

impl TokenWarnings {
    /// Takes note of such a request. The token itself may be a good one that was mistyped, and is
    /// not told.
    pub(crate) fn tell(&self, peer: Option<IpAddr>, now: Instant) {
        if let Some(count) = self.due(now) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(
                peer,
                count,
                "requests to the admin listener show a token that is not one of `admin_tokens`"
            );
        }
    }

    /// Returns how many there were since the last line, if one is due at `now`.
    fn due(&self, now: Instant) -> Option<u64> {
        // No code that holds the lock can leave the state half changed.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_line_in_ten_seconds_with_the_count() {
        let (warnings, start) = (TokenWarnings::default(), Instant::now());
        let due = |seconds| warnings.due(start + Duration::from_secs(seconds));
        assert_eq!(due(0), Some(1));
        assert_eq!(due(1), None);
        assert_eq!(due(9), None);
        assert_eq!(due(10), Some(3));
        assert_eq!(due(30), Some(1));
    }
}
