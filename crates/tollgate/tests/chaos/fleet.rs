//! Several nodes on one Redis, and a load on them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tollgate::{Attributes, Limiter, Mode, Quota, RedisStore, Rule};

/// The rule of every test, on three nodes.
pub(crate) const RATE: u64 = 200;
pub(crate) const BURST: u64 = 60;
pub(crate) const NODES: usize = 3;

/// What is offered, three times the rate, and which part each node gets, in sixths.
const OFFERED: u64 = 3 * RATE;
const PARTS: [u64; NODES] = [3, 2, 1];

/// The deadline of every operation.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// How soon after Redis's return all decisions are exact again.
pub(crate) const EXACT_WITHIN: Duration = Duration::from_secs(2);

/// For how long only some nodes may know that Redis is back: the longest pause of a probe, a
/// deadline, and what charging takes.
const SPREAD: Duration = Duration::from_millis(250);

/// The same where connections were cut off, and are made anew with pauses of up to half a second.
pub(crate) const SPREAD_OF_CONNECTIONS: Duration = Duration::from_millis(800);

const TICK: Duration = Duration::from_millis(10);

pub(crate) fn rule() -> Rule {
    Rule::new("all", Quota::new(format!("{RATE}/s").parse().unwrap(), BURST).unwrap())
}

/// What may be admitted in `elapsed`, of which Redis was away `outages` times.
pub(crate) fn bound(elapsed: Duration, outages: u64) -> u64 {
    bound_with(elapsed, outages, SPREAD)
}

fn bound_with(elapsed: Duration, outages: u64, spread: Duration) -> u64 {
    let over = |time: Duration| {
        RATE * u64::try_from(time.as_micros()).unwrap().div_ceil(1_000) / 1_000 + 1
    };
    BURST + over(elapsed) + outages * (2 * BURST + over(spread))
}

/// A deadline for tests that are about something else, which a busy machine does not miss.
pub(crate) const PATIENT: Duration = Duration::from_secs(3);

/// A node, as a process of its own would be.
pub(crate) fn node(url: &str) -> Limiter {
    node_within(url, DEADLINE)
}

fn node_within(url: &str, deadline: Duration) -> Limiter {
    let store = RedisStore::builder(url).timeout(deadline).connect_lazily().unwrap();
    Limiter::builder().rule(rule()).store(store).build().unwrap()
}

/// Nodes that know of each other.
pub(crate) async fn fleet(url: &str) -> Vec<Limiter> {
    fleet_within(url, DEADLINE).await
}

/// Nodes that know of each other and have that deadline.
pub(crate) async fn fleet_within(url: &str, deadline: Duration) -> Vec<Limiter> {
    let nodes: Vec<Limiter> = (0..NODES).map(|_| node_within(url, deadline)).collect();
    let know_each_other = || {
        let counts = nodes.iter().map(|node| node.status().nodes_known.map_or(0, u32::from));
        counts.into_iter().all(|count| count == 3)
    };
    within(Duration::from_secs(5), "all nodes know of each other", know_each_other).await;
    nodes
}

/// Waits until something holds, and tells how long that took.
pub(crate) async fn within(
    most: Duration,
    what: &str,
    mut holds: impl FnMut() -> bool,
) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < most, "not within {most:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// Waits until the store of every node answers, at most as long as it may take.
pub(crate) async fn exact_again(nodes: &[Limiter]) -> Duration {
    let all_exact = || nodes.iter().all(|node| node.status().failure.is_none());
    within(EXACT_WITHIN, "all nodes are exact", all_exact).await
}

/// Waits until no node asks Redis any more.
pub(crate) async fn all_lost(nodes: &[Limiter]) {
    let all_open = || nodes.iter().all(|node| node.status().open_for.is_some());
    within(Duration::from_secs(3), "every breaker is open", all_open).await;
}

/// One check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When it began, after the load did.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    /// `None` if it was an error.
    pub(crate) allowed: Option<bool>,
    pub(crate) mode: Mode,
}

