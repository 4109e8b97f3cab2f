//! Leases when processes are killed, connections go silent and clocks step: nothing beyond what was
//! debited is admitted, and what is stranded is at most a slice on each node (G1).
//!
//! One test runs its own binary again as the nodes, told apart by an environment variable.
#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the unexpected")]

use std::env;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::Commands;
use tokio::time::sleep;
use tollgate::{
    Attributes, Clock, Cost, FailurePolicy, HotKeys, LeaseTerms, Limiter, ManualClock, Mode, Quota,
    RedisStore, Rule, SystemClock,
};
use tollgate_testkit::RedisServer;
use tollgate_testkit::fault_proxy::{Direction, Fault, FaultProxy};

const NODES: u64 = 3;

/// The tasks of a node, and how long each pauses after a check: together they ask for less than the
/// rate, so that there is something to lease.
const TASKS: usize = 64;
const PAUSE: Duration = Duration::from_millis(15);

const RUN: Duration = Duration::from_millis(2_400);

/// In a worker: the URL of the server.
const WORKER: &str = "TOLLGATE_TEST_NODE_URL";

/// What a worker writes for an admission by a slice, and for one by the store.
const BY_SLICE: u8 = 1;
const BY_STORE: u8 = 2;

fn quota() -> Quota {
    Quota::new("20000/s".parse().unwrap(), 200_000).unwrap()
}

fn terms() -> LeaseTerms {
    LeaseTerms::of(&quota()).unwrap()
}

/// A node that admits nothing on its own account when the store is away, but for what it has leased.
async fn node(url: &str, clock: impl Clock) -> Limiter {
    let rule = Rule::new("all", quota()).with_hot_keys(HotKeys::Lease);
    let store = RedisStore::builder(url).timeout(Duration::from_millis(500));
    Limiter::builder()
        .rule(rule.with_failure_policy(FailurePolicy::Closed))
        .store(store.connect().await.unwrap())
        .clock(clock)
        .build()
        .unwrap()
}

