//! One run: what is started, what happens to Redis, and what is counted.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{sleep, sleep_until};
use tollgate_testkit::RedisServer;

use crate::Failure;
use crate::client::Client;
use crate::downstream::Downstream;
use crate::load;
use crate::report::Report;

/// The limit of all replicas together.
pub(crate) const RATE: u64 = 600;
pub(crate) const BURST: u64 = 100;
pub(crate) const REPLICAS: u64 = 3;

/// How long a run takes, and when Redis is lost and back.
pub(crate) const LENGTH: Duration = Duration::from_secs(12);
pub(crate) const LOST_AT: Duration = Duration::from_secs(4);
pub(crate) const BACK_AT: Duration = Duration::from_secs(8);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) title: &'static str,
    pub(crate) limiter: Shared,
}

/// Who counts, and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    PerProcess,
    Tollgate,
    TollgateKilled,
    TollgatePaused,
}

pub(crate) const PLANS: [Plan; 4] = [
    Plan { title: "a bucket of 200/s in each process", limiter: Shared::PerProcess },
    Plan { title: "Tollgate", limiter: Shared::Tollgate },
    Plan { title: "Tollgate, Redis killed and restarted", limiter: Shared::TollgateKilled },
    Plan { title: "Tollgate, Redis stands still", limiter: Shared::TollgatePaused },
];

impl Shared {
    pub(crate) const fn loses_redis(self) -> bool {
        matches!(self, Self::TollgateKilled | Self::TollgatePaused)
    }
}

/// A replica in a process of its own, which is killed when it is dropped.
struct Replica {
    client: Arc<Client>,
    _process: Child,
}

impl Replica {
    async fn start(downstream: &Downstream, redis: Option<&str>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("replica").arg(downstream.address.to_string()).args(redis);
        // Its standard input ends with this process, however that ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or("a replica has no output")?;
        let address = BufReader::new(stdout).lines().next_line().await?;
        let address = address.ok_or("a replica did not start")?.parse()?;
        Ok(Self { client: Arc::new(Client::new(address)), _process: process })
    }
}

/// Carries out one run.
pub(crate) async fn run(plan: Plan) -> Result<Report, Failure> {
    let downstream = Downstream::start().await?;
    let mut redis = match plan.limiter {
        Shared::PerProcess => None,
        _ => Some(RedisServer::start()?),
    };
    let url = redis.as_ref().map(RedisServer::url);
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Replica::start(&downstream, url.as_deref()).await?);
    }
    let clients: Vec<_> = replicas.iter().map(|replica| Arc::clone(&replica.client)).collect();
    if url.is_some() {
        wait_for(&clients, "exact 3", Duration::from_secs(5)).await?;
    }
    let start = Instant::now();
    let load = tokio::spawn(load::offer(clients.clone(), LENGTH));
    let mut exact_after = None;
    if let Some(redis) = redis.as_mut().filter(|_| plan.limiter.loses_redis()) {
        sleep_until((start + LOST_AT).into()).await;
        match plan.limiter {
            Shared::TollgateKilled => redis.kill()?,
            _ => redis.pause()?,
        }
        sleep_until((start + BACK_AT).into()).await;
        match plan.limiter {
            Shared::TollgateKilled => redis.restart()?,
            _ => redis.resume()?,
        }
        exact_after = Some(wait_for(&clients, "exact", Duration::from_secs(3)).await?);
    }
    let seen = load.await?;
    let elapsed = start.elapsed();
    Ok(Report { plan, seen, elapsed, arrivals: downstream.arrivals_since(start), exact_after })
}

/// Waits until every replica says that it stands like that, and tells how long it took.
async fn wait_for(
    replicas: &[Arc<Client>],
    standing: &str,
    most: Duration,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    loop {
        let mut all = true;
        for replica in replicas {
            all &= replica.get("/status").await?.body.starts_with(standing);
        }
        if all {
            return Ok(start.elapsed());
        }
        if start.elapsed() > most {
            return Err(format!("not every replica is {standing:?} within {most:?}").into());
        }
        sleep(Duration::from_millis(5)).await;
    }
}
