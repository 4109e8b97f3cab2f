//! A service under all that it carries, for long: its memory has to stay as it is.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::{MissedTickBehavior, interval};
use tollgate_bench::Error;
use tollgate_bench::client::{Client, Transport};
use tollgate_bench::process::Process;
use tollgate_testkit::RedisServer;

use crate::mebibytes;

/// The keys, few enough that some requests are denied.
const KEYS: usize = 10_000;

/// How often memory is looked at.
const LOOKS: u32 = 20;

/// How many of the looks find a service that still grows to its size.
const WARM_UP_LOOKS: u32 = 4;

/// How much memory may grow after that. A byte lost at each request would be more within minutes.
const GROWTH_MAX: u64 = 8 << 20;

/// Soaks a service in memory and one on Redis, each for half of `duration`, and tells whether nothing
/// failed and memory stayed.
pub(crate) fn run(duration: Duration) -> Result<bool, Error> {
    let redis = RedisServer::start()?;
    let redis = redis.url();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut is_kept = true;
    for (store, words) in [("memory", &["limited"][..]), ("Redis", &["limited", &redis])] {
        println!("{store}, {} s:", (duration / 2).as_secs());
        is_kept &= soak(&runtime, &Process::start(words)?, duration / 2)?;
    }
    Ok(is_kept)
}

fn soak(runtime: &Runtime, service: &Process, duration: Duration) -> Result<bool, Error> {
    let http = Client {
        transport: Transport::Http,
        port: service.ports().http,
        connections: 32,
        keys: KEYS,
    };
    let transport = Transport::Grpc { streams: 16 };
    let grpc = Client { transport, port: service.ports().grpc, connections: 4, ..http };
    runtime.block_on(async {
        let loads = [http, grpc].map(|client| tokio::spawn(client.run(duration)));
        let (mut ticks, start) = (interval(duration / LOOKS), Instant::now());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let (mut settled, mut most) = (0, 0);
        for look in 1..LOOKS {
            ticks.tick().await;
            let resident = service.resident_bytes()?;
            println!("  {:>5.0} s  {}", start.elapsed().as_secs_f64(), mebibytes(resident));
            if look == WARM_UP_LOOKS {
                settled = resident;
            }
            if look >= WARM_UP_LOOKS {
                most = most.max(resident);
            }
        }
        for (name, load) in ["http", "grpc"].into_iter().zip(loads) {
            let answers = load.await??;
            println!(
                "  {name}  {:.0}/s, {} allowed, {} denied",
                answers.per_second(),
                answers.allowed,
                answers.denied
            );
        }
        let grown = most.saturating_sub(settled);
        let is_kept = grown <= GROWTH_MAX;
        println!(
            "  grown by {} after the first {} s, at most {}{}\n",
            mebibytes(grown),
            (duration * WARM_UP_LOOKS / LOOKS).as_secs(),
            mebibytes(GROWTH_MAX),
            if is_kept { "" } else { " MISSED" }
        );
        Ok(is_kept)
    })
}
