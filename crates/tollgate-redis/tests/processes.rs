//! Several processes on one key (G1).
//!
//! The test runs its own binary again as the processes, told apart by an environment variable.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Commands;
use tollgate_core::{Charge, Cost, Operation, Quota, Store, Timestamp};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisServer;

const PROCESSES: usize = 4;
const TASKS: usize = 8;
const RUN: Duration = Duration::from_secs(2);

const RATE: u64 = 500;
const BURST: u64 = 100;

/// In a worker: the URL of the server.
const WORKER: &str = "TOLLGATE_TEST_WORKER_URL";

const NAME: &str = "g1_32_tasks_in_4_processes_admit_exactly_what_one_bucket_gains";

fn quota() -> Quota {
    Quota::new(format!("{RATE}/s").parse().unwrap(), BURST).unwrap()
}

async fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn is_admitted(store: &RedisStore, cost: u64) -> bool {
    let quota = quota();
    let charges = [Charge::new("key", &quota, Cost::new(cost))];
    store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await.unwrap()[0].is_allow()
}

/// Asks as fast as it can from all tasks, and tells Redis how much was admitted.
async fn work(url: String) {
    let store = Arc::new(store(&url).await);
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let () = redis.rpush("ready", 1).unwrap();
    let _: (String, u64) = redis.blpop("go", 30.0).unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut admitted = 0_u64;
                while start.elapsed() < RUN {
                    admitted += u64::from(is_admitted(&store, 1).await);
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    let () = redis.rpush("admitted", admitted).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_32_tasks_in_4_processes_admit_exactly_what_one_bucket_gains() {
    if let Ok(url) = env::var(WORKER) {
        return work(url).await;
    }
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", NAME])
                .env(WORKER, server.url())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for _ in 0..PROCESSES {
        let _: (String, u64) = redis.blpop("ready", 30.0).unwrap();
    }
    // Empty from the first instant on, the bucket is never full while it is asked for all it has, so
    // that no unit it gains is lost to the cap.
    let store = store(&server.url()).await;
    assert!(is_admitted(&store, BURST).await);
    let bucket = |redis: &mut redis::Connection| -> (u64, u64, u64) {
        redis::cmd("HMGET").arg("tollgate:key").arg(&["level", "scale", "ts"]).query(redis).unwrap()
    };
    let (level_before, scale, first_ts) = bucket(&mut redis);
    let () = redis.rpush("go", &[1; PROCESSES]).unwrap();
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success());
    }
    let admitted: Vec<u64> = redis.lrange("admitted", 0, -1).unwrap();
    let (level_after, _, last_ts) = bucket(&mut redis);

    assert_eq!(admitted.len(), PROCESSES);
    assert!(admitted.iter().all(|admitted| *admitted > 0), "{admitted:?}");
    let admitted: u64 = admitted.iter().sum();
    let quota = quota();
    assert_eq!((level_before, scale, quota.tick_us()), (0, quota.scale(), 1));
    // `last_ts` is the server's time at the last admission: not one unit more or less than the
    // bucket gained by then and no longer has.
    let elapsed_us = last_ts - first_ts;
    let gained = elapsed_us * quota.units_per_tick();
    assert_eq!(admitted * scale, gained - level_after, "in {elapsed_us} us");
    // The bound of G1, the burst that this process spent included.
    assert!(BURST + admitted <= BURST + RATE * elapsed_us / 1_000_000);
    // The callers saturated it: what they left is less than a tenth of a second's worth.
    assert!(level_after < RATE / 10 * scale, "{level_after} of scale {scale} left");
    assert!(elapsed_us > 1_500_000, "{elapsed_us} us");
}
