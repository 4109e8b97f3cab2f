//! Who waits for a bucket, in the order of their coming.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as FairMutex, Notify};

/// The lines of all buckets that somebody waits for. A line exists as long as it is used.
#[derive(Default)]
pub(crate) struct Lines {
    by_key: Mutex<HashMap<String, Arc<Line>>>,
}

/// Those who wait for one bucket. Whoever has the turn asks the store; the others wait for it,
/// first come, first served.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) turn: FairMutex<()>,
    /// Woken when something is given back in this process.
    pub(crate) given_back: Notify,
    units: AtomicU64,
}

/// A place in a line; leaving it is dropping it.
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    key: &'a str,
    pub(crate) line: Arc<Line>,
    /// The units that those before this place wait for.
    pub(crate) ahead: u64,
    units: u64,
}

impl Lines {
    /// Queues up for `units` of the bucket at `key`.
    pub(crate) fn join<'a>(&'a self, key: &'a str, units: u64) -> Place<'a> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let line = Arc::clone(by_key.entry(key.to_owned()).or_default());
        let ahead = line.units.fetch_add(units, Ordering::Relaxed);
        Place { lines: self, key, line, ahead, units }
    }

    /// Tells whether somebody waits for the bucket at `key`.
    pub(crate) fn is_waited_for(&self, key: &str) -> bool {
        let lines = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        lines.contains_key(key)
    }

    /// Wakes whoever has the turn at `key`, if anybody waits.
    pub(crate) fn wake(&self, key: &str) {
        let lines = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(key) {
            line.given_back.notify_one();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.units.fetch_sub(self.units, Ordering::Relaxed);
        let mut lines = self.lines.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        // Two owners are the map and this place: nobody else waits.
        if Arc::strong_count(&self.line) <= 2 {
            lines.remove(self.key);
        }
    }
}
