//! The clock that all nodes go by makes a step.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Clock, Limiter, Mode, RedisStore, SystemClock, TimeSource, Timestamp};
use tollgate_testkit::RedisServer;

use crate::fleet::{BURST, Load, NODES, PATIENT, RATE, bound, rule};

/// The system's clock, off by some seconds.
#[derive(Clone, Default)]
struct SteppingClock(Arc<AtomicI64>);

impl SteppingClock {
    fn step(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        let offset = self.0.load(Ordering::SeqCst);
        let by = Duration::from_secs(offset.unsigned_abs());
        match offset < 0 {
            true => SystemClock.now().saturating_sub(by),
            false => SystemClock.now().saturating_add(by),
        }
    }
}

fn nodes(server: &RedisServer, clock: &SteppingClock) -> Vec<Limiter> {
    let node = || {
        let store = RedisStore::builder(server.url())
            .timeout(PATIENT)
            .time_source(TimeSource::Client)
            .connect_lazily()
            .unwrap();
        Limiter::builder().rule(rule()).store(store).clock(clock.clone()).build().unwrap()
    };
    (0..NODES).map(|_| node()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_clock_that_goes_back_five_seconds_stalls_nothing() {
    let (server, clock) = (RedisServer::start().unwrap(), SteppingClock::default());
    let nodes = nodes(&server, &clock);
    let load = Load::start(&nodes);
    sleep(Duration::from_secs(1)).await;
    clock.step(-5);
    let stepped_at = load.elapsed();
    sleep(Duration::from_secs(2)).await;
    let report = load.stop().await;
    // A call that read the clock before the step may be decided after one that read it later: to the
    // bucket that is five seconds ahead, and fills it once.
    let most = bound(report.elapsed, 0) + BURST;
    assert!(report.admitted() <= most, "{} admitted of {most}", report.admitted());
    let after = report.admitted_between(stepped_at, stepped_at + Duration::from_secs(2));
    assert!(after >= 2 * RATE * 9 / 10, "{after} admitted in the two seconds after the step");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_clock_that_goes_forward_an_hour_gives_one_burst() {
    let (server, clock) = (RedisServer::start().unwrap(), SteppingClock::default());
    let nodes = nodes(&server, &clock);
    let load = Load::start(&nodes);
    sleep(Duration::from_secs(1)).await;
    clock.step(3_600);
    sleep(Duration::from_secs(1)).await;
    let report = load.stop().await;
    assert_eq!(report.count(Mode::Exact), report.samples.len());
    let most = bound(report.elapsed, 0) + BURST;
    assert!(report.admitted() <= most, "{} admitted of {most}", report.admitted());
    assert!(report.admitted() >= most - BURST - RATE / 5, "{}", report.admitted());
}
