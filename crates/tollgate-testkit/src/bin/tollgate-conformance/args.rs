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

    /// Keep the script as a function, where the server has functions.
    #[arg(long)]
    pub(crate) functions: bool,

    /// The CAs that are believed with rediss://, in PEM; those of the system unless given.
    #[arg(long, value_name = "FILE.pem")]
    pub(crate) ca: Option<PathBuf>,

    /// The certificate that is shown to the server, in PEM.
    #[arg(long, value_name = "FILE.pem", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of that certificate, in PEM.
    #[arg(long, value_name = "FILE.pem", requires = "cert")]
    pub(crate) key: Option<PathBuf>,

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
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match (text, scheme) {
            ("memory", _) => Ok(Self::Memory),
            (_, Some(scheme)) if scheme.starts_with("redis") || scheme.starts_with("valkey") => {
                Ok(Self::Redis(text.to_owned()))
            }
            _ => {
                Err("give `memory`, `redis://HOST:PORT`, `redis+cluster://HOST:PORT,HOST:PORT` or \
                      `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`, with `rediss` for TLS, or \
                      `redis+unix:///PATH`"
                    .to_owned())
            }
        }
    }
}
