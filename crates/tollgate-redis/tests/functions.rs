//! The script as a function, which Redis has since 7.0.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Store, StoreErrorKind, Timestamp};
use tollgate_redis::{RedisStore, RedisStoreBuilder, TimeSource};
use tollgate_testkit::redis_server::Reply;
use tollgate_testkit::{RedisCluster, RedisServer, conformance, timeline};

const PATIENT: Duration = Duration::from_secs(10);

fn builder(url: String) -> RedisStoreBuilder {
    RedisStore::builder(url).functions(true).timeout(PATIENT)
}

async fn remaining_after_spend(store: &RedisStore, key: &str) -> u32 {
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let charges = [Charge::new(key, &quota, Cost::ONE)];
    store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await.unwrap()[0].remaining()
}

/// Returns how often a server has executed a command.
fn executed(server: &RedisServer, command: &str) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let line = format!("cmdstat_{command}:calls=");
    let calls = stats.text().unwrap().lines().find_map(|found| found.strip_prefix(&line));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn g8_the_function_reproduces_every_timeline() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).time_source(TimeSource::Client).connect().await.unwrap();
    for file in timeline::ALL {
        for timeline in timeline::parse(file).unwrap() {
            conformance::replay(&store, &timeline).await.unwrap();
        }
    }
    assert!(executed(&server, "fcall") > 100);
    assert_eq!((executed(&server, "evalsha"), executed(&server, "eval")), (0, 0));
    assert_eq!(store.status().script_reloads, 0);
}

#[tokio::test]
async fn libraries_that_are_flushed_are_loaded_again_and_fail_nothing() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store, "key").await, 9);
    for reloads in 1..=3 {
        let _ = server.command(&["FUNCTION", "FLUSH"]).unwrap();
        let left = remaining_after_spend(&store, "key").await;
        assert_eq!(u64::from(left), 9 - reloads);
        assert_eq!(store.status().script_reloads, reloads);
    }
    assert_eq!(remaining_after_spend(&store, "key").await, 5);
    // A second store finds the library, and two loads of one text are one library.
    let _ = builder(server.url()).connect().await.unwrap();
    let libraries = server.command(&["FUNCTION", "LIST"]).unwrap();
    assert_eq!(libraries.items().map(<[Reply]>::len), Some(1));
}

#[tokio::test]
async fn a_server_without_functions_runs_the_script() {
    // As one before 7.0 does, it knows no such command.
    let server =
        RedisServer::builder().arg("--rename-command").arg("FUNCTION").arg("").start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store, "key").await, 9);
    assert_eq!((executed(&server, "fcall"), executed(&server, "evalsha")), (0, 2));
}

#[tokio::test]
async fn the_documented_permissions_are_enough_and_without_them_it_says_so() {
    let server = RedisServer::start().unwrap();
    let readme = include_str!("../lua/README.md");
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let mut words: Vec<_> = line.split(' ').collect();
    let extra = readme.lines().find_map(|line| line.strip_prefix("For functions: `")).unwrap();
    words.extend(extra.split('`').next().unwrap().split(' '));
    let _ = server.command(&words).unwrap();
    let login = || builder(server.url()).user("tollgate").password("password");
    let store = login().connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store, "key").await, 9);

    let _ = server.command(&["FUNCTION", "FLUSH"]).unwrap();
    let _ = server.command(&["ACL", "SETUSER", "tollgate", "-function|load"]).unwrap();
    let error = login().connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("Function not found"), "{error}");
    assert!(error.to_string().ends_with("allow its user FUNCTION LOAD"), "{error}");
}

#[tokio::test]
async fn g3_a_replica_and_a_full_server_refuse_a_function_and_spend_nothing() {
    let server = RedisServer::start().unwrap();
    let store = builder(server.url()).connect().await.unwrap();
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    for (on, off, says) in [
        (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"], "it is a replica"),
        (["CONFIG SET", "maxmemory", "1"], ["CONFIG SET", "maxmemory", "0"], "raise its maxmemory"),
    ] {
        let words = |words: [&'static str; 3]| -> Vec<&str> {
            words[0].split(' ').chain(words[1..].iter().copied()).collect()
        };
        let _ = server.command(&words(on)).unwrap();
        let error = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains(says), "{error}");
        let _ = server.command(&words(off)).unwrap();
    }
    assert_eq!(remaining_after_spend(&store, "key").await, 9);
}

#[tokio::test]
async fn the_nodes_of_a_cluster_run_the_function_too() {
    let cluster = RedisCluster::start(2).unwrap();
    let store = RedisStore::cluster(cluster.urls()).functions(true).timeout(PATIENT);
    let store = store.connect().await.unwrap();
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(remaining_after_spend(&store, key).await, 9);
    }
    for node in cluster.nodes() {
        let _ = node.command(&["FUNCTION", "FLUSH"]).unwrap();
    }
    for key in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(remaining_after_spend(&store, key).await, 8);
    }
    assert_eq!(store.status().script_reloads, 2);
    assert!(cluster.nodes().iter().all(|node| executed(node, "evalsha") == 0));
}
