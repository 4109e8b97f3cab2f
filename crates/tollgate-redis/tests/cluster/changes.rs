//! What becomes of calls while a cluster changes under load: a node dies, a slot moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tollgate_core::{Charge, Cost, Operation, Quota, Store, StoreError};
use tollgate_redis::RedisStore;
use tollgate_testkit::{RedisCluster, RedisServer};

use crate::support::{NOW, PATIENT, builder, keys, remaining};

const BURST: u64 = 1_000_000;

/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(500);

fn quota() -> Quota {
    Quota::new("1/day".parse().unwrap(), BURST).unwrap()
}

async fn spend(store: &RedisStore, key: &str) -> Result<(), StoreError> {
    let quota = quota();
    let charges = [Charge::new(key, &quota, Cost::ONE)];
    let decided = store.apply(Operation::Spend, &charges, NOW).await?;
    assert!(decided[0].is_allow());
    Ok(())
}

/// What one task has seen.
#[derive(Default)]
struct Seen {
    allowed: u64,
    errors: Vec<StoreError>,
    longest: Duration,
}

/// A task that spends on a key until told to end.
fn spending(store: &Arc<RedisStore>, key: &str, end: &Arc<AtomicBool>) -> JoinHandle<Seen> {
    let (store, key, end) = (Arc::clone(store), key.to_owned(), Arc::clone(end));
    tokio::spawn(async move {
        let mut seen = Seen::default();
        while !end.load(Ordering::Relaxed) {
            let start = Instant::now();
            match spend(&store, &key).await {
                Ok(()) => seen.allowed += 1,
                Err(error) => seen.errors.push(error),
            }
            seen.longest = seen.longest.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_replica_takes_over_from_a_node_that_dies_and_the_others_serve_on() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let server = RedisServer::builder()
        .arg("--cluster-node-timeout")
        .arg("1000")
        .arg("--cluster-require-full-coverage")
        .arg("no");
    let mut cluster = RedisCluster::start_with_replicas(3, &server).unwrap();
    let keys = keys(&cluster, "dies");
    let store = builder(&cluster, "dies").timeout(TIMEOUT).connect().await.unwrap();
    let store = Arc::new(store);
    let end = Arc::new(AtomicBool::new(false));
    let tasks = keys.each_ref().map(|key| spending(&store, key, &end));
    tokio::time::sleep(Duration::from_millis(100)).await;

    cluster.kill(1).unwrap();
    let start = Instant::now();
    // The task's own calls find the new node; this only waits until it serves.
    while spend(&store, &keys[1]).await.is_err() {
        assert!(start.elapsed() < PATIENT, "{store:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = start.elapsed();
    // A second to see it, half a second and some to vote.
    assert!(took > Duration::from_secs(1) && took < PATIENT, "{took:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    end.store(true, Ordering::Relaxed);
    let mut seen = Vec::new();
    for task in tasks {
        seen.push(task.await.unwrap());
    }
    for seen in &seen {
        assert!(seen.longest < TIMEOUT + SLACK, "{:?}", seen.longest);
        assert!(seen.errors.iter().all(|error| error.is_unavailable() || error.is_timeout()));
    }
    // The dead shard affects its keys only, and the others are exact.
    for index in [0, 2] {
        assert!(seen[index].errors.is_empty(), "{:?}", seen[index].errors);
        let left = remaining(&store, &keys[index], &quota()).await;
        assert_eq!(BURST - u64::from(left), seen[index].allowed);
    }
    assert!(!seen[1].errors.is_empty());
}

fn move_slot(cluster: &RedisCluster, full: &str, from: usize, to: usize) {
    let (source, target) = (cluster.node(from), cluster.node(to));
    let id = |node: &RedisServer| {
        let id = node.command(&["CLUSTER", "MYID"]).unwrap();
        id.text().unwrap().to_owned()
    };
    let slot =
        source.command(&["CLUSTER", "KEYSLOT", full]).unwrap().integer().unwrap().to_string();
    let set = |node: &RedisServer, words: &[&str]| {
        let words: Vec<_> = ["CLUSTER", "SETSLOT", &slot].iter().chain(words).copied().collect();
        drop(node.command(&words).unwrap());
    };
    set(target, &["IMPORTING", &id(source)]);
    set(source, &["MIGRATING", &id(target)]);
    let port = target.port().to_string();
    drop(source.command(&["MIGRATE", "127.0.0.1", &port, full, "0", "5000"]).unwrap());
    let owner = id(target);
    let others = (0..cluster.nodes().len()).filter(|node| ![from, to].contains(node));
    for node in [to, from].into_iter().chain(others) {
        set(cluster.node(node), &["NODE", &owner]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_to_and_fro_under_load_fails_nothing_and_loses_nothing() {
    let cluster = RedisCluster::start(3).unwrap();
    let keys = keys(&cluster, "moves");
    let store = Arc::new(builder(&cluster, "moves").connect().await.unwrap());
    let end = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8).map(|_| spending(&store, &keys[0], &end)).collect();
    let full = format!("moves:{}", keys[0]);
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1)] {
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::task::block_in_place(|| move_slot(&cluster, &full, from, to));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    end.store(true, Ordering::Relaxed);
    let mut allowed = 0;
    for task in tasks {
        let seen = task.await.unwrap();
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
        allowed += seen.allowed;
    }
    assert!(allowed > 100 && store.status().redirects >= 5, "{allowed} {:?}", store.status());
    assert_eq!(BURST - u64::from(remaining(&store, &keys[0], &quota()).await), allowed);
}

#[tokio::test]
async fn a_new_node_that_takes_a_slot_over_is_connected_to_once() {
    let cluster = RedisCluster::start(1).unwrap();
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let bus = bus.to_string();
    let new = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port"];
    let new = new.into_iter().fold(RedisServer::builder(), |builder, arg| builder.arg(arg));
    let new = new.arg(&bus).start().unwrap();
    let old = cluster.node(0);
    let port = new.port().to_string();
    let _ = old.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).unwrap();
    let start = Instant::now();
    let id = |node: &RedisServer| {
        let id = node.command(&["CLUSTER", "MYID"]).unwrap();
        id.text().unwrap().to_owned()
    };
    let slot = old.command(&["CLUSTER", "KEYSLOT", "new:key"]).unwrap().integer().unwrap();
    let slot = slot.to_string();
    // Only when both have heard who serves what can a slot be handed over.
    let knows = |node: &RedisServer| {
        let info = node.command(&["CLUSTER", "INFO"]).unwrap();
        let text = info.text().unwrap();
        text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:2")
    };
    while !knows(old) || !knows(&new) {
        assert!(start.elapsed() < PATIENT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _ = new.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(old)]).unwrap();
    let _ = old.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&new)]).unwrap();
    let store = builder(&cluster, "new").connect().await.unwrap();
    for _ in 0..100 {
        spend(&store, "key").await.unwrap();
    }
    assert_eq!(store.status().redirects, 100);
    let clients = new.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
    let of_the_store = |line: &&str| line.contains("cmd=eval");
    assert_eq!(clients.text().unwrap().lines().filter(of_the_store).count(), 1, "{clients:?}");
    assert_eq!(remaining(&store, "key", &quota()).await, u32::try_from(BURST).unwrap() - 100);
    let clients = new.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
    assert_eq!(clients.text().unwrap().lines().count(), 2, "{clients:?}");
}
