//! One server with the connections to it, and how the next ones come about.
//!
//! Each connection has a task that makes it, waits for its end and makes the next one, as long as the
//! server is in use. So a server that comes back is found without a call, and no call connects: while
//! a first attempt is under way calls wait for it, and once it has failed or takes too long they fail
//! at once until there is a connection.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ErrorKind, RedisError};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::connection::{Connector, Link, timed_out};
use crate::status::count;

/// The first pause before a failed attempt is repeated; calls still wait for that repetition.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause. What comes back is found this late at most.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A connection that ended earlier than this is replaced after a pause.
const LIFE_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum State {
    /// Nobody has asked for a connection yet.
    Idle,
    /// An attempt that calls wait for.
    Connecting,
    Ready(Link),
    /// Calls fail at once, with what made the last attempt fail; `None` if the first is not over.
    Absent {
        cause: Option<RedisError>,
        attempts: u64,
    },
}

/// The place of one connection.
#[derive(Debug)]
struct Place {
    state: watch::Sender<State>,
    /// Begins the next attempt without waiting for the end of the pause.
    hurry: Notify,
    task: Mutex<Option<AbortHandle>>,
}

/// One server. See the [module docs](self).
#[derive(Debug)]
pub(crate) struct Server {
    connector: Connector,
    places: Box<[Arc<Place>]>,
    next: AtomicUsize,
}

impl Server {
    pub(crate) fn new(connector: Connector) -> Self {
        let place = || Place {
            state: watch::Sender::new(State::Idle),
            hurry: Notify::new(),
            task: Mutex::new(None),
        };
        let count = connector.settings.connections;
        let places = (0..count).map(|_| Arc::new(place())).collect();
        Self { connector, places, next: AtomicUsize::new(0) }
    }

    /// Returns `host:port` or the path of the socket, which hold no credentials.
    pub(crate) fn name(&self) -> String {
        self.connector.endpoint.to_string()
    }

    /// Returns the host and the port, unless the server is reached in another way.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        self.connector.address()
    }

    /// Returns how many connections there are.
    pub(crate) fn established(&self) -> usize {
        self.places.iter().filter(|place| place.ready().is_some()).count()
    }

    /// Makes a connection of its own, which nobody looks after.
    pub(crate) async fn open(&self) -> Result<Link, RedisError> {
        self.connector.open().await
    }

    /// Returns a connection if there is one, in their turn.
    pub(crate) fn ready(&self) -> Option<Link> {
        let count = self.places.len();
        // Ordering: any place will do.
        let first = if count == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        (0..count).find_map(|offset| self.places[first.wrapping_add(offset) % count].ready())
    }

    /// Returns a connection, or waits for the attempt to make the first.
    ///
    /// # Cancel safety
    ///
    /// The attempt runs in a task of its own, so it goes on when a waiter is dropped.
    pub(crate) async fn link(&self) -> Result<Link, RedisError> {
        match self.ready() {
            Some(link) => Ok(link),
            None => {
                self.connect();
                self.outcome(|state| match state {
                    State::Ready(link) => link.is_usable(),
                    State::Absent { .. } => true,
                    State::Idle | State::Connecting => false,
                })
                .await
            }
        }
    }

    /// As [`link`](Self::link), but an attempt is awaited to its end however long it takes, and one
    /// is made at once where calls fail at once.
    pub(crate) async fn link_by_new_attempt(&self) -> Result<Link, RedisError> {
        if let Some(link) = self.ready() {
            return Ok(link);
        }
        self.connect();
        let place = &self.places[0];
        let seen = match &*place.state.borrow() {
            State::Absent { attempts, .. } => *attempts,
            _ => 0,
        };
        place.hurry.notify_one();
        self.outcome(|state| match state {
            State::Ready(link) => link.is_usable(),
            State::Absent { cause, attempts } => cause.is_some() && *attempts != seen,
            State::Idle | State::Connecting => false,
        })
        .await
    }

    async fn outcome(&self, is_over: impl Fn(&State) -> bool) -> Result<Link, RedisError> {
        // All places lead to one server, so what becomes of one becomes of the others.
        let mut state = self.places[0].state.subscribe();
        match state.wait_for(is_over).await.as_deref() {
            Ok(State::Ready(link)) => Ok(link.clone()),
            Ok(State::Absent { cause: Some(cause), .. }) => Err(cause.clone()),
            Ok(State::Absent { cause: None, .. }) => Err(timed_out()),
            Ok(State::Idle | State::Connecting) | Err(_) => {
                Err(RedisError::from((ErrorKind::Io, "the attempt to connect was cancelled")))
            }
        }
    }

    /// Starts to connect in the background, where nobody does.
    pub(crate) fn connect(&self) {
        for place in &self.places {
            let mut task = place.task.lock();
            // That of a runtime which has ended is finished too.
            if task.as_ref().is_some_and(|task| !task.is_finished()) {
                continue;
            }
            place.state.send_replace(State::Connecting);
            let looked_after = Supervisor {
                place: Arc::clone(place),
                connector: self.connector.clone(),
                attempts: 0,
            };
            *task = Some(tokio::spawn(looked_after.run()).abort_handle());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for place in &self.places {
            if let Some(task) = place.task.lock().take() {
                task.abort();
            }
        }
    }
}

