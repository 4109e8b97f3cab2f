//! The private Redis Cluster fixture, on real processes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io;

use tollgate_testkit::redis_server::Reply;
use tollgate_testkit::{RedisCluster, RedisServer};

fn ok() -> Reply {
    Reply::Text("OK".to_owned())
}

/// Keys of which each belongs to another node.
fn key_of_each_node(cluster: &RedisCluster) -> Vec<String> {
    (0..cluster.nodes().len())
        .map(|index| {
            (0..).map(|n| format!("key-{n}")).find(|key| cluster.node_of(key).unwrap() == index)
        })
        .map(Option::unwrap)
        .collect()
}

#[test]
fn three_nodes_share_the_slots_and_know_each_other() {
    let cluster = RedisCluster::start(3).unwrap();
    assert_eq!(cluster.url(), cluster.urls()[0]);
    let ports: Vec<_> = cluster.nodes().iter().map(RedisServer::port).collect();
    for node in cluster.nodes() {
        let slots = node.command(&["CLUSTER", "SLOTS"]).unwrap();
        let mut ranges: Vec<_> = slots
            .items()
            .unwrap()
            .iter()
            .map(|range| {
                let range = range.items().unwrap();
                let owner = range[2].items().unwrap();
                assert_eq!(owner[0].text(), Some("127.0.0.1"));
                let number = |reply: &Reply| reply.integer().unwrap();
                (number(&range[0]), number(&range[1]), number(&owner[1]))
            })
            .collect();
        ranges.sort_unstable();
        let port = |index: usize| i64::from(ports[index]);
        let expected = [(0, 5_460, port(0)), (5_461, 10_921, port(1)), (10_922, 16_383, port(2))];
        assert_eq!(ranges, expected);
    }
    for (index, key) in key_of_each_node(&cluster).iter().enumerate() {
        assert_eq!(cluster.node(index).command(&["SET", key, "1"]).unwrap(), ok());
        let error = cluster.node((index + 1) % 3).command(&["SET", key, "1"]).unwrap_err();
        let moved = format!("127.0.0.1:{}", ports[index]);
        assert!(error.to_string().contains("MOVED"), "{error}");
        assert!(error.to_string().ends_with(&moved), "{error}");
    }
}

#[test]
fn a_restarted_node_is_empty_and_owns_its_slots_again() {
    let builder = RedisServer::builder().arg("--cluster-require-full-coverage").arg("no");
    let mut cluster = RedisCluster::start_with(2, &builder).unwrap();
    let keys = key_of_each_node(&cluster);
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(cluster.node(index).command(&["SET", key, "1"]).unwrap(), ok());
    }
    cluster.kill(1).unwrap();
    let error = cluster.node(1).command(&["PING"]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(cluster.node_of(&keys[1]).unwrap(), 1);
    let kept = cluster.node(0).command(&["GET", &keys[0]]).unwrap();
    assert_eq!(kept.text(), Some("1"));

    cluster.restart(1).unwrap();
    assert_eq!(cluster.node(1).command(&["GET", &keys[1]]).unwrap(), Reply::Nil);
    assert_eq!(cluster.node(1).command(&["SET", &keys[1], "2"]).unwrap(), ok());
}

#[test]
fn a_cluster_without_nodes_is_refused() {
    let error = RedisCluster::start(0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "a cluster of 0 nodes cannot be: give 1 to 16384");
}
