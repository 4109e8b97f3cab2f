//! What a check on Redis adds to the latency of an endpoint under half of what it carries.

use std::path::Path;
use std::time::Duration;

use tollgate_bench::Error;
use tollgate_bench::process::Process;
use tollgate_testkit::RedisServer;

use crate::open::{OpenLoop, Report};

const ROUNDS: usize = 3;

const CONNECTIONS: usize = 64;

/// More requests a second than an endpoint carries here.
const TOO_MUCH: u64 = 100_000;

/// Long enough to tell how much the endpoint carries.
const WARM_UP: Duration = Duration::from_secs(3);

/// How much later an answer may come, in microseconds.
const ADDED_MAX_US: i64 = 1_000;

/// Takes turns with an endpoint that checks, one that asks Redis for nothing and one that does neither,
/// for so long each, and tells whether the p99 of a check is less than 1 ms more.
pub(crate) fn run(tollgate: &Path, duration: Duration) -> Result<bool, Error> {
    let redis = RedisServer::start()?;
    let url = redis.url();
    let services = [
        Process::start(&["endpoint", &url])?,
        Process::start(&["round-trip", &url])?,
        Process::start(&["endpoint"])?,
    ];
    let at = |service: &Process| format!("http://127.0.0.1:{}", service.ports().http);
    let [with, round_trip, without] = services.each_ref().map(at);
    let open = |url: &str, rate: u64, duration: Duration| -> Result<Report, Error> {
        let report = OpenLoop::start(tollgate, url, rate, CONNECTIONS, duration)?.ended()?;
        if report.errors > 0 {
            return Err(format!("{} requests failed", report.errors).into());
        }
        Ok(report)
    };
    // More is offered than it can carry, by the generator that shares the processors with it.
    open(&without, TOO_MUCH, WARM_UP)?;
    let rate = (open(&with, TOO_MUCH, WARM_UP)?.achieved_per_second / 2.0) as u64;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut urls = [(0, &with), (1, &round_trip), (2, &without)];
        urls.rotate_left(round % 3);
        let mut told = [(0, 0); 3];
        for (place, url) in urls {
            let latency = open(url, rate, duration)?.latency_us;
            told[place] = (latency.p50, latency.p99);
        }
        rounds.push(told);
    }
    println!(
        "| {rate}/s, {ROUNDS} rounds of {} s | a check | a round trip | neither | added by the check |",
        duration.as_secs()
    );
    println!("| --- | --- | --- | --- | --- |");
    let p50 = row("p50", rounds.iter().map(|told| told.map(|(p50, _)| p50)));
    let p99 = row("p99", rounds.iter().map(|told| told.map(|(_, p99)| p99)));
    println!("{}\n{}{}", p50.0, p99.0, if p99.1 < ADDED_MAX_US { "" } else { " MISSED" });
    Ok(p99.1 < ADDED_MAX_US)
}

/// Writes the round in the middle, and returns how much the check adds in it, in microseconds.
fn row(name: &str, rounds: impl Iterator<Item = [u64; 3]>) -> (String, i64) {
    let added = |told: &[u64; 3]| told[0] as i64 - told[2] as i64;
    let mut rounds: Vec<_> = rounds.collect();
    rounds.sort_by_key(added);
    let (least, middle, most) = (&rounds[0], &rounds[ROUNDS / 2], &rounds[ROUNDS - 1]);
    let [with, round_trip, without] = middle;
    let text = format!(
        "| {name} | {with} us | {round_trip} us | {without} us | {} us ({} to {}) |",
        added(middle),
        added(least),
        added(most)
    );
    (text, added(middle))
}
