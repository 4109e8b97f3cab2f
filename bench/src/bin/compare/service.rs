//! Loads on services in processes of their own.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_bench::client::{Answers, Client, Transport};
use tollgate_bench::process::Process;

use crate::row::{Error, Row, Run, Target, Unit};

pub(crate) const ROUNDS: usize = 5;

const ROUND: Duration = Duration::from_millis(1_500);

/// As many as the rules of a service hold without a bucket that is full again in between.
const KEYS: usize = 100_000;

/// Two services that are compared by one client.
pub(crate) struct Pair {
    pub(crate) what: &'static str,
    pub(crate) ours: Process,
    pub(crate) other: (&'static str, Process),
    pub(crate) transport: Transport,
    pub(crate) connections: usize,
    /// How many times as many requests ours answers as the other, at least.
    pub(crate) least: f64,
}

impl Pair {
    /// Makes two rows: requests a second, and the processor time that the service takes for each.
    pub(crate) fn rows(self) -> Result<Vec<Row>, Error> {
        let runtime = Arc::new(Builder::new_multi_thread().worker_threads(2).enable_all().build()?);
        let (ours, other) = (Arc::new(self.ours), Arc::new(self.other.1));
        let client = |process: &Process| {
            let port = process.ports().of(self.transport);
            Client { transport: self.transport, port, connections: self.connections, keys: KEYS }
        };
        let throughput = |process: &Arc<Process>| -> Run {
            let (runtime, client) = (Arc::clone(&runtime), client(process));
            // Kept as long as somebody asks it.
            let process = Arc::clone(process);
            Box::new(move || {
                let _ = &process;
                Ok(load(&runtime, client)?.per_second())
            })
        };
        let cpu_time = |process: &Arc<Process>| -> Run {
            let (runtime, client) = (Arc::clone(&runtime), client(process));
            let process = Arc::clone(process);
            Box::new(move || {
                let before = process.cpu_time()?;
                let answers = load(&runtime, client)?;
                let taken = process.cpu_time()? - before;
                Ok(taken.as_secs_f64() * 1e6 / answers.count() as f64)
            })
        };
        let name = self.other.0;
        Ok(vec![
            Row {
                what: self.what.to_owned(),
                unit: Unit::PerSecond,
                rounds: ROUNDS,
                ours: throughput(&ours),
                other: Some((name, throughput(&other))),
                target: Target::Ratio(self.least),
            },
            Row {
                what: format!("{}: processor time of the service for each", self.what),
                unit: Unit::Micros,
                rounds: ROUNDS,
                ours: cpu_time(&ours),
                other: Some((name, cpu_time(&other))),
                target: Target::None,
            },
        ])
    }
}

fn load(runtime: &Runtime, client: Client) -> Result<Answers, Error> {
    let answers = runtime.block_on(client.run(ROUND))?;
    match answers.denied {
        0 => Ok(answers),
        denied => Err(format!("{denied} were denied").into()),
    }
}
