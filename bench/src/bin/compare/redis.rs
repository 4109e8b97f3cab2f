//! The library on Redis, beside one script call per check through redis-rs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};
use tollgate::{Attributes, Limiter, Quota, RedisStore, Rule};
use tollgate_testkit::RedisServer;

use crate::keys::{Random, key};
use crate::row::{Error, Row, Run, Target, Unit};

const ROUNDS: usize = 3;

const ROUND: Duration = Duration::from_millis(1_500);

const RANDOM_KEYS: usize = 100_000;

/// A rate that denies nothing here, and one at which no bucket is full again before the end.
const FAST: &str = "1000000/s";
const SLOW: &str = "1/day";

/// A token bucket as most would write it: the same commands, and nothing of what makes it exact.
const PLAIN_BUCKET: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.call('HMGET', KEYS[1], 'level', 'ts')
local level, ts = tonumber(state[1]), tonumber(state[2])
local burst, per_unit = tonumber(ARGV[1]), tonumber(ARGV[2])
if not level then level, ts = burst * per_unit, now end
level = math.min(burst * per_unit, level + now - ts)
local allowed = 0
if level >= per_unit then level = level - per_unit; allowed = 1 end
redis.call('HSET', KEYS[1], 'level', level, 'ts', now)
redis.call('PEXPIRE', KEYS[1], 60000)
return {allowed, math.floor(level / per_unit), per_unit - level}
";

/// Everything that the rows share. It lives as long as they do.
struct Bench {
    server: RedisServer,
    runtime: Runtime,
}

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bench = Arc::new(Bench { server: RedisServer::start()?, runtime });
    let loads = [
        (RANDOM_KEYS, 256, "100,000 random keys, 256 tasks", 1.4),
        (1, 1_024, "one hot key, 1,024 tasks", 8.0),
    ];
    let mut rows = Vec::new();
    for (keys, tasks, what, least) in loads {
        rows.push(Row {
            what: what.to_owned(),
            unit: Unit::PerSecond,
            rounds: ROUNDS,
            ours: throughput(&bench, ours(&bench, FAST)?, keys, tasks),
            other: Some(("EVALSHA", throughput(&bench, other(&bench)?, keys, tasks))),
            target: Target::Ratio(least),
        });
    }
    rows.push(Row {
        what: "one check at a time, p50".to_owned(),
        unit: Unit::Micros,
        rounds: ROUNDS,
        ours: latency(&bench, ours(&bench, FAST)?),
        other: Some(("EVALSHA", latency(&bench, other(&bench)?))),
        target: Target::Ratio(1.0 / 1.15),
    });
    let (ours, other) = (ours(&bench, SLOW)?, Arc::clone(&bench));
    rows.push(Row {
        what: "1,000,000 token buckets with 24-byte keys".to_owned(),
        unit: Unit::BytesPerKey,
        rounds: 0,
        ours: memory(&bench, move |bench| fill(bench, &ours)),
        other: Some(("SET", memory(&other, fill_with_strings))),
        target: Target::Ratio(0.5),
    });
    Ok(rows)
}

/// Checks keys.
trait Check: Clone + Send + Sync + 'static {
    fn check(&self, key: &str) -> impl Future<Output = Result<(), Error>> + Send;
}

#[derive(Clone)]
struct Ours(Limiter);

#[derive(Clone)]
struct Other {
    connection: MultiplexedConnection,
    script: Arc<Script>,
}

impl Check for Ours {
    async fn check(&self, key: &str) -> Result<(), Error> {
        let verdict = self.0.check(&Attributes::from([("ip", key)])).await?;
        if verdict.is_allowed() { Ok(()) } else { Err("denied".into()) }
    }
}

impl Check for Other {
    async fn check(&self, key: &str) -> Result<(), Error> {
        let mut connection = self.connection.clone();
        let mut call = self.script.key(key);
        call.arg(1_000_000_000).arg(1_000);
        let (allowed, _, _): (i64, i64, i64) = call.invoke_async(&mut connection).await?;
        if allowed == 1 { Ok(()) } else { Err("denied".into()) }
    }
}

fn ours(bench: &Bench, rate: &str) -> Result<Ours, Error> {
    let url = bench.server.url();
    let store = bench
        .runtime
        .block_on(RedisStore::builder(url).timeout(Duration::from_secs(5)).connect())?;
    let quota = Quota::new(rate.parse()?, 1_000_000)?;
    let rule = Rule::new("api", quota).with_key(["ip"]);
    Ok(Ours(Limiter::builder().store(store).rule(rule).build()?))
}