/// Asks from all tasks until the run is over, and tells of each check how it was admitted, if it was.
async fn ask(limiter: &Limiter, told: impl Fn(Option<Mode>) + Clone + Send + 'static) {
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (limiter, told) = (limiter.clone(), told.clone());
            tokio::spawn(async move {
                while start.elapsed() < RUN {
                    let verdict = limiter.check(&Attributes::new()).await;
                    match verdict {
                        Ok(verdict) if verdict.is_allowed() => told(Some(verdict.mode())),
                        Ok(_) => {}
                        Err(_) => told(None),
                    }
                    sleep(PAUSE).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    limiter.given_back().await;
}

/// The bucket on the server, which begins empty.
struct Bucket {
    redis: redis::Connection,
    first_ts: u64,
}

impl Bucket {
    async fn emptied(server: &RedisServer) -> Self {
        let limiter = node(&server.url(), SystemClock).await;
        let all = Cost::new(terms().quota().burst().into());
        assert!(limiter.check_n(&Attributes::new(), all).await.unwrap().is_allowed());
        let redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut bucket = Self { redis, first_ts: 0 };
        let (level, ts) = bucket.state();
        assert_eq!(level, 0);
        bucket.first_ts = ts;
        bucket
    }

    fn state(&mut self) -> (u64, u64) {
        let fields = &["level", "ts"];
        redis::cmd("HMGET").arg("tollgate:default:all").arg(fields).query(&mut self.redis).unwrap()
    }

    /// The units that it gained and no longer has.
    fn spent(&mut self) -> u64 {
        let (level, ts) = self.state();
        let quota = *terms().quota();
        assert!(level < quota.level_max() / 2, "it is never full");
        ((ts - self.first_ts) * quota.units_per_tick() - level) / quota.scale()
    }
}

/// Whether all that was admitted was debited before, and at most so much that was debited is lost.
fn assert_stranded(admitted: u64, by_slice: u64, spent: u64, most: u64) {
    println!("{admitted} admitted, {by_slice} of them by slices, of {spent} spent");
    let stranded = spent.checked_sub(admitted).unwrap();
    assert!(stranded <= most, "{stranded} stranded");
    assert!(by_slice * 4 > admitted, "{by_slice} of {admitted} by slices");
}

/// Counts what a worker has admitted, also after its end: what it wrote stays in the pipe.
fn count(worker: &mut Child) -> JoinHandle<(u64, u64)> {
    let mut told = worker.stdout.take().unwrap();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        told.read_to_end(&mut bytes).unwrap();
        let of = |kind| bytes.iter().filter(|byte| **byte == kind).count() as u64;
        (of(BY_SLICE), of(BY_STORE))
    })
}

// One thread, so that a killed process has admitted at most one unit that it has not told of.
#[tokio::test]
async fn g1_a_node_killed_with_its_slices_takes_at_most_one_along_and_nothing_is_admitted_twice() {
    let name =
        "g1_a_node_killed_with_its_slices_takes_at_most_one_along_and_nothing_is_admitted_twice";
    if let Ok(url) = env::var(WORKER) {
        let limiter = node(&url, SystemClock).await;
        let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
        let () = redis.rpush("ready", 1).unwrap();
        let _: (String, u64) = redis.blpop("go", 30.0).unwrap();
        let told = |mode| {
            let kind = if mode == Some(Mode::Lease) { BY_SLICE } else { BY_STORE };
            let mut out = std::io::stdout().lock();
            out.write_all(&[kind]).and_then(|()| out.flush()).unwrap();
        };
        return ask(&limiter, told).await;
    }
    let server = RedisServer::start().unwrap();
    let mut bucket = Bucket::emptied(&server).await;
    let mut workers: Vec<_> = (0..NODES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", name])
                .env(WORKER, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let counts: Vec<_> = workers.iter_mut().map(count).collect();
    for _ in 0..NODES {
        let _: (String, u64) = bucket.redis.blpop("ready", 30.0).unwrap();
    }
    let () = bucket.redis.rpush("go", &[1; NODES as usize]).unwrap();
    sleep(RUN / 2).await;
    workers[0].kill().unwrap();
    assert!(!workers[0].wait().unwrap().success());
    for survivor in &mut workers[1..] {
        assert!(survivor.wait().unwrap().success());
    }
    let counts: Vec<_> = counts.into_iter().map(|count| count.join().unwrap()).collect();
    let by_slice: u64 = counts.iter().map(|(by_slice, _)| by_slice).sum();
    let by_store: u64 = counts.iter().map(|(_, by_store)| by_store).sum();
    assert!(counts.iter().all(|(by_slice, _)| *by_slice > 0), "{counts:?}");
    assert_stranded(by_slice + by_store, by_slice, bucket.spent(), terms().slice_max());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_partition_and_steps_of_a_clock_let_no_slice_be_spent_twice() {
    let server = RedisServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut bucket = Bucket::emptied(&server).await;
    let clock = ManualClock::new();
    clock.set(SystemClock.now());
    let nodes = [
        node(&server.url(), SystemClock).await,
        node(&proxy.url(), SystemClock).await,
        node(&server.url(), clock.clone()).await,
    ];
    let counts: Arc<[[AtomicU64; 3]; NODES as usize]> = Arc::default();
    let asking: Vec<_> = nodes
        .iter()
        .cloned()
        .enumerate()
        .map(|(index, node)| {
            let counts = Arc::clone(&counts);
            tokio::spawn(async move {
                let told = move |mode| {
                    let kind = match mode {
                        Some(Mode::Lease) => 0,
                        Some(_) => 1,
                        None => 2,
                    };
                    counts[index][kind].fetch_add(1, Ordering::SeqCst);
                };
                ask(&node, told).await;
            })
        })
        .collect();
    let step = Duration::from_millis(100);
    let hour = Duration::from_secs(3_600);
    for number in 0..20 {
        sleep(step).await;
        let now = SystemClock.now();
        clock.set(if number % 2 == 0 {
            now.saturating_add(hour)
        } else {
            now.saturating_sub(hour)
        });
        match number {
            // The middle of the run: requests vanish, and later only answers do.
            6 => proxy.set_both(Fault::BlackHole),
            // No network goes on with a stream of which a part is lost.
            9 | 15 => {
                proxy.reset();
                proxy.set_both(Fault::None);
            }
            12 => proxy.set(Direction::ToClient, Fault::BlackHole),
            _ => {}
        }
    }
    for node in asking {
        node.await.unwrap();
    }
    let sum =
        |kind: usize| counts.iter().map(|node| node[kind].load(Ordering::SeqCst)).sum::<u64>();
    let (by_slice, by_store, unanswered) = (sum(0), sum(1), sum(2));
    let of_node = |index: usize| counts[index][0].load(Ordering::SeqCst);
    assert!((0..3).all(|index| of_node(index) > 0), "{counts:?}");
    let status = nodes[1].store().as_redis().unwrap().status();
    assert!(status.reconnects > 0, "the connection was lost: {status:?}");
    // A debit whose answer was lost is stranded like a slice, a check whose answer was lost too.
    let most = NODES * terms().slice_max() + unanswered;
    assert_stranded(by_slice + by_store, by_slice, bucket.spent(), most);
}
