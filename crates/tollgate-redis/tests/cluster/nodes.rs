//! Nodes that forget, move slots, hang and die.

use std::time::{Duration, Instant};

use tollgate_core::{Decision, Operation, Store, Ticket};
use tollgate_redis::RedisStore;
use tollgate_testkit::{RedisCluster, RedisServer};

use crate::support::{
    NOW, PATIENT, SHARED, apply, builder, keys, one, per_day, remaining, store, url,
};

#[tokio::test]
async fn one_node_of_the_url_is_enough_and_ping_asks_all() {
    let mut dead = RedisServer::start().unwrap();
    dead.kill().unwrap();
    for node in SHARED.nodes() {
        let url = format!("redis+cluster://{},{}", dead.address(), node.address());
        let store =
            RedisStore::builder(url).prefix("one").timeout(PATIENT).connect().await.unwrap();
        store.ping().await.unwrap();
    }
    let error = RedisStore::builder(format!("redis+cluster://{}", dead.address()))
        .connect()
        .await
        .unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let single = RedisServer::start().unwrap();
    let error = RedisStore::builder(format!("redis+cluster://{}", single.address()))
        .connect()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("it is not a node of a Redis Cluster"), "{error}");
    let node = RedisStore::builder(SHARED.url()).connect().await.unwrap();
    let quota = per_day(5);
    for key in keys(&SHARED, "tollgate") {
        if let Err(error) = node.apply(Operation::Spend, &[one(&key, &quota)], NOW).await {
            assert!(error.to_string().ends_with("write redis+cluster://"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_store_that_connects_lazily_finds_the_nodes_at_its_first_call() {
    let store = builder(&SHARED, "lazy").connect_lazily().unwrap();
    let keys = keys(&SHARED, "lazy");
    let quota = per_day(5);
    let decided =
        apply(&store, Operation::Spend, &keys.each_ref().map(|key| one(key, &quota))).await;
    assert!(decided.iter().all(|one| one.remaining() == 4));
    let name = format!("{store:?}");
    assert!(name.contains(&SHARED.node(0).address().to_string()), "{name}");
}

#[tokio::test]
async fn the_documented_permissions_are_enough_and_a_password_reaches_all_nodes() {
    let readme = include_str!("../../lua/README.md");
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let line = line.replace("tollgate:*", "permitted:*");
    for node in SHARED.nodes() {
        let _ = node.command(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let url = url(&SHARED).replace("://", "://tollgate:password@");
    let store =
        RedisStore::builder(url).prefix("permitted").timeout(PATIENT).connect().await.unwrap();
    let keys = keys(&SHARED, "permitted");
    let quota = per_day(5);
    let charges = keys.each_ref().map(|key| one(key, &quota));
    let reserve = Operation::Reserve { ttl: Duration::from_secs(30) };
    // A ticket stands for one refund or one reservation.
    for (operation, ticket) in
        [(Operation::Spend, 1), (Operation::Refund, 1), (reserve, 2), (Operation::Settle, 2)]
    {
        let charges = charges.map(|charge| charge.with_ticket(Ticket::new(ticket)));
        let decided = apply(&store, operation, &charges).await;
        assert!(decided.iter().all(Decision::is_allow), "{operation:?}: {decided:?}");
    }
    assert!(!format!("{store:?}").contains("password"));
}

#[tokio::test]
async fn a_forgotten_script_is_sent_to_the_node_that_forgot_it() {
    let cluster = RedisCluster::start(2).unwrap();
    let store = store(&cluster, "forgot").await;
    let quota = per_day(9);
    let mut names = (0..).map(|number| format!("key={number}"));
    let key = names.find(|key| cluster.node_of(&format!("forgot:{key}")).unwrap() == 1).unwrap();
    let charges = [one(&key, &quota)];
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 8);
    for node in cluster.nodes() {
        let _ = node.command(&["SCRIPT", "FLUSH"]).unwrap();
    }
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 7);
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 6);
    assert_eq!(store.status().script_reloads, 1);
}

#[tokio::test]
async fn a_slot_that_moves_to_another_node_keeps_its_buckets() {
    let cluster = RedisCluster::start(3).unwrap();
    let store = store(&cluster, "moves").await;
    let quota = per_day(9);
    let keys = keys(&cluster, "moves");
    let key = &keys[0];
    let charges = [one(key, &quota)];
    let full = format!("moves:{key}");
    let (from, to) = (cluster.node(0), cluster.node(1));
    let id =
        |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).unwrap().text().unwrap().to_owned();
    let slot = from.command(&["CLUSTER", "KEYSLOT", &full]).unwrap().integer().unwrap().to_string();
    let (from_id, to_id) = (id(from), id(to));
    let ok = |node: &RedisServer, words: &[&str]| drop(node.command(words).unwrap());
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 8);

    ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    // The key is still where it was, and then it is not: the node answers ASK.
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 7);
    let port = to.port().to_string();
    ok(from, &["MIGRATE", "127.0.0.1", &port, &full, "0", "5000"]);
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 6);
    // The other node has no script of this store yet.
    ok(to, &["SCRIPT", "FLUSH"]);
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 5);

    for node in [to, from, cluster.node(2)] {
        ok(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    // The node that had it answers MOVED, once.
    for left in [4, 3, 2] {
        assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), left);
    }
    let all = keys.each_ref().map(|key| one(key, &quota));
    let left: Vec<_> =
        apply(&store, Operation::Spend, &all).await.iter().map(Decision::remaining).collect();
    assert_eq!(left, [1, 8, 8]);
}

