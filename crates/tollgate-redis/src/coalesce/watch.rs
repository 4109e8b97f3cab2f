//! Who sees to the deadlines of those who wait.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tokio::runtime;
use tokio::time::{Instant, sleep_until};

use super::seats::Seats;
use super::turn::Server;

/// The seats that somebody may wait at, the oldest first, and the runtimes that have a watch.
///
/// All who wait have the same timeout, so their deadlines come in the order of their arrival, and
/// one timer for all is enough. Each runtime has its own: one that is stuck, or ends, holds up
/// nobody but its own callers.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// With the deadline of the first who sat down.
    seats: VecDeque<(Instant, Weak<Seats>)>,
    runtimes: SmallVec<[runtime::Id; 1]>,
}

impl Watched {
    /// Adds seats, of which the first deadline is given.
    pub(super) fn push(&mut self, deadline: Instant, seats: &Arc<Seats>) {
        self.drop_oldest();
        self.seats.push_back((deadline, Arc::downgrade(seats)));
    }

    /// Whether a runtime is to begin a watch now.
    pub(super) fn begins(&mut self, runtime: runtime::Id) -> bool {
        let begins = !self.runtimes.contains(&runtime);
        if begins {
            self.runtimes.push(runtime);
        }
        begins
    }

    /// Takes the watch of a runtime off, and returns the seats that there are.
    pub(super) fn end(&mut self, runtime: runtime::Id) -> Vec<Arc<Seats>> {
        self.runtimes.retain(|one| *one != runtime);
        self.seats.iter().filter_map(|(_, seats)| seats.upgrade()).collect()
    }

    /// Returns the seats at which a deadline may have passed, and the first deadline elsewhere; or
    /// ends the watch of a runtime if nobody can be waiting.
    pub(super) fn due(
        &mut self,
        runtime: runtime::Id,
        now: Instant,
    ) -> Option<(Vec<Arc<Seats>>, Option<Instant>)> {
        self.seats.retain(|(_, seats)| seats.strong_count() > 0);
        if self.seats.is_empty() {
            self.runtimes.retain(|one| *one != runtime);
            return None;
        }
        let due = self.seats.iter().take_while(|(deadline, _)| *deadline <= now);
        let due: Vec<_> = due.map(|(_, seats)| seats.upgrade()).collect();
        let next = self.seats.get(due.len()).map(|(deadline, _)| *deadline);
        Some((due.into_iter().flatten().collect(), next))
    }

    /// Forgets seats that are gone. They mostly go in the order in which they came.
    fn drop_oldest(&mut self) {
        while self.seats.front().is_some_and(|(_, seats)| seats.strong_count() == 0) {
            self.seats.pop_front();
        }
    }
}

/// The watch of one runtime, for as long as somebody waits.
pub(super) struct Watch<S: Server> {
    server: Weak<S>,
    runtime: runtime::Id,
    has_ended: bool,
}

impl<S: Server> Watch<S> {
    pub(super) fn new(server: &Arc<S>, runtime: runtime::Id) -> Self {
        Self { server: Arc::downgrade(server), runtime, has_ended: false }
    }

    /// Tells those who are late so, until nobody waits.
    pub(super) async fn keep(mut self) {
        while let Some(next) = self.look() {
            sleep_until(next).await;
        }
    }

    /// Tells those who are late so, and returns when to look again, or that nobody waits.
    pub(super) fn look(&mut self) -> Option<Instant> {
        let next = self.server.upgrade().and_then(|server| {
            let now = server.now();
            // Whoever comes from now on has until then at least.
            let last = now + server.timeout();
            server.coalescer().expire(self.runtime, now, last)
        });
        self.has_ended = next.is_none();
        next
    }
}

impl<S: Server> Drop for Watch<S> {
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(server) = self.server.upgrade()
        {
            // The runtime ends. Nobody is there to tell those who came from it when they are late.
            server.coalescer().end_watch(self.runtime);
        }
    }
}
