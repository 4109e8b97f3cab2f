//! The options of commands on what is held.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::Hold;

use super::Request;
use super::value::{cost, lease, reservation, ttl};

const EXIT_RESERVE: &str = "\
The id of the reservation is printed to stdout and what the rules say to stderr, so that a script
can keep the id:

  id=$(tollgate reserve -c tollgate.yaml --cost 500 account=a1) || exit
  tollgate commit -c tollgate.yaml \"$id\" --cost 120

Where no rule applies there is nothing to settle, and no id. A reservation that is not settled in
time stays spent.

Exit status: 0 reserved, 1 denied, 2 could not be decided.";

const EXIT_RESERVATION: &str = "\
Exit status: 0 done, 1 the reservation was settled or has ended, 2 could not be done.";

const EXIT_RENEW: &str = "\
A lease is what POST /v1/acquire answers as lease_id; tollgate acquire renews and releases by itself.

Exit status: 0 renewed, 1 nothing is held any more, 2 could not be done.";

const EXIT_RELEASE: &str = "\
A lease is what POST /v1/acquire answers as lease_id; tollgate acquire renews and releases by itself.
It is no mistake to release what was released or has ended.

Exit status: 0 done, 2 could not be done.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RESERVE)]
pub(crate) struct Reserve {
    #[command(flatten)]
    pub(crate) request: Request,

    /// The units that the request may cost, as far as one can tell.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    /// How long the reservation can be settled, from 1s to 24hour.
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RESERVATION)]
pub(crate) struct Commit {
    /// What tollgate reserve has printed.
    #[arg(value_name = "ID", value_parser = reservation)]
    pub(crate) id: Hold,

    /// The units that the request has cost.
    #[arg(long, value_name = "N", value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RESERVATION)]
pub(crate) struct Cancel {
    /// What tollgate reserve has printed.
    #[arg(value_name = "ID", value_parser = reservation)]
    pub(crate) id: Hold,

    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RENEW)]
pub(crate) struct Renew {
    /// The id of the lease.
    #[arg(value_name = "ID", value_parser = lease)]
    pub(crate) id: Hold,

    #[command(flatten)]
    pub(crate) asked: Asked,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RELEASE)]
pub(crate) struct Release {
    /// The id of the lease.
    #[arg(value_name = "ID", value_parser = lease)]
    pub(crate) id: Hold,

    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// By whose rules an id is settled, and how that is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// The configuration, YAML or TOML, with the store in which it is held.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}
