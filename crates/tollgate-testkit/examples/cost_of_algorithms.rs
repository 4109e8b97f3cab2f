//! Measures what each algorithm costs, for the tables in `docs/algorithms.md`.
//!
//! `cargo run --release -p tollgate-testkit --example cost_of_algorithms` needs a `redis-server`.
//!
//! - Memory: the memory store tells its bytes at 10,000 keys, without what the allocator adds; Redis
//!   the `MEMORY USAGE` of all keys that it has for one bucket.
//! - Time: of one thread on one key of the memory store, the best of ten means of 20,000 checks.

#![allow(clippy::print_stdout, reason = "it talks to its user")]

use std::error::Error;
use std::time::{Duration, Instant};

use tollgate_core::{Charge, Cost, Operation, Quota, Rate, Store, StoreError, Ticket, Timestamp};
use tollgate_memory::MemoryStore;
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

/// How many buckets the memory store holds when it is asked for its bytes.
const KEYS: u32 = 10_000;

/// Over how many checks a time is a mean, and how many means there are.
const CHECKS: u32 = 20_000;
const RUNS: u32 = 10;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A quota of 100, and how many requests spend from it at what intervals.
struct Row {
    label: &'static str,
    quota: Quota,
    spends: u32,
    every: Duration,
}

fn rows() -> Result<[Row; 8], Box<dyn Error>> {
    let rate = Rate::per_minute(100)?;
    let row = |label, quota, spends, every_ms| Row {
        label,
        quota,
        spends,
        every: Duration::from_millis(every_ms),
    };
    let window = Quota::sliding_window(rate, 20.try_into()?)?;
    let log = Quota::sliding_log(rate)?;
    let slots = Quota::concurrency(100, Duration::from_secs(60))?;
    Ok([
        row("token bucket, leaky bucket", Quota::new(rate, 100)?, 1, 0),
        row("fixed window", Quota::fixed_window(rate)?, 1, 0),
        row("sliding window, 1 cell", window, 1, 0),
        row("sliding window, 21 cells", window, 21, 3_000),
        row("sliding log, 1 request", log, 1, 0),
        row("sliding log, 100 requests", log, 100, 10),
        row("concurrency, 1 lease", slots, 1, 0),
        row("concurrency, 100 leases", slots, 100, 10),
    ])
}

fn ticket(number: u32) -> Ticket {
    Ticket::new(u128::from(number))
}

/// Brings a bucket into the state of a row.
async fn fill<S: Store>(store: &S, key: &str, row: &Row) -> Result<(), StoreError> {
    for spend in 0..row.spends {
        let charge = Charge::new(key, &row.quota, Cost::ONE).with_ticket(ticket(spend));
        let now = START.saturating_add(row.every * spend);
        store.apply(Operation::Spend, &[charge], now).await?;
    }
    Ok(())
}

/// The bytes of one of many buckets in the memory store, its key of 35 to 38 bytes included.
async fn bytes_in_memory(row: &Row) -> Result<usize, StoreError> {
    let store = MemoryStore::new();
    let empty = store.bytes();
    for key in 0..KEYS {
        fill(&store, &format!("default:login-per-ip:ip=203.0.113.{key}"), row).await?;
    }
    Ok((store.bytes() - empty) / KEYS as usize)
}

/// The bytes of all keys that Redis has for one bucket.
async fn bytes_in_redis(server: &RedisServer, row: &Row) -> Result<i64, Box<dyn Error>> {
    server.command(&["FLUSHALL"])?;
    let store = RedisStore::builder(server.url())
        .time_source(TimeSource::Client)
        .timeout(Duration::from_secs(10))
        .connect()
        .await?;
    fill(&store, "default:login-per-ip:ip=203.0.113.1234", row).await?;
    let keys = server.command(&["KEYS", "*"])?;
    let mut bytes = 0;
    for key in keys.items().unwrap_or_default() {
        let key = key.text().unwrap_or_default();
        let usage = server.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"])?;
        bytes += usage.integer().unwrap_or_default();
    }
    Ok(bytes)
}

/// The times of an allowed and of a denied check in the state of a row.
fn nanos(row: &Row) -> Result<(u128, u128), StoreError> {
    let store = MemoryStore::new();
    let is_allowed = |number: u32, cost, now| {
        let charge = Charge::new("key", &row.quota, Cost::new(cost)).with_ticket(ticket(number));
        store.decide_one(Operation::Spend, &charge, now).map(|decision| decision.is_allow())
    };
    // As many requests count at once as in the row, since each counts for a minute or so.
    let every = Duration::from_secs(63) / row.spends;
    let mut number = 0;
    let allowed = best(|| {
        for _ in 0..CHECKS {
            number += 1;
            let now = START.saturating_add(every * number);
            assert!(is_allowed(number, 1, now)?, "{}: check {number} was denied", row.label);
        }
        Ok(())
    })?;
    let now = START.saturating_add(every * number);
    let denied = best(|| {
        for _ in 0..CHECKS {
            assert!(!is_allowed(0, 100, now)?, "{}: a check was allowed", row.label);
        }
        Ok(())
    })?;
    Ok((allowed, denied))
}

/// The best mean in nanoseconds, which is the one that others disturbed least.
fn best(mut run: impl FnMut() -> Result<(), StoreError>) -> Result<u128, StoreError> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let begun = Instant::now();
        run()?;
        best = best.min(begun.elapsed());
    }
    Ok(best.as_nanos() / u128::from(CHECKS))
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = RedisServer::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("| state | memory store | Redis | allowed | denied |");
    println!("| --- | --- | --- | --- | --- |");
    for row in rows()? {
        let memory = runtime.block_on(bytes_in_memory(&row))?;
        let redis = runtime.block_on(bytes_in_redis(&server, &row))?;
        let (allowed, denied) = nanos(&row)?;
        println!("| {} | {memory} B | {redis} B | {allowed} ns | {denied} ns |", row.label);
    }
    Ok(())
}
