//! Tollgate beside what it is compared with, side by side in one run: one table a topic, with ratios.
//!
//! `cargo xtask bench [TOPIC]`, explained in `docs/performance.md`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to its user")]

mod clock;
mod footprint;
mod grpc;
mod http;
mod keys;
mod lease;
mod memory;
mod pauses;
mod redis;
mod row;
mod service;
mod table;

use std::process::ExitCode;

use crate::row::{Error, Row};

/// What can be compared. A row that is missing goes into the function of its topic.
const TOPICS: &[Topic] = &[
    Topic { name: "memory", about: "a check in memory, beside governor", rows: memory::rows },
    Topic { name: "footprint", about: "what the store in memory takes", rows: footprint::rows },
    Topic {
        name: "pauses",
        about: "the longest check of a store in memory of 10,000,000 keys",
        rows: pauses::rows,
    },
    Topic {
        name: "redis",
        about: "the library on Redis, beside one EVALSHA per check",
        rows: redis::rows,
    },
    Topic { name: "lease", about: "a leased key, beside the store in memory", rows: lease::rows },
    Topic {
        name: "http",
        about: "the service over HTTP, beside an axum handler",
        rows: http::rows,
    },
    Topic {
        name: "grpc",
        about: "the service over gRPC, beside a tonic service",
        rows: grpc::rows,
    },
];

/// Rows that are measured together and make one table.
struct Topic {
    name: &'static str,
    about: &'static str,
    rows: fn() -> Result<Vec<Row>, Error>,
}

fn main() -> Result<ExitCode, Error> {
    if let Some(ended) = tollgate_bench::service::run_if_asked() {
        return ended.map(|()| ExitCode::SUCCESS);
    }
    let names: Vec<String> = std::env::args().skip(1).collect();
    let unknown = names.iter().find(|name| TOPICS.iter().all(|topic| topic.name != **name));
    if let Some(unknown) = unknown {
        let known: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
        eprintln!("there is no topic {unknown:?}: the topics are {}", known.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    let mut is_kept = true;
    for topic in
        TOPICS.iter().filter(|topic| names.is_empty() || names.iter().any(|n| n == topic.name))
    {
        println!("{}: {}\n", topic.name, topic.about);
        let mut measured = Vec::new();
        for mut row in (topic.rows)()? {
            eprintln!("measuring {}, {}", topic.name, row.what);
            measured.push(row.measure()?);
        }
        println!("{}", table::render(&measured));
        is_kept &= measured.iter().all(|row| row.is_kept());
    }
    Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
