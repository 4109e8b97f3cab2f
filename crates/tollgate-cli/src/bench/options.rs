//! What can be said about a load.

use std::path::{self, Path, PathBuf};
use std::time::Duration;

use tollgate::Rate;

use crate::args::{attribute, name, wait};

const HELP: &str = "\
Requests are sent when they are due, whether earlier ones are answered or not, and latency counts from
that time: a service that stalls is seen to stall. A request that failed counts with the time until it
failed, one that was due and never sent with the time until the end. All connections are open before the
first request is due. Over HTTP each of the --connections carries one request at a time, over gRPC 100;
more at once wait, and the time is theirs. SIGINT and SIGTERM end a load early, with the figures so far.

On a Redis, keys are apart from those of applications by --prefix, and from those of other runs by the
time and the process in the name of the rule. Redis removes them when they would be full again.

Examples:
  tollgate bench http://127.0.0.1:8080 path=/login method=POST --rate 5000
  tollgate bench http://127.0.0.1:8080 --rate 5000 --keys 1000000 --zipf 1.1 --json run.json
  tollgate bench grpc://127.0.0.1:8081 path=/login --rate 20000 --connections 4
  tollgate bench redis://127.0.0.1:6379 --rate 20000 --limit 100/s --svg latency.svg

Exit status: 0 all were answered, 1 some failed, 2 could not be run or written, 130 or 143 ended by SIGINT
or SIGTERM.";

/// Put a load on a service or on a Redis, and tell how fast it answers.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Bench {
    /// http://HOST:PORT asks the check API of a service. grpc://HOST:PORT asks a service as Envoy does.
    /// redis://HOST:PORT checks by this process on that Redis, as an application with the library does.
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// Attributes that all requests have, at a service, for example path=/login method=POST. Over gRPC
    /// they are the first entries of the descriptor, and the key is the last.
    #[arg(value_name = "KEY=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,

    /// The requests that are sent each second.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) rate: u64,

    /// For how long they are sent, for example 10s or 5min.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,

    /// The connections to a service, of which each carries one request at a time, over gRPC 100. At a
    /// Redis: the callers on one connection.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) connections: u16,

    /// The number of different keys, which are asked for at random.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) keys: u32,

    /// Ask for some keys more often than for others: the n-th is asked for in proportion to 1/n^S.
    #[arg(long, value_name = "S", conflicts_with = "hot", value_parser = exponent)]
    pub(crate) zipf: Option<f64>,

    /// The share of the requests that ask for one key, for example 0.5.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) hot: Option<f64>,

    /// The attribute whose value is the key.
    #[arg(long, value_name = "NAME", default_value = "ip", value_parser = name)]
    pub(crate) attribute: String,

    /// The domain whose rules apply, at a service: `default` unless this names another.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) domain: Option<String>,

    /// The limit of each key, on a Redis: 100/s unless this says otherwise. A service has rules of its
    /// own.
    #[arg(long, value_name = "RATE")]
    pub(crate) limit: Option<Rate>,

    /// What all keys in a Redis begin with: `tollgate-bench` unless this says otherwise. Under the prefix
    /// of applications the load would count as one of their nodes.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) prefix: Option<String>,

    /// Write the figures to a file, or with `-` to stdout, and the table to stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Draw the latencies by percentile into a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

impl Bench {
    pub(super) fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or("default")
    }

    pub(super) fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or("tollgate-bench")
    }

    pub(super) fn limit(&self) -> Result<Rate, String> {
        self.limit.map_or_else(|| "100/s".parse::<Rate>().map_err(|error| error.to_string()), Ok)
    }

    /// Tells whether the load is put on a service, not on a Redis.
    pub(super) fn is_on_service(&self) -> bool {
        ["http://", "grpc://"].iter().any(|scheme| self.url.starts_with(scheme))
    }

    /// Refuses what contradicts itself or would be ignored.
    pub(super) fn agree(&self) -> Result<(), String> {
        let varied = &self.attribute;
        if self.attributes.iter().any(|(name, _)| name == varied) {
            return Err(format!(
                "{varied} is the key, whose values the load makes: leave out {varied}=VALUE, or name \
                 another key with --attribute"
            ));
        }
        let useless = match self.is_on_service() {
            true => self
                .limit
                .map(|_| "--limit is for a Redis: a service has rules of its own")
                .or_else(|| {
                    self.prefix.as_ref().map(|_| "--prefix is for a Redis: a service has its own")
                }),
            false => self
                .domain
                .as_ref()
                .map(|_| "--domain is for a service: on a Redis there is one rule for the key")
                .or_else(|| {
                    let first = self.attributes.first();
                    first.map(
                        |_| "KEY=VALUE is for a service: on a Redis there is one rule for the key",
                    )
                }),
        };
        if let Some(useless) = useless {
            return Err(useless.to_owned());
        }
        if self.svg.as_deref() == Some(Path::new("-")) {
            return Err("a drawing is not written to stdout: name a file with --svg".to_owned());
        }
        let whole = |file: &PathBuf| path::absolute(file).unwrap_or_else(|_| file.clone());
        match (&self.json, &self.svg) {
            (Some(json), Some(svg)) if whole(json) == whole(svg) => Err(format!(
                "--json and --svg both name {}: one would overwrite the other",
                json.display()
            )),
            _ => Ok(()),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match wait(text)? {
        Duration::ZERO => Err("a load lasts for some time: give at least 1ms".to_owned()),
        duration => Ok(duration),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a share from 0 to 1, for example 0.5".to_owned())
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| "give a number from 0 to 10, for example 1.1".to_owned())
}