/// A cluster whose nodes go on to answer when one of them does not.
fn partial() -> RedisCluster {
    let builder = RedisServer::builder().arg("--cluster-require-full-coverage").arg("no");
    RedisCluster::start_with(3, &builder).unwrap()
}

#[tokio::test]
async fn g7_what_other_slots_took_is_given_back_when_one_fails() {
    const TIMEOUT: Duration = Duration::from_millis(300);
    let mut cluster = partial();
    let store = builder(&cluster, "fails").timeout(TIMEOUT).connect().await.unwrap();
    let keys = keys(&cluster, "fails");
    let quota = per_day(5);
    let all = keys.each_ref().map(|key| one(key, &quota));
    let first = apply(&store, Operation::Spend, &all).await;
    assert!(first.iter().all(|one| one.remaining() == 4));

    cluster.node(2).pause().unwrap();
    let start = Instant::now();
    let error = store.apply(Operation::Spend, &all, NOW).await.unwrap_err();
    let took = start.elapsed();
    assert!(error.is_timeout(), "{error}");
    let node = cluster.node(2).address().to_string();
    assert!(error.to_string().contains(&node), "{error}");
    assert!(took >= TIMEOUT && took < TIMEOUT + Duration::from_millis(700), "{took:?}");
    // Shadow or not, a request that failed has spent nothing.
    let shadow = all.map(|charge| charge.with_shadow(true));
    assert!(store.apply(Operation::Spend, &shadow, NOW).await.unwrap_err().is_timeout());
    let start = Instant::now();
    for key in &keys[..2] {
        // The deadline has passed meanwhile, so it is given back in the background.
        while remaining(&store, key, &quota).await != 4 {
            assert!(start.elapsed() < PATIENT);
        }
    }
    cluster.node(2).resume().unwrap();

    cluster.kill(2).unwrap();
    for _ in 0..3 {
        let error = store.apply(Operation::Spend, &all, NOW).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        for key in &keys[..2] {
            assert_eq!(remaining(&store, key, &quota).await, 4);
        }
    }
    cluster.restart(2).unwrap();
    let start = Instant::now();
    let decided = loop {
        match store.apply(Operation::Spend, &all, NOW).await {
            Ok(decided) => break decided,
            Err(error) => assert!(start.elapsed() < PATIENT, "{error}"),
        }
    };
    // What was on the node that died is gone.
    let left: Vec<_> = decided.iter().map(Decision::remaining).collect();
    assert_eq!(left, [3, 3, 4]);
}

#[tokio::test]
async fn a_replica_that_took_over_is_found_when_its_primary_hangs() {
    let cluster = RedisCluster::start(3).unwrap();
    let keys = keys(&cluster, "failover");
    let quota = per_day(9);
    let charges = [one(&keys[1], &quota)];
    let store =
        builder(&cluster, "failover").timeout(Duration::from_millis(300)).connect().await.unwrap();
    assert_eq!(apply(&store, Operation::Spend, &charges).await[0].remaining(), 8);

    // Another node takes the slots over, as a replica would, while the one that had them hangs and
    // can tell nobody.
    let (hangs, takes) = (cluster.node(1), cluster.node(0));
    let full = format!("failover:{}", keys[1]);
    let slot =
        takes.command(&["CLUSTER", "KEYSLOT", &full]).unwrap().integer().unwrap().to_string();
    let id = takes.command(&["CLUSTER", "MYID"]).unwrap().text().unwrap().to_owned();
    hangs.pause().unwrap();
    for node in [takes, cluster.node(2)] {
        let _ = node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]).unwrap();
    }
    let start = Instant::now();
    let decided = loop {
        match store.apply(Operation::Spend, &charges, NOW).await {
            Ok(decided) => break decided,
            Err(error) => assert!(start.elapsed() < PATIENT, "{error}"),
        }
    };
    assert_eq!(decided[0].remaining(), 8);
    // A second without any answer is what a store takes for a sign.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    hangs.resume().unwrap();
}
