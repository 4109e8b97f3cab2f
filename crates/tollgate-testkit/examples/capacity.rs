//! Measures what Redis needs for so many keys and so many checks, for the tables in
//! `docs/operating.md`.
//!
//! `cargo run --release -p tollgate-testkit --example capacity` needs a `redis-server`.

#![allow(clippy::print_stdout, reason = "it talks to its user")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_core::{Charge, Cost, Operation, Quota, Store, Timestamp};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

/// How many buckets are stored at once.
const KEYS: [u32; 3] = [10_000, 100_000, 1_000_000];

/// Checks per second, each row for so long.
const RATES: [u64; 4] = [1_000, 5_000, 10_000, 20_000];
const LENGTH: Duration = Duration::from_secs(5);

const TICKS_PER_SECOND: u64 = 1_000;

fn key(number: u32) -> String {
    format!("default:login-per-ip:ip=203.0.{}.{}", number >> 8, number & 255)
}

/// A number in the text that INFO replies.
fn info(server: &RedisServer, section: &str, field: &str) -> Result<f64, Box<dyn Error>> {
    let reply = server.command(&["INFO", section])?;
    let line = reply.text().unwrap_or_default().lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|line| line.strip_prefix(':')).ok_or("INFO has no such field")?;
    Ok(value.trim().parse()?)
}

fn cpu_seconds(server: &RedisServer) -> Result<f64, Box<dyn Error>> {
    Ok(info(server, "cpu", "used_cpu_user")? + info(server, "cpu", "used_cpu_sys")?)
}

async fn store(server: &RedisServer) -> Result<Arc<RedisStore>, Box<dyn Error>> {
    let builder = RedisStore::builder(server.url()).timeout(Duration::from_secs(5));
    Ok(Arc::new(builder.time_source(TimeSource::Server).connect().await?))
}

/// The memory of a server with so many buckets, each of which has spent a unit.
async fn memory(keys: u32) -> Result<f64, Box<dyn Error>> {
    let server = RedisServer::start()?;
    let store = store(&server).await?;
    let empty = info(&server, "memory", "used_memory")?;
    let quota = Quota::new("100/day".parse()?, 100)?;
    let mut filling = JoinSet::new();
    for number in 0..keys {
        let store = Arc::clone(&store);
        filling.spawn(async move {
            let key = key(number);
            let charge = [Charge::new(&key, &quota, Cost::ONE)];
            store.apply(Operation::Spend, &charge, Timestamp::EPOCH).await.is_ok()
        });
        while filling.len() >= 512 {
            filling.join_next().await;
        }
    }
    filling.join_all().await;
    Ok(info(&server, "memory", "used_memory")? - empty)
}

/// Checks at a rate on 1,000 keys: how many were answered in a second, and the part of a core that
/// Redis needed, in percent.
async fn load(per_second: u64) -> Result<(u64, f64), Box<dyn Error>> {
    let server = RedisServer::start()?;
    let store = store(&server).await?;
    let quota = Quota::new("100/s".parse()?, 100)?;
    let answered = Arc::new(AtomicU64::new(0));
    let mut ticks = interval(Duration::from_secs(1) / 1_000);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (start, before, mut checks) = (Instant::now(), cpu_seconds(&server)?, JoinSet::new());
    for tick in 0.. {
        ticks.tick().await;
        if start.elapsed() >= LENGTH {
            break;
        }
        let by = |tick: u64| tick * per_second / TICKS_PER_SECOND;
        for number in by(tick)..by(tick + 1) {
            let (store, answered) = (Arc::clone(&store), Arc::clone(&answered));
            checks.spawn(async move {
                let key = key(u32::try_from(number % 1_000).unwrap_or_default());
                let charge = [Charge::new(&key, &quota, Cost::ONE)];
                let applied = store.apply(Operation::Spend, &charge, Timestamp::EPOCH).await;
                answered.fetch_add(u64::from(applied.is_ok()), Ordering::Relaxed);
            });
        }
        while checks.try_join_next().is_some() {}
    }
    checks.join_all().await;
    let seconds = start.elapsed().as_secs_f64();
    let percent = (cpu_seconds(&server)? - before) / seconds * 100.0;
    Ok((answered.load(Ordering::Relaxed) / LENGTH.as_secs(), percent))
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tables())
}

async fn tables() -> Result<(), Box<dyn Error>> {
    println!("| keys | Redis memory | per key |\n| ---: | ---: | ---: |");
    for keys in KEYS {
        let bytes = memory(keys).await?;
        println!("| {keys} | {:.1} MB | {:.0} B |", bytes / 1e6, bytes / f64::from(keys));
    }
    println!("\n| checks/s | answered/s | connections | Redis CPU, of a core |");
    println!("| ---: | ---: | ---: | ---: |");
    for rate in RATES {
        let (answered, percent) = load(rate).await?;
        println!("| {rate} | {answered} | 1 | {percent:.0}% |");
    }
    Ok(())
}
