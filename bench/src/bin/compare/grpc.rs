//! Envoy's rate limit protocol over gRPC, beside a tonic service that answers OK at once.

use tollgate_bench::client::Transport;
use tollgate_bench::process::Process;
use tollgate_testkit::RedisServer;

use crate::row::{Error, Row};
use crate::service::Pair;

/// As many connections as an Envoy with so many workers has, and enough in flight that the service
/// never waits for the client.
const CONNECTIONS: usize = 8;

const TRANSPORT: Transport = Transport::Grpc { streams: 32 };

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let in_memory = Pair {
        what: "ShouldRateLimit in memory, 100,000 random keys",
        ours: Process::start(&["tollgate"])?,
        other: ("tonic", Process::start(&["tonic"])?),
        transport: TRANSPORT,
        connections: CONNECTIONS,
        least: 0.8,
    };
    // It runs as long as this process does: the services that ask it are ended later.
    let redis: &'static RedisServer = Box::leak(Box::new(RedisServer::start()?));
    let on_redis = Pair {
        what: "ShouldRateLimit on Redis, 100,000 random keys",
        ours: Process::start(&["tollgate", &redis.url()])?,
        other: ("in memory", Process::start(&["tollgate"])?),
        transport: TRANSPORT,
        connections: CONNECTIONS,
        least: 0.6,
    };
    Ok([in_memory.rows()?, on_redis.rows()?].into_iter().flatten().collect())
}
