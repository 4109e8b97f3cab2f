//! Four processes of 256 tasks on one key, by every fast path: nothing beyond what one bucket gains
//! is admitted, to the unit (G1).
//!
//! The test runs its own binary again as the processes, told apart by an environment variable. What
//! a bucket has gained and what is left of it is read from the server, by its own clock.
#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops at the unexpected")]

use std::env;
use std::num::NonZeroU8;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redis::Commands;
use tokio::time::sleep;
use tollgate::{
    Attributes, Cost, HotKeys, LeaseTerms, Limiter, Mode, Quota, RedisStore, Rule, ShardTerms,
};
use tollgate_testkit::RedisServer;

const PROCESSES: usize = 4;
const TASKS: usize = 256;
const RUN: Duration = Duration::from_secs(2);

/// How long a task that was denied does something else, and in a calm one that was admitted.
const PAUSE: Duration = Duration::from_millis(10);
const CALM_PAUSE: Duration = Duration::from_millis(100);

/// In a worker: the URL of the server.
const WORKER: &str = "TOLLGATE_TEST_WORKER_URL";

/// A quota, how its keys are served, and for how long the tasks ask for less than the rate before they
/// ask for all they can get.
#[derive(Clone, Copy)]
struct Load {
    rate: u64,
    burst: u64,
    hot_keys: HotKeys,
    calm: Duration,
}

impl Load {
    fn quota(self) -> Quota {
        Quota::new(format!("{}/s", self.rate).parse().unwrap(), self.burst).unwrap()
    }

    async fn limiter(self, url: &str) -> Limiter {
        let store = RedisStore::builder(url).timeout(Duration::from_secs(10));
        let rule = Rule::new("all", self.quota()).with_hot_keys(self.hot_keys);
        Limiter::builder().rule(rule).store(store.connect().await.unwrap()).build().unwrap()
    }
}

/// A load that asks for all there is from the start.
const SATURATING: Load =
    Load { rate: 2_000, burst: 20_000, hot_keys: HotKeys::Exact, calm: Duration::ZERO };

/// Asks from all tasks, and tells Redis how much was admitted, how much of it by slices, and how many checks
/// were asked of the store.
async fn work(url: String, load: Load) {
    let limiter = load.limiter(&url).await;
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let () = redis.rpush("ready", 1).unwrap();
    let _: (String, u64) = redis.blpop("go", 30.0).unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let (mut admitted, mut by_slice, mut asked) = (0_u64, 0_u64, 0_u64);
                while start.elapsed() < RUN {
                    let verdict = limiter.check(&Attributes::new()).await.unwrap();
                    assert_eq!(verdict.store_failure(), None);
                    asked += u64::from(verdict.asked_store());
                    if verdict.is_allowed() {
                        admitted += 1;
                        by_slice += u64::from(verdict.mode() == Mode::Lease);
                        if start.elapsed() < load.calm {
                            sleep(CALM_PAUSE).await;
                        } else {
                            tokio::task::yield_now().await;
                        }
                    } else {
                        sleep(PAUSE).await;
                    }
                }
                (admitted, by_slice, asked)
            })
        })
        .collect();
    let (mut admitted, mut by_slice, mut asked) = (0, 0, 0);
    for task in tasks {
        let of_task = task.await.unwrap();
        admitted += of_task.0;
        by_slice += of_task.1;
        asked += of_task.2;
    }
    limiter.given_back().await;
    assert_eq!(limiter.leased_units(), 0);
    let () = redis.rpush("admitted", admitted).unwrap();
    let () = redis.rpush("by_slice", by_slice).unwrap();
    let () = redis.rpush("asked", asked).unwrap();
}

/// What the server knows of a bucket: its level, the level of one unit, and since when.
fn bucket(redis: &mut redis::Connection, key: &str) -> (u64, u64, u64) {
    let fields = &["level", "scale", "ts"];
    redis::cmd("HMGET").arg(format!("tollgate:{key}")).arg(fields).query(redis).unwrap()
}

/// What came of a run.
struct Outcome {
    admitted: u64,
    by_slice: u64,
    /// How many checks the store was asked to decide.
    asked: u64,
    /// What all buckets gained and no longer have, in units: exact where it is whole.
    spent: u64,
    /// What is left in all buckets.
    left: u64,
    is_whole: bool,
    /// From when the first bucket was emptied to the last admission.
    elapsed_us: u64,
    /// How many calls the server had.
    calls: u64,
}

