//! Replays worked timelines on a store of Tollgate and reports the first answer that is not exact.

mod args;
mod tally;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tollgate_core::Store;
use tollgate_memory::MemoryStore;
use tollgate_redis::{RedisStore, TimeSource, Tls};
use tollgate_testkit::conformance::{self, Failure};
use tollgate_testkit::timeline::{self, Timeline};

use crate::args::{Args, StoreKind};
use crate::tally::Tally;

/// A conformance run is not about latency, so a slow server is waited for.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the keys of the runs begin with in Redis.
const KEY_PREFIX: &str = "tollgate-conformance";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(tally) => tally.exit_code(),
        Err(error) => {
            // If even this cannot be written, the exit code still tells.
            let _ = writeln!(io::stderr(), "tollgate-conformance: {}", chain(&*error));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<Tally, Box<dyn Error>> {
    // All files are read first: a mistake in the last one must not cost a run of the others.
    let mut timelines = Vec::new();
    for file in &args.files {
        let of_file = timeline::read(file)?;
        if of_file.is_empty() {
            return Err(
                format!("{}: no timeline in it, so nothing to prove", file.display()).into()
            );
        }
        timelines.extend(of_file);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.store {
            StoreKind::Memory => replay_all(&MemoryStore::new(), &timelines).await,
            StoreKind::Redis(url) => {
                let mut builder = RedisStore::builder(url.as_str());
                if let Some(tls) = tls(args)? {
                    builder = builder.tls(tls);
                }
                let store = builder
                    .functions(args.functions)
                    .time_source(TimeSource::Client)
                    .prefix(KEY_PREFIX)
                    .timeout(STORE_TIMEOUT)
                    .connect()
                    .await?;
                replay_all(&store, &timelines).await
            }
        }
    })
}

/// Reads the certificates, if any is given.
fn tls(args: &Args) -> Result<Option<Tls>, Box<dyn Error>> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let mut tls = None;
    if let Some(ca) = &args.ca {
        tls = Some(Tls::new().ca(read(ca)?));
    }
    if let (Some(certificate), Some(key)) = (&args.cert, &args.key) {
        tls = Some(tls.unwrap_or_default().identity(read(certificate)?, read(key)?));
    }
    Ok(tls)
}

/// Replays the timelines one by one and prints each as soon as it is done.
async fn replay_all<S: Store>(store: &S, timelines: &[Timeline]) -> Result<Tally, Box<dyn Error>> {
    let mut out = io::stdout();
    let mut tally = Tally::default();
    for timeline in timelines {
        let name = timeline.name();
        match conformance::replay(store, timeline).await {
            Ok(()) => writeln!(out, "{name}: ok")?,
            // The store would fail again, each time after its deadline.
            Err(failure @ Failure::Store { .. }) => {
                return Err(format!("{name}: {}", chain(&failure)).into());
            }
            Err(failure) => {
                writeln!(out, "{name}: {failure}")?;
                tally.count_failure(&failure);
                continue;
            }
        }
        tally.count_ok();
    }
    writeln!(out, "{tally}")?;
    Ok(tally)
}

/// The text of an error and of its causes, each said once.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
