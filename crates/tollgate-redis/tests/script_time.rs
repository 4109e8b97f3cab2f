//! How long real servers say that they executed scripts.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Store, Timestamp};
use tollgate_redis::RedisStore;
use tollgate_testkit::{RedisCluster, RedisServer};

const PATIENT: Duration = Duration::from_secs(10);

async fn spend(store: &RedisStore, key: &str) {
    let quota = Quota::new("10/day".parse().unwrap(), 10).unwrap();
    let charge = Charge::new(key, &quota, Cost::ONE);
    store.apply(Operation::Spend, &[charge], Timestamp::EPOCH).await.unwrap();
}

#[tokio::test]
async fn a_server_tells_its_scripts_calls_and_time_and_forgets_them_when_it_is_told_to() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).timeout(PATIENT).connect().await.unwrap();
    let _ = server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    assert_eq!(store.script_times().await, [], "no script was executed yet");
    for _ in 0..3 {
        spend(&store, "key").await;
    }
    let times = store.script_times().await;
    assert_eq!(times.len(), 1);
    assert_eq!((times[0].server.parse(), times[0].command), (Ok(server.address()), "evalsha"));
    assert_eq!(times[0].calls, 3);
    assert!(times[0].took > Duration::ZERO && times[0].took < PATIENT, "{times:?}");
    let (median, p99) = times[0].percentiles.unwrap();
    assert!(Duration::ZERO < median && median <= p99, "{times:?}");
    assert_eq!(store.status().connections, 1, "the one for statistics is no call's");
    assert_eq!(store.status().reconnects, 0);
    let _ = server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    assert_eq!(store.script_times().await, []);
}

#[tokio::test]
async fn every_node_of_a_cluster_tells_its_own() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = RedisStore::cluster(cluster.urls()).timeout(PATIENT).connect().await.unwrap();
    for node in cluster.nodes() {
        let _ = node.command(&["CONFIG", "RESETSTAT"]).unwrap();
    }
    for index in 0..60 {
        spend(&store, &format!("key-{index}")).await;
    }
    let times = store.script_times().await;
    let mut named: Vec<_> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    named.sort_unstable();
    let told: Vec<_> = times.iter().map(|time| time.server.clone()).collect();
    assert_eq!(told, named);
    assert_eq!(times.iter().map(|time| time.calls).sum::<u64>(), 60);
}

#[tokio::test]
async fn who_may_not_ask_is_told_nothing_and_asks_once() {
    let server = RedisServer::start().unwrap();
    let user = ["ACL", "SETUSER", "shop", "on", ">right", "~*", "+@all", "-info"];
    let _ = server.command(&user).unwrap();
    let url = format!("redis://shop:right@{}", server.address());
    let store = RedisStore::builder(url).timeout(PATIENT).connect().await.unwrap();
    spend(&store, "key").await;
    for _ in 0..3 {
        assert_eq!(store.script_times().await, []);
    }
    let refusals = server.command(&["INFO", "commandstats"]).unwrap();
    let refusals = refusals.text().unwrap();
    let info = refusals.lines().find(|line| line.starts_with("cmdstat_info:")).unwrap();
    assert!(info.contains("rejected_calls=1,"), "{info}");
    spend(&store, "key").await;
}

#[tokio::test]
async fn a_server_that_is_gone_is_left_out_in_time_and_asked_again_when_it_is_back() {
    let mut server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).timeout(PATIENT).connect().await.unwrap();
    spend(&store, "key").await;
    assert_eq!(store.script_times().await.len(), 1);
    server.kill().unwrap();
    assert_eq!(store.script_times().await, []);
    server.restart().unwrap();
    spend(&store, "key").await;
    assert_eq!(store.script_times().await.len(), 1);
}
