//! The command line.

mod held;
mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tollgate_config::{HttpUrl, RulesId};
use tollgate_core::key;

pub(crate) use self::held::{Asked, Cancel, Commit, Release, Renew, Reserve};
use self::value::cost;
use crate::bench::Bench;

const EXAMPLES: &str = "\
Examples:
  tollgate serve                          try it: built-in rules, buckets in memory
  tollgate example > tollgate.yaml        a commented configuration to start from
  tollgate validate tollgate.yaml         every mistake with its line
  tollgate serve --config tollgate.yaml   your rules
  tollgate serve --envoy-config config/   the limits of an envoyproxy/ratelimit service
  tollgate check --config tollgate.yaml path=/login method=POST ip=203.0.113.7
  tollgate peek -c tollgate.yaml ip=203.0.113.7     look, and spend nothing
  tollgate refund -c tollgate.yaml ip=203.0.113.7   give a unit back
  tollgate reset -c tollgate.yaml ip=203.0.113.7    fill the buckets of a request
  tollgate rules push rules.yaml          change the rules of a running service
  tollgate acquire -c tollgate.yaml --wait 5min job=backup -- pg_dump shop
  tollgate reserve -c tollgate.yaml --cost 500 account=a1   spend an estimate, print its id
  tollgate commit -c tollgate.yaml ID --cost 120    settle it at the real cost
  tollgate cancel -c tollgate.yaml ID               settle it at none
  tollgate renew -c tollgate.yaml ID                keep slots that are held
  tollgate release -c tollgate.yaml ID              give them back
  tollgate bench http://127.0.0.1:8080 --rate 5000  how fast it answers

Logs go to stderr. RUST_LOG sets their level, for example RUST_LOG=debug.";

const EXIT_SERVE: &str = "\
SIGTERM and SIGINT let requests in flight finish, for at most 10 s. A second signal quits at once.
SIGHUP looks for new rules, certificates and tokens at once; without it they are noticed too.

Exit status: 0 stopped by a signal, 2 could not start.";

const EXIT_CHECK: &str = "\
Exit status: 0 allowed, 1 denied, 2 could not be decided.";

const EXIT_PEEK: &str = "\
Exit status: 0 it would be allowed, 1 it would be denied, 2 could not be decided.";

const EXIT_DONE: &str = "\
Exit status: 0 done, 2 could not be done.";

const EXIT_ACQUIRE: &str = "\
Where a rule counts requests in flight, the command holds a slot while it runs. The slot is renewed
until the command ends, and comes back by itself should this process be killed. SIGTERM and SIGINT
are passed on to the command.

Exit status: that of the command, 128 and the signal's number if a signal ended it, 1 if it was
refused and did not run, 2 could not be decided or could not run.";

const EXIT_RULES: &str = "\
Exit status: 0 done, 1 refused or different, 2 the service does not answer.";

const EXIT_VALIDATE: &str = "\
Exit status: 0 all are in order, 1 there are mistakes, 2 a file cannot be read.";

/// A distributed rate limiter: one exact shared budget for all replicas of a service.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES, arg_required_else_help = true)]
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
    /// Answer the check API, forward auth and Envoy until stopped.
    Serve(Serve),
    /// Ask once whether a request may pass, and spend if it may.
    Check(Check),
    /// Tell what is left for a request, and spend nothing.
    Peek(Peek),
    /// Run a command when it may go on, holding its slots while it runs.
    Acquire(Acquire),
    /// Give units back to the buckets of a request.
    Refund(Refund),
    /// Fill the buckets of a request.
    Reset(Reset),
    /// See and change the rules of a running service.
    Rules(Rules),
    /// Spend an estimated cost, to be settled when the real one is known.
    Reserve(Reserve),
    /// Settle a reservation at its real cost.
    Commit(Commit),
    /// Give back all that a reservation holds.
    Cancel(Cancel),
    /// Extend the lease of slots to its whole length from now.
    Renew(Renew),
    /// Give back the slots of a lease.
    Release(Release),
    /// Report every mistake in configuration files.
    Validate(Validate),
    /// Put a load on a service or on a Redis, and tell how fast it answers.
    Bench(Bench),
    /// Print a commented configuration to start from.
    Example,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_SERVE)]
pub(crate) struct Serve {
    /// The configuration, YAML or TOML. Without it: the built-in example, buckets in memory.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Limits for Envoy in the format of envoyproxy/ratelimit: every *.yaml in a directory. They
    /// stand beside the rules of --config, and alone without it.
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,

    /// Where the check API and forward auth listen, in place of listen.http.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) http: Option<SocketAddr>,

    /// Where Envoy's RateLimitService listens, in place of listen.grpc; or `off`.
    #[arg(long, value_name = "ADDR", value_parser = grpc)]
    pub(crate) grpc: Option<Grpc>,

    /// Where health and metrics listen, in place of listen.admin.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) admin: Option<SocketAddr>,

    /// The threads that answer. Without it: one for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(crate) workers: Option<u16>,
}

/// Where Envoy is answered, if it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grpc(pub(crate) Option<SocketAddr>);

/// Which request is asked about, and by whose rules.
#[derive(Debug, clap::Args)]
pub(crate) struct Request {
    /// The configuration, YAML or TOML. Without it: the built-in example, buckets in memory.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The domain whose rules apply.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = name)]
    pub(crate) domain: String,