/// A load that goes on until it is stopped.
pub(crate) struct Load {
    started: Instant,
    stop: Arc<AtomicBool>,
    /// Gives how late the load itself was at most: what the machine adds to every latency.
    running: JoinHandle<Duration>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

impl Load {
    pub(crate) fn start(nodes: &[Limiter]) -> Self {
        let (started, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let (nodes, stopped, noted) = (nodes.to_vec(), Arc::clone(&stop), Arc::clone(&samples));
        let running = tokio::spawn(async move {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let mut checks = JoinSet::new();
            let (mut late, mut tick) = (Duration::ZERO, 0_u64);
            while !stopped.load(Ordering::Relaxed) {
                let due = ticks.tick().await;
                late = late.max(due.elapsed());
                for (node, part) in nodes.iter().zip(PARTS) {
                    let by = |tick: u64| tick * OFFERED * part / PARTS.iter().sum::<u64>() / 100;
                    for _ in by(tick)..by(tick + 1) {
                        let (node, noted) = (node.clone(), Arc::clone(&noted));
                        checks.spawn(async move {
                            let at = started.elapsed();
                            let checked = node.check(&Attributes::new()).await;
                            let took = started.elapsed() - at;
                            let allowed = checked.as_ref().ok().map(|said| said.is_allowed());
                            let mode = checked.map_or(Mode::Closed, |said| said.mode());
                            noted.lock().unwrap().push(Sample { at, took, allowed, mode });
                        });
                    }
                }
                tick += 1;
                while checks.try_join_next().is_some() {}
            }
            checks.join_all().await;
            late
        });
        Self { started, stop, running, samples }
    }

    /// The time since the load began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) async fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let late = self.running.await.unwrap();
        let samples = std::mem::take(&mut *self.samples.lock().unwrap());
        Report { elapsed: self.started.elapsed(), late, spread: SPREAD, samples }
    }
}

/// What came of a load.
pub(crate) struct Report {
    pub(crate) elapsed: Duration,
    pub(crate) late: Duration,
    pub(crate) spread: Duration,
    pub(crate) samples: Vec<Sample>,
}

impl Report {
    pub(crate) fn admitted(&self) -> u64 {
        self.samples.iter().filter(|sample| sample.allowed == Some(true)).count() as u64
    }

    /// What was admitted between two instants of the load.
    pub(crate) fn admitted_between(&self, from: Duration, to: Duration) -> u64 {
        let allowed = self.samples.iter().filter(|sample| sample.allowed == Some(true));
        allowed.filter(|sample| (from..to).contains(&sample.at)).count() as u64
    }

    pub(crate) fn count(&self, mode: Mode) -> usize {
        self.samples.iter().filter(|sample| sample.mode == mode).count()
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.slowest_between(Duration::ZERO, Duration::MAX)
    }

    /// The longest that a check took which began between two instants of the load.
    pub(crate) fn slowest_between(&self, from: Duration, to: Duration) -> Duration {
        let began = self.samples.iter().filter(|sample| (from..to).contains(&sample.at));
        began.map(|sample| sample.took).max().unwrap_or_default()
    }

    /// What has to hold whatever happens to Redis.
    pub(crate) fn assert_good(&self, outages: u64) {
        self.assert_within_bound(outages);
        // The machine may be late when the deadline ends, and again when the check goes on.
        let most = DEADLINE + 2 * self.late + Duration::from_millis(20);
        assert!(self.slowest() <= most, "a check took {:?}, not {most:?}", self.slowest());
    }

    /// The same, where the deadline is a patient one.
    pub(crate) fn assert_within_bound(&self, outages: u64) {
        let errors = self.samples.iter().filter(|sample| sample.allowed.is_none()).count();
        let (admitted, bound) = (self.admitted(), bound_with(self.elapsed, outages, self.spread));
        let without = self::bound(self.elapsed, 0);
        println!(
            "{} checks in {:?}: {admitted} admitted, {without} by rate and burst, bound {bound}; \
             slowest {:?}, machine late by {:?}; {} exact, {} local, {errors} errors",
            self.samples.len(),
            self.elapsed,
            self.slowest(),
            self.late,
            self.count(Mode::Exact),
            self.count(Mode::Local),
        );
        assert_eq!(errors, 0, "an error reached a user");
        assert!(admitted <= bound, "{admitted} admitted, at most {bound} may be");
    }
}
