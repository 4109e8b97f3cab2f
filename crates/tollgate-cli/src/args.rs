//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tollgate_core::key;

const EXAMPLES: &str = "\
Examples:
  tollgate serve                          try it: built-in rules, buckets in memory
  tollgate example > tollgate.yaml        a commented configuration to start from
  tollgate validate tollgate.yaml         every mistake with its line
  tollgate serve --config tollgate.yaml   your rules
  tollgate check --config tollgate.yaml path=/login method=POST ip=203.0.113.7

Logs go to stderr. RUST_LOG sets their level, for example RUST_LOG=debug.";

const EXIT_SERVE: &str = "\
SIGTERM and SIGINT let requests in flight finish, for at most 10 s. A second signal quits at once.

Exit status: 0 stopped by a signal, 2 could not start.";

const EXIT_CHECK: &str = "\
Exit status: 0 allowed, 1 denied, 2 could not be decided.";

const EXIT_VALIDATE: &str = "\
Exit status: 0 all are in order, 1 there are mistakes, 2 a file cannot be read.";

/// A distributed rate limiter: one exact shared budget for all replicas of a service.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// How log lines are written: for people, or one JSON object each.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer the check API and forward auth until stopped.
    Serve(Serve),
    /// Ask once whether a request may pass, and spend if it may.
    Check(Check),
    /// Report every mistake in configuration files.
    Validate(Validate),
    /// Print a commented configuration to start from.
    Example,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_SERVE)]
pub(crate) struct Serve {
    /// The configuration, YAML or TOML. Without it: the built-in example, buckets in memory.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Where the check API and forward auth listen, in place of listen.http.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) http: Option<SocketAddr>,

    /// Where health and metrics listen, in place of listen.admin.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CHECK)]
pub(crate) struct Check {
    /// The configuration, YAML or TOML. Without it: the built-in example, buckets in memory.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The units that the request costs. 0 looks and spends nothing.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,

    /// The domain whose rules apply.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = name)]
    pub(crate) domain: String,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,

    /// The attributes of the request, for example path=/login ip=203.0.113.7
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_VALIDATE)]
pub(crate) struct Validate {
    /// The files, YAML or TOML.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write it as address:port, for example 127.0.0.1:8080".to_owned())
}

fn name(text: &str) -> Result<String, String> {
    if key::is_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("a name is 1 to {} letters, digits, '_', '-' or '.'", key::NAME_LEN_MAX))
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| "write it as key=value, for example ip=203.0.113.7".to_owned())?;
    if value.is_empty() {
        return Err("the value is empty: leave out what the request does not have".to_owned());
    }
    Ok((name(key)?, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