fn other(bench: &Bench) -> Result<Other, Error> {
    let client = redis::Client::open(bench.server.url())?;
    let connection: MultiplexedConnection =
        bench.runtime.block_on(client.get_multiplexed_async_connection())?;
    Ok(Other { connection, script: Arc::new(Script::new(PLAIN_BUCKET)) })
}

/// Measures checks a second, by so many tasks of which each waits for its answer.
fn throughput(bench: &Arc<Bench>, check: impl Check, keys: usize, tasks: usize) -> Run {
    let bench = Arc::clone(bench);
    // Written beforehand: what that costs is not what is measured.
    let keys: Arc<[String]> = (0..keys).map(key).collect();
    Box::new(move || {
        bench.runtime.block_on(async {
            let (done, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let running: Vec<_> = (0..tasks)
                .map(|task| {
                    let (check, done, is_over) = (check.clone(), done.clone(), is_over.clone());
                    let keys = Arc::clone(&keys);
                    tokio::spawn(async move {
                        let mut random = Random::new(0x9E37_79B9_7F4A_7C15 ^ (task as u64) << 20);
                        while !is_over.load(Ordering::Relaxed) {
                            check.check(&keys[random.below(keys.len())]).await?;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok::<(), Error>(())
                    })
                })
                .collect();
            tokio::time::sleep(ROUND / 5).await;
            let (start, before) = (Instant::now(), done.load(Ordering::Relaxed));
            tokio::time::sleep(ROUND).await;
            let count = done.load(Ordering::Relaxed) - before;
            let elapsed = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            for task in running {
                task.await??;
            }
            Ok(count as f64 / elapsed.as_secs_f64())
        })
    })
}

/// Measures the median time of a check when nothing else runs.
fn latency(bench: &Arc<Bench>, check: impl Check) -> Run {
    let bench = Arc::clone(bench);
    let keys: Vec<String> = (0..1_000).map(key).collect();
    Box::new(move || {
        let run = async {
            let mut taken = Vec::new();
            for number in 0..4_000 {
                let start = Instant::now();
                check.check(&keys[number % 1_000]).await?;
                taken.push(start.elapsed());
            }
            taken.sort_unstable();
            Ok(taken[taken.len() / 2].as_nanos() as f64 / 1_000.0)
        };
        bench.runtime.block_on(run)
    })
}

/// Measures what a million keys add to the memory of an empty server.
fn memory(bench: &Arc<Bench>, mut fill: impl FnMut(&Bench) -> Result<(), Error> + 'static) -> Run {
    let bench = Arc::clone(bench);
    Box::new(move || {
        bench.server.command(&["FLUSHALL"])?;
        let before = used_memory(&bench.server)?;
        fill(&bench)?;
        Ok((used_memory(&bench.server)? - before) / KEYS_STORED as f64)
    })
}

const KEYS_STORED: usize = 1_000_000;

/// The library writes keys such as `tollgate:default:api:ip=000000001`; those of the others are as long.
fn fill(bench: &Bench, check: &impl Check) -> Result<(), Error> {
    bench.runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let check = check.clone();
                tokio::spawn(async move {
                    for number in (task..KEYS_STORED).step_by(64) {
                        check.check(&format!("{number:07}")).await?;
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

/// One string a key with a TTL, as redis-cell stores a bucket: the time at which it is full.
fn fill_with_strings(bench: &Bench) -> Result<(), Error> {
    let mut connection = redis::Client::open(bench.server.url())?.get_connection()?;
    for from in (0..KEYS_STORED).step_by(10_000) {
        let mut pipeline = redis::pipe();
        for number in from..from + 10_000 {
            let key = format!("tollgate:default:api:ip={number:07}");
            pipeline
                .cmd("SET")
                .arg(key)
                .arg(1_700_000_000_000_000_u64)
                .arg("PX")
                .arg(600_000)
                .ignore();
        }
        pipeline.exec(&mut connection)?;
    }
    Ok(())
}

fn used_memory(server: &RedisServer) -> Result<f64, Error> {
    let info = server.command(&["INFO", "memory"])?;
    let mut lines = info.text().unwrap_or_default().lines();
    let used = lines.find_map(|line| line.strip_prefix("used_memory:")).ok_or("no used_memory")?;
    Ok(used.trim().parse()?)
}
