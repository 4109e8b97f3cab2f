//! The check API over HTTP, beside an axum handler that parses the same JSON and answers at once.

use tollgate_bench::client::Transport;
use tollgate_bench::process::Process;

use crate::row::{Error, Row};
use crate::service::Pair;

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let pair = Pair {
        what: "POST /v1/check in memory, 100,000 random keys, 64 connections",
        ours: Process::start(&["tollgate"])?,
        other: ("axum", Process::start(&["axum"])?),
        transport: Transport::Http,
        connections: 64,
        least: 0.75,
    };
    pair.rows()
}
