//! One node of a Redis Cluster dies: its keys are decided by the policy, the others exactly.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Attributes, Limiter, Mode, Quota, RedisStore, Rule};
use tollgate_testkit::{RedisCluster, RedisServer};

use crate::fleet::{PATIENT, within};

/// An account on each node, in a part of the keys that is not on two.
fn accounts(cluster: &RedisCluster) -> Vec<Attributes> {
    let of = |node: usize| {
        (0..)
            .map(|number| format!("a{number}"))
            .find(|account| {
                let key = format!("tollgate:default:each:account={account}");
                cluster.node_of(&key).unwrap() == node
            })
            .map(|account| Attributes::from([("account", account.as_str())]))
            .unwrap()
    };
    (0..3).map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_dead_shard_affects_its_keys_only() {
    let builder = RedisServer::builder().arg("--cluster-require-full-coverage").arg("no");
    let mut cluster = RedisCluster::start_with(3, &builder).unwrap();
    let accounts = accounts(&cluster);
    let quota = Quota::new("1/day".parse().unwrap(), 1_000).unwrap();
    let store = RedisStore::cluster(cluster.urls()).timeout(PATIENT).connect().await.unwrap();
    let limiter = Limiter::builder()
        .rule(Rule::new("each", quota).with_key(["account"]))
        .store(store)
        .build()
        .unwrap();
    let mode = async |account: usize| limiter.check(&accounts[account]).await.unwrap().mode();
    for account in &accounts {
        assert_eq!(limiter.peek(account).await.unwrap().mode(), Mode::Exact);
    }

    cluster.kill(0).unwrap();
    // Most requests are for the dead node, so that the failures in a row are many.
    let mut local = 0;
    for round in 0..200 {
        local += u32::from(mode(0).await == Mode::Local);
        if round % 20 == 19 {
            assert_eq!((mode(1).await, mode(2).await), (Mode::Exact, Mode::Exact), "{round}");
        }
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(local, 200);
    let status = limiter.status();
    assert!(status.open_for.is_some());
    assert_eq!(status.openings, 1, "it is told once");
    assert_eq!(status.debts, 1);

    cluster.restart(0).unwrap();
    let closed = || limiter.status().open_for.is_none();
    let took = within(Duration::from_secs(10), "all keys are exact", closed).await;
    println!("exact again after {took:?}");
    let verdict = limiter.peek(&accounts[0]).await.unwrap();
    assert_eq!((verdict.mode(), verdict.remaining()), (Mode::Exact, Some(800)));
    assert_eq!(limiter.peek(&accounts[1]).await.unwrap().remaining(), Some(990));
    assert_eq!(limiter.status().debts, 0);
}
