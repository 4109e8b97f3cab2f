//! What rate limiters admit, beside what was promised: one table.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml --bin accuracy`, explained in
//! `docs/comparison.md`.

#![expect(clippy::print_stdout, reason = "a command line talks to its user")]

mod governor;
mod limitador;
#[cfg(feature = "limitador-redis")]
mod limitador_redis;
mod limiter;
mod scenario;
mod table;
mod throttlecrab;
mod tollgate;
mod trypema;
mod versions;

use std::process::ExitCode;
use std::time::Duration;

use tollgate_testkit::RedisServer;

use crate::limiter::{Error, Library};
use crate::scenario::{Outcome, Scenario};

/// The tasks' threads, the same on every machine.
const THREADS: usize = 2;

/// A library that answers no more ends the run.
const LONGEST_SCENARIO: Duration = Duration::from_secs(60);

fn main() -> Result<ExitCode, Error> {
    let server = RedisServer::start()?;
    let libraries = libraries(&server.url());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let rows = runtime.block_on(rows(&libraries))?;
    let names: Vec<_> = libraries.iter().map(|library| library.name()).collect();

    print!("{}", table::render(&names, &rows));
    println!("\nA cell is the number of units admitted; (+n) is over the promise, (-n) under it.");
    println!("- : the library cannot express the limit, or its state cannot be shared.\n");
    for library in &libraries {
        println!("{:<21} {}", library.name().join(" "), library.settings());
    }
    if cfg!(not(feature = "limitador-redis")) {
        println!("limitador redis       left out: it needs --features limitador-redis");
    }
    println!("redis-server          {}", redis_version(&server)?);

    let ours = names.iter().map(|name| name[0] == "tollgate");
    let kept = rows.iter().all(|(_, outcomes)| {
        let mut outcomes = ours.clone().zip(outcomes);
        outcomes.all(|(ours, outcome)| !ours || outcome.as_ref().is_none_or(Outcome::is_kept))
    });
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn libraries(redis: &str) -> Vec<Box<dyn Library>> {
    vec![
        Box::new(tollgate::Tollgate::Memory),
        Box::new(governor::Governor),
        Box::new(throttlecrab::Throttlecrab),
        Box::new(limitador::Limitador),
        Box::new(trypema::Trypema),
        Box::new(tollgate::Tollgate::Redis { url: redis.to_owned() }),
        #[cfg(feature = "limitador-redis")]
        Box::new(limitador_redis::LimitadorRedis { url: redis.to_owned() }),
    ]
}

async fn rows(
    libraries: &[Box<dyn Library>],
) -> Result<Vec<(Scenario, Vec<Option<Outcome>>)>, Error> {
    let mut rows = Vec::new();
    for scenario in Scenario::ALL {
        let mut outcomes = Vec::new();
        for library in libraries {
            let run = tokio::time::timeout(LONGEST_SCENARIO, scenario.run(&**library)).await;
            let outcome =
                run.map_err(Error::from).and_then(|outcome| outcome).map_err(|error| {
                    format!("{}, {}: {error}", library.name().join(" "), scenario.title())
                })?;
            outcomes.push(outcome);
        }
        rows.push((scenario, outcomes));
    }
    Ok(rows)
}

fn redis_version(server: &RedisServer) -> Result<String, Error> {
    let info = server.command(&["INFO", "server"])?;
    let lines = info.text().unwrap_or_default().lines();
    let version = lines.filter_map(|line| line.strip_prefix("redis_version:")).next();
    Ok(version.unwrap_or("unknown version").to_owned())
}
