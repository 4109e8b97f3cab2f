//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

/// Replays worked timelines on a store and reports the first answer that is not exact.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate-conformance",
    version,
    after_help = "Prints one line per timeline and a summary. Exits with 0 if all are ok, with 1 if \
                  one differs or is unsupported, and with 2 if an argument, a file or the store is \
                  at fault."
)]
pub(crate) struct Args {
    /// The store to test. Keys in Redis begin with `tollgate-conformance:` and are removed.
    #[arg(long, value_name = "memory|redis://HOST:PORT|redis+cluster://HOST:PORT,...")]
    pub(crate) store: StoreKind,

    /// Files of timelines, each a JSON list.
    #[arg(required = true, value_name = "FILE.json")]
    pub(crate) files: Vec<PathBuf>,
}

/// Which store to test, by its URL if it is in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Redis(String),
}

impl FromStr for StoreKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "memory" {
            Ok(Self::Memory)
        } else if text.starts_with("redis://") || text.starts_with("redis+cluster://") {
            Ok(Self::Redis(text.to_owned()))
        } else {
            Err("give `memory`, `redis://HOST:PORT` or `redis+cluster://HOST:PORT,HOST:PORT`"
                .to_owned())
        }
    }
}