impl Place {
    fn ready(&self) -> Option<Link> {
        match &*self.state.borrow() {
            State::Ready(link) if link.is_usable() => Some(link.clone()),
            _ => None,
        }
    }
}

/// Who makes the connections of one place, one after the other.
struct Supervisor {
    place: Arc<Place>,
    connector: Connector,
    attempts: u64,
}

impl Supervisor {
    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let mut is_first = true;
        loop {
            let attempt = self.connector.connect();
            let outcome = self.with_patience(attempt).await;
            match outcome {
                Ok(link) => {
                    let health = Arc::clone(&link.health);
                    if !is_first {
                        count(&self.connector.settings.counters.reconnects);
                    }
                    is_first = false;
                    self.place.state.send_replace(State::Ready(link));
                    health.finished().await;
                    self.place.state.send_replace(State::Connecting);
                    pause = PAUSE_MIN;
                    if health.age() < LIFE_MIN {
                        sleep(jittered(pause)).await;
                    }
                    continue;
                }
                // The first failure is not shown to those who wait, so that a server which has just
                // restarted is asked twice.
                Err(_) if pause == PAUSE_MIN && self.is_awaited() => {}
                Err(cause) => self.note_failure(Some(cause)),
            }
            tokio::select! {
                () = sleep(jittered(pause)) => {}
                () = self.place.hurry.notified() => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_awaited(&self) -> bool {
        matches!(&*self.place.state.borrow(), State::Connecting)
    }

    /// Lets calls fail at once if an attempt takes longer than they would wait.
    async fn with_patience(
        &self,
        attempt: impl Future<Output = Result<Link, RedisError>>,
    ) -> Result<Link, RedisError> {
        let mut attempt = std::pin::pin!(attempt);
        if self.is_awaited() {
            match timeout(self.connector.settings.patience, &mut attempt).await {
                Ok(outcome) => return outcome,
                Err(_) => {
                    let absent = State::Absent { cause: None, attempts: self.attempts };
                    self.place.state.send_replace(absent);
                }
            }
        }
        attempt.await
    }

    fn note_failure(&mut self, cause: Option<RedisError>) {
        self.attempts += 1;
        self.place.state.send_replace(State::Absent { cause, attempts: self.attempts });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // Those who wait learn that nobody looks after the connection any more.
        if !matches!(&*self.place.state.borrow(), State::Ready(_)) {
            self.place.state.send_replace(State::Absent { cause: None, attempts: 0 });
        }
    }
}

/// Returns a time between half of `pause` and all of it, so that the processes of a fleet do not
/// connect all at once to a server that comes back.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) % 1_024;
    pause / 2 + pause * u32::try_from(random).unwrap_or(0) / 2_048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_stay_between_half_and_all() {
        let pauses: Vec<_> = (0..64).map(|_| jittered(PAUSE_MAX)).collect();
        assert!(pauses.iter().all(|pause| (PAUSE_MAX / 2..=PAUSE_MAX).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
