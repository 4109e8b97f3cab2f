//! Nodes that announce themselves, and how many are alive.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_redis::{RedisStore, RedisStoreBuilder, TimeSource};
use tollgate_testkit::{RedisCluster, RedisServer};

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn at(millis: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(millis))
}

fn builder(url: String) -> RedisStoreBuilder {
    RedisStore::builder(url).time_source(TimeSource::Client).timeout(Duration::from_secs(5))
}

async fn announce(store: &RedisStore, node: &str, now: Timestamp) -> u32 {
    store.announce(node, now).await.map(NonZeroU32::get).unwrap()
}

#[tokio::test]
async fn an_announcement_holds_for_three_seconds() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    assert_eq!(announce(&store, "a", at(0)).await, 1);
    assert_eq!(announce(&store, "b", at(1_000)).await, 2);
    assert_eq!(announce(&store, "b", at(2_999)).await, 2);
    assert_eq!(announce(&store, "b", at(3_000)).await, 1, "the other one has ended");
    assert_eq!(announce(&store, "a", at(3_001)).await, 2);
}

#[tokio::test]
async fn the_set_of_nodes_is_under_the_prefix_and_expires_with_the_last_of_them() {
    let server = RedisServer::start().unwrap();
    let shop = builder(server.url()).prefix("shop").connect().await.unwrap();
    let bank = builder(server.url()).prefix("bank").connect().await.unwrap();
    assert_eq!(announce(&shop, "a", at(0)).await, 1);
    assert_eq!(announce(&bank, "b", at(0)).await, 1, "those of another prefix do not count");
    for key in ["shop:!nodes", "bank:!nodes"] {
        let ttl_ms = server.command(&["PTTL", key]).unwrap().integer().unwrap();
        assert!((1..=3_000).contains(&ttl_ms), "{key}: {ttl_ms} ms");
    }
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(2));
}

#[tokio::test]
async fn by_default_announcements_end_by_the_clock_of_the_server() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).connect().await.unwrap();
    assert_eq!(announce(&store, "a", Timestamp::EPOCH).await, 1);
    assert_eq!(announce(&store, "b", Timestamp::MAX).await, 2);
    let end = server.command(&["ZSCORE", "tollgate:!nodes", "a"]).unwrap();
    let now = server.command(&["TIME"]).unwrap();
    let now_s: f64 = now.items().unwrap()[0].text().unwrap().parse().unwrap();
    let end_s = end.text().unwrap().parse::<f64>().unwrap() / 1_000.0;
    assert!((now_s..now_s + 4.0).contains(&end_s), "{end_s} after {now_s}");
}

#[tokio::test]
async fn in_a_cluster_all_nodes_are_in_one_slot() {
    let cluster = RedisCluster::start(3).unwrap();
    let url = format!("redis+cluster://{}", cluster.nodes()[0].address());
    let store = builder(url).connect().await.unwrap();
    assert_eq!(announce(&store, "a", at(0)).await, 1);
    assert_eq!(announce(&store, "b", at(0)).await, 2);
}

#[tokio::test]
async fn a_set_that_is_not_ours_is_an_error_and_stays() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    server.command(&["SET", "tollgate:!nodes", "not ours"]).unwrap();
    assert!(store.announce("a", at(0)).await.is_err());
    assert_eq!(server.command(&["GET", "tollgate:!nodes"]).unwrap().text(), Some("not ours"));
}

#[tokio::test]
async fn a_foreign_value_in_the_place_of_the_nodes_is_named() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    let _ = server.command(&["SET", "tollgate:!nodes", "x"]).unwrap();
    let error = store.announce("a", at(0)).await.unwrap_err();
    assert!(error.is_corrupt());
    assert!(error.to_string().contains("remove the key PREFIX:!nodes"), "{error}");
}
