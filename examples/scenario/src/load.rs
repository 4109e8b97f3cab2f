//! The load, spread unevenly over the replicas.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::Client;

/// Requests per second.
pub(crate) const OFFERED: u64 = 1_800;

/// Which part of them each replica gets, in twelfths: one has most of the callers.
const PARTS: [u64; 3] = [10, 1, 1];

const TICKS_PER_SECOND: u64 = 200;

/// What the callers saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) errors: u64,
    /// What the limiter added to each request, in microseconds.
    pub(crate) added_us: Vec<u64>,
    /// How late the load itself was at most: what the machine adds to every latency.
    pub(crate) late: Duration,
}

/// Offers requests for `length`, and tells what came of them.
pub(crate) async fn offer(replicas: Vec<Arc<Client>>, length: Duration) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut ticks = interval(Duration::from_secs(1) / 200);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (start, mut requests, mut late) = (Instant::now(), JoinSet::new(), Duration::ZERO);
    for tick in 0.. {
        late = late.max(ticks.tick().await.elapsed());
        if start.elapsed() >= length {
            break;
        }
        for (replica, part) in replicas.iter().zip(PARTS) {
            let whole = PARTS.iter().sum::<u64>() * TICKS_PER_SECOND;
            let by = |tick: u64| tick * OFFERED * part / whole;
            for _ in by(tick)..by(tick + 1) {
                let (replica, seen) = (Arc::clone(replica), Arc::clone(&seen));
                requests.spawn(async move {
                    let reply = replica.get("/").await;
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    match reply.as_ref().map(|reply| reply.status) {
                        Ok(200) => seen.allowed += 1,
                        Ok(429) => seen.denied += 1,
                        _ => seen.errors += 1,
                    }
                    seen.added_us.extend(reply.ok().and_then(|reply| reply.added_us));
                });
            }
        }
        while requests.try_join_next().is_some() {}
    }
    requests.join_all().await;
    let mut seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    seen.added_us.sort_unstable();
    seen.late = late;
    seen
}