    /// The attributes of the request, for example path=/login ip=203.0.113.7
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CHECK)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) request: Request,

    /// The units that the request costs. 0 looks and spends nothing.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_PEEK)]
pub(crate) struct Peek {
    #[command(flatten)]
    pub(crate) request: Request,

    /// The units that are asked about. 0 is never denied.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_ACQUIRE)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) request: Request,

    /// How long to wait for units, for a slot or for the turn in a leaky bucket, for example 500ms,
    /// 5s or 2min.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = wait, allow_hyphen_values = true)]
    pub(crate) wait: Duration,

    /// The units that the command costs, or the slots that it takes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_DONE)]
pub(crate) struct Refund {
    #[command(flatten)]
    pub(crate) request: Request,

    /// The units that are given back, never beyond a burst.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = cost, allow_hyphen_values = true)]
    pub(crate) cost: u64,

    /// An id under which the refund is made once, such as that of the order.
    #[arg(long, value_name = "ID", value_parser = id)]
    pub(crate) id: Option<String>,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_DONE)]
pub(crate) struct Reset {
    #[command(flatten)]
    pub(crate) request: Request,

    /// Print the answer as the HTTP API gives it.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_VALIDATE)]
pub(crate) struct Validate {
    /// The files, YAML or TOML.
    #[arg(required_unless_present = "envoy_config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// A directory of limits in the format of envoyproxy/ratelimit.
    #[arg(long, value_name = "DIR")]
    pub(crate) envoy_config: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_RULES)]
pub(crate) struct Rules {
    #[command(subcommand)]
    pub(crate) action: RulesAction,

    #[command(flatten)]
    pub(crate) service: AdminService,
}

/// Which service is asked, and who asks.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminService {
    /// The admin listener of the service.
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:9090", value_parser = url)]
    pub(crate) admin: HttpUrl,

    /// A file with a token of the service's admin_tokens.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// The certificates to believe in PEM, in place of those that the system believes.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// The certificate to show in PEM, where the service asks for one.
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of the certificate in PEM.
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesAction {
    /// Show which rules are in force, and where they come from.
    #[command(after_help = EXIT_RULES)]
    Show {
        /// Print the text of the rules, to edit it.
        #[arg(long)]
        document: bool,
    },
    /// List the versions that were in force.
    #[command(after_help = EXIT_RULES)]
    History,
    /// Compare a file with the rules in force.
    #[command(after_help = EXIT_RULES)]
    Diff {
        /// The rules, YAML or TOML.
        file: PathBuf,
    },
    /// Put the rules of a file in force, on all nodes that follow the same source.
    #[command(after_help = EXIT_RULES)]
    Push {
        /// The rules, YAML or TOML as their source has them.
        file: PathBuf,

        /// Push only if the rules with this id are in force. Without it: those that are now.
        #[arg(long, value_name = "ID", conflicts_with = "force", value_parser = rules_id)]
        if_match: Option<RulesId>,

        /// Push whatever is in force or in the source.
        #[arg(long)]
        force: bool,
    },
    /// Put a version of the history in force again.
    #[command(after_help = EXIT_RULES)]
    Rollback {
        /// Which version. Without it: the one before that in force.
        #[arg(value_name = "ID", value_parser = rules_id)]
        id: Option<RulesId>,
    },
}

fn url(text: &str) -> Result<HttpUrl, String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    HttpUrl::parse(&with_scheme).map_err(|problem| {
        format!("{problem}: write it as http[s]://host:port, for example http://127.0.0.1:9090")
    })
}

fn rules_id(text: &str) -> Result<RulesId, String> {
    text.parse().map_err(|error: tollgate_config::RulesIdError| error.to_string())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write it as address:port, for example 127.0.0.1:8080".to_owned())
}

fn grpc(text: &str) -> Result<Grpc, String> {
    match text {
        "off" => Ok(Grpc(None)),
        _ => match text.parse() {
            Ok(address) => Ok(Grpc(Some(address))),
            Err(_) => {
                Err("write it as address:port, for example 127.0.0.1:8081, or off".to_owned())
            }
        },
    }
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    if key::is_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("a name is 1 to {} letters, digits, '_', '-' or '.'", key::NAME_LEN_MAX))
}

pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| "write it as key=value, for example ip=203.0.113.7".to_owned())?;
    if value.is_empty() {
        return Err("the value is empty: leave out what the request does not have".to_owned());
    }
    Ok((name(key)?, value.to_owned()))
}

fn id(text: &str) -> Result<String, String> {
    match text.len() {
        1..=256 => Ok(text.to_owned()),
        len => Err(format!("an id has 1 to 256 bytes, not {len}")),
    }
}

pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("hour", 3_600_000)];
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let count = digits.parse::<u64>().ok();
    count
        .zip(unit)
        .and_then(|(count, unit)| count.checked_mul(unit))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            "write a whole number and one of ms, s, min, hour, for example 5s".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_wait_is_a_whole_number_with_a_unit() {
        for (text, millis) in
            [("0s", 0), ("500ms", 500), ("5s", 5_000), ("2min", 120_000), ("1hour", 3_600_000)]
        {
            assert_eq!(wait(text), Ok(Duration::from_millis(millis)));
        }
        for text in ["", "5", "s", "1.5s", "-1s", "5 s", "5h", "18446744073709551615min"] {
            assert!(wait(text).is_err(), "{text}");
        }
    }
}
