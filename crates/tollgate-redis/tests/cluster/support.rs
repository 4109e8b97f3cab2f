//! Stores on clusters, and keys on nodes.

use std::sync::LazyLock;
use std::time::Duration;

use tollgate_core::{Charge, Cost, Decision, Operation, Quota, Store, Ticket, Timestamp};
use tollgate_redis::{RedisStore, RedisStoreBuilder, TimeSource};
use tollgate_testkit::RedisCluster;

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// The cluster of the tests that harm no node. Each has a prefix of its own.
pub(crate) static SHARED: LazyLock<RedisCluster> =
    LazyLock::new(|| RedisCluster::start(3).unwrap());

/// A deadline for tests that are not about it.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

pub(crate) fn url(cluster: &RedisCluster) -> String {
    let addresses: Vec<_> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    format!("redis+cluster://{}", addresses.join(","))
}

/// A store on the clock of the test.
pub(crate) fn builder(cluster: &RedisCluster, prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(url(cluster))
        .prefix(prefix)
        .time_source(TimeSource::Client)
        .timeout(PATIENT)
}

pub(crate) async fn store(cluster: &RedisCluster, prefix: &str) -> RedisStore {
    builder(cluster, prefix).connect().await.unwrap()
}

/// A key on each of the three nodes.
pub(crate) fn keys(cluster: &RedisCluster, prefix: &str) -> [String; 3] {
    [0, 1, 2].map(|node| {
        let mut names = (0..).map(|number| format!("key={number}"));
        names.find(|key| cluster.node_of(&format!("{prefix}:{key}")).unwrap() == node).unwrap()
    })
}

pub(crate) fn per_day(units: u64) -> Quota {
    Quota::new(format!("{units}/day").parse().unwrap(), units).unwrap()
}

pub(crate) fn one<'a>(key: &'a str, quota: &'a Quota) -> Charge<'a> {
    Charge::new(key, quota, Cost::ONE).with_ticket(Ticket::new(1))
}

pub(crate) async fn apply(
    store: &RedisStore,
    operation: Operation,
    charges: &[Charge<'_>],
) -> Vec<Decision> {
    store.apply(operation, charges, NOW).await.unwrap().to_vec()
}

pub(crate) async fn remaining(store: &RedisStore, key: &str, quota: &Quota) -> u32 {
    let look = [Charge::new(key, quota, Cost::ZERO)];
    apply(store, Operation::Look, &look).await[0].remaining()
}
