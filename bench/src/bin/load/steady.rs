//! A service under a third of what it carries, for a minute.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate_bench::Error;
use tollgate_bench::client::{Client, Transport};
use tollgate_bench::process::Process;
use tollgate_testkit::RedisServer;

use crate::mebibytes;
use crate::open::OpenLoop;

const CONNECTIONS: usize = 100;

/// Long enough to tell how much the service carries, and that all its keys are known afterwards.
const WARM_UP: Duration = Duration::from_secs(5);

/// Which part of what a closed loop reached is offered: the generator takes as much of the machine as
/// the service does, and more than the client of that loop.
const PART: f64 = 3.0;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How much more memory there may be in the second half than there was in the first at the most: what is
/// left of buffers and the allocator's moods.
const GROWTH_MAX: u64 = 8 << 20;

/// Puts each load on for so long, and tells whether nothing failed and memory stayed.
pub(crate) fn run(tollgate: &Path, duration: Duration) -> Result<bool, Error> {
    let redis = RedisServer::start()?;
    let redis = redis.url();
    println!(
        "| load, {CONNECTIONS} connections, {} s | offered | answered | errors | p50 | p99 | p99.9 | \
         most memory in the first half | in the second |",
        duration.as_secs()
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut is_kept = true;
    for (store, words) in [("memory", &["tollgate"][..]), ("Redis", &["tollgate", &redis])] {
        for transport in [Transport::Http, Transport::Grpc { streams: 1 }] {
            is_kept &= one(tollgate, duration, store, words, transport)?;
        }
    }
    Ok(is_kept)
}

fn one(
    tollgate: &Path,
    duration: Duration,
    store: &str,
    words: &[&str],
    transport: Transport,
) -> Result<bool, Error> {
    let service = Process::start(words)?;
    let port = service.ports().of(transport);
    let scheme = match transport {
        Transport::Http => "http",
        Transport::Grpc { .. } => "grpc",
    };
    let client = Client { transport, port, connections: CONNECTIONS, keys: 100_000 };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let most = runtime.block_on(client.run(WARM_UP))?.per_second();
    let rate = (most / PART) as u64;
    let url = format!("{scheme}://127.0.0.1:{port}");
    let (start, load) =
        (Instant::now(), OpenLoop::start(tollgate, &url, rate, CONNECTIONS, duration)?);
    #[expect(clippy::disallowed_methods, reason = "it measures for as long as it is told")]
    let most_until = |end: Duration| -> Result<u64, Error> {
        let mut most = 0;
        while start.elapsed() + LOOK < end {
            sleep(LOOK);
            most = most.max(service.resident_bytes()?);
        }
        Ok(most)
    };
    let before = most_until(duration / 2)?;
    let after = most_until(duration)?;
    let report = load.ended()?;
    let grown = after.saturating_sub(before);
    let is_kept = report.errors == 0 && grown <= GROWTH_MAX;
    println!(
        "| {scheme}, {store} | {:.0}/s | {:.0}/s | {} | {} us | {} us | {} us | {} | {}{} |",
        report.offered_per_second,
        report.achieved_per_second,
        report.errors,
        report.latency_us.p50,
        report.latency_us.p99,
        report.latency_us.p99_9,
        mebibytes(before),
        mebibytes(after),
        if is_kept { "" } else { " MISSED" }
    );
    Ok(is_kept)
}