/// Runs the test `name` of this binary in all processes on buckets that begin empty. `None` in such a
/// process.
async fn run(name: &str, load: Load, buckets: &[(String, Quota)]) -> Option<Outcome> {
    if let Ok(url) = env::var(WORKER) {
        work(url, load).await;
        return None;
    }
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", name])
                .env(WORKER, server.url())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for _ in 0..PROCESSES {
        let _: (String, u64) = redis.blpop("ready", 30.0).unwrap();
    }
    // Empty from the first instant on, no bucket is ever full while it is asked for all it has, so
    // that no unit it gains is lost to the cap.
    let emptying = load.limiter(&server.url()).await;
    let mut emptied = 0;
    while emptied < buckets.len() {
        // All buckets are equally large.
        let all = Cost::new(buckets[0].1.burst().into());
        emptied +=
            usize::from(emptying.check_n(&Attributes::new(), all).await.unwrap().is_allowed());
    }
    let before: Vec<_> = buckets.iter().map(|(key, _)| bucket(&mut redis, key)).collect();
    let calls_before = calls(&mut redis);
    let () = redis.rpush("go", &[1; PROCESSES]).unwrap();
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success());
    }
    let mut sum = |list: &str| -> u64 {
        let told: Vec<u64> = redis.lrange(list, 0, -1).unwrap();
        assert_eq!(told.len(), PROCESSES);
        told.iter().sum()
    };
    let (admitted, by_slice, asked) = (sum("admitted"), sum("by_slice"), sum("asked"));
    let (mut level, mut left, mut last_ts) = (0, 0, 0);
    let scale = before[0].1;
    for ((key, quota), (level_before, scale_before, ts)) in buckets.iter().zip(&before) {
        let (level_after, scale_after, ts_after) = bucket(&mut redis, key);
        assert_eq!((*scale_before, scale_after, quota.tick_us()), (scale, scale, 1));
        assert_eq!(quota.scale(), scale);
        let held = level_before + (ts_after - ts) * quota.units_per_tick();
        level += held - level_after;
        last_ts = last_ts.max(ts_after);
        assert!(level_after < quota.level_max() / 2, "{key} is never full");
        left += level_after;
    }
    // Shards are emptied in any order, and each gains from then on.
    let first_ts = before.iter().map(|(_, _, ts)| *ts).min().unwrap();
    let elapsed_us = last_ts - first_ts;
    assert!(elapsed_us > 1_500_000, "{elapsed_us} us");
    let outcome = Outcome {
        admitted,
        by_slice,
        asked,
        spent: level / scale,
        left: left / scale,
        is_whole: level.is_multiple_of(scale),
        elapsed_us,
        calls: calls(&mut redis) - calls_before,
    };
    println!(
        "{name}: {admitted} admitted, {by_slice} of them by slices, of {} spent in {elapsed_us} us by {} calls for {asked} checks",
        outcome.spent, outcome.calls
    );
    // The bound of G1, with what was spent before the start.
    assert!(admitted <= load.rate * elapsed_us / 1_000_000 + 1);
    Some(outcome)
}

/// How often the server ran the script.
fn calls(redis: &mut redis::Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query(redis).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_1024_tasks_in_4_processes_admit_exactly_what_one_bucket_gains_in_merged_calls() {
    let name = "g1_1024_tasks_in_4_processes_admit_exactly_what_one_bucket_gains_in_merged_calls";
    let load = Load { hot_keys: HotKeys::Exact, ..SATURATING };
    let buckets = [("default:all".to_owned(), load.quota())];
    let Some(outcome) = run(name, load, &buckets).await else { return };
    assert!(outcome.is_whole);
    assert_eq!(outcome.admitted, outcome.spent);
    // The callers saturated it.
    assert!(outcome.left < load.rate / 2, "{} units left", outcome.left);
    // A denial costs a place in a call as well.
    let (asked, calls) = (outcome.asked, outcome.calls);
    assert!(calls < asked / 2, "few of {asked} checks went together in {calls} calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_1024_tasks_in_4_processes_admit_what_was_debited_for_their_slices() {
    let name = "g1_1024_tasks_in_4_processes_admit_what_was_debited_for_their_slices";
    // Below the rate for a while, since slices are small where nothing is left.
    let calm = RUN / 2;
    let load = Load { rate: 20_000, burst: 200_000, hot_keys: HotKeys::Lease, calm };
    let terms = LeaseTerms::of(&load.quota()).unwrap();
    let buckets = [("default:all".to_owned(), *terms.quota())];
    let Some(outcome) = run(name, load, &buckets).await else { return };
    assert!(outcome.is_whole);
    // What was debited and neither spent nor given back is stranded.
    let stranded = outcome.spent.checked_sub(outcome.admitted).unwrap();
    println!("{stranded} units stranded");
    assert!(stranded <= PROCESSES as u64 * terms.slice_max(), "{stranded} units stranded");
    assert!(outcome.by_slice > 0, "nothing was admitted by a slice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_1024_tasks_in_4_processes_admit_exactly_what_all_shards_gain() {
    let name = "g1_1024_tasks_in_4_processes_admit_exactly_what_all_shards_gain";
    const SHARDS: NonZeroU8 = NonZeroU8::new(8).unwrap();
    let load = Load { hot_keys: HotKeys::Shards(SHARDS), ..SATURATING };
    let terms = ShardTerms::of(&load.quota(), SHARDS).unwrap();
    let key = |shard| format!("default:all:@shard={shard}");
    let buckets: Vec<_> = (0..8).map(|shard| (key(shard), *terms.quota(shard))).collect();
    let Some(outcome) = run(name, load, &buckets).await else { return };
    assert!(outcome.is_whole);
    assert_eq!(outcome.admitted, outcome.spent);
    // The whole would have admitted little more: what is left in the shards.
    assert!(outcome.left < load.rate / 2, "{} units left", outcome.left);
    let whole = load.rate * outcome.elapsed_us / 1_000_000;
    assert!(outcome.admitted * 4 > whole * 3, "{} of {whole}", outcome.admitted);
}
