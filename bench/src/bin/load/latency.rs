//! What a check on Redis adds to the latency of an endpoint under half of what it carries.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Builder;
use tollgate_bench::Error;
use tollgate_bench::client::{Client, Transport};
use tollgate_bench::process::Process;
use tollgate_testkit::RedisServer;

use crate::open::{OpenLoop, Report};

const ROUNDS: usize = 3;

const CONNECTIONS: usize = 64;

/// Long enough to tell how much the endpoint carries.
const WARM_UP: Duration = Duration::from_secs(3);

/// How much later an answer may come, in microseconds.
const ADDED_MAX_US: i64 = 1_000;

/// Takes turns with both for so long each, and tells whether the p99 is less than 1 ms apart.
pub(crate) fn run(tollgate: &Path, duration: Duration) -> Result<bool, Error> {
    let redis = RedisServer::start()?;
    let with = Process::start(&["endpoint", &redis.url()])?;
    let without = Process::start(&["endpoint"])?;
    let client = |service: &Process| Client {
        transport: Transport::Http,
        port: service.ports().http,
        connections: CONNECTIONS,
        keys: 100_000,
    };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(client(&without).run(WARM_UP))?;
    let rate = (runtime.block_on(client(&with).run(WARM_UP))?.per_second() / 2.0) as u64;
    let open = |service: &Process| -> Result<Report, Error> {
        let url = format!("http://127.0.0.1:{}", service.ports().http);
        let report = OpenLoop::start(tollgate, &url, rate, CONNECTIONS, duration)?.ended()?;
        if report.errors > 0 {
            return Err(format!("{} requests failed", report.errors).into());
        }
        Ok(report)
    };
    println!("| {rate}/s, strict on Redis | with | without | added |\n| --- | --- | --- | --- |");
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let [with, without] = if round % 2 == 0 {
            let with = open(&with)?;
            [with, open(&without)?]
        } else {
            let without = open(&without)?;
            [open(&with)?, without]
        };
        p50.push((with.latency_us.p50, without.latency_us.p50));
        p99.push((with.latency_us.p99, without.latency_us.p99));
    }
    let added = |(with, without): &(u64, u64)| *with as i64 - *without as i64;
    let mut is_kept = true;
    for (name, mut rounds) in [("p50", p50), ("p99", p99)] {
        rounds.sort_by_key(added);
        let middle = rounds[ROUNDS / 2];
        let is_missed = name == "p99" && added(&middle) >= ADDED_MAX_US;
        is_kept &= !is_missed;
        println!(
            "| {name}, {ROUNDS} rounds of {} s | {} us | {} us | {} us ({} to {}){} |",
            duration.as_secs(),
            middle.0,
            middle.1,
            added(&middle),
            added(&rounds[0]),
            added(&rounds[ROUNDS - 1]),
            if is_missed { " MISSED" } else { "" }
        );
    }
    Ok(is_kept)
}
