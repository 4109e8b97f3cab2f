//! Shards of one key on a real Redis Cluster of three processes.
#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::num::NonZeroU8;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Attributes, Cost, HotKeys, Limiter, Mode, Quota, RedisStore, Rule};
use tollgate_testkit::RedisCluster;

const SHARDS: u8 = 16;

async fn limiter(cluster: &RedisCluster, burst: u64) -> Limiter {
    // So slow that nothing refills meanwhile.
    let quota = Quota::new("16/day".parse().unwrap(), burst).unwrap();
    let rule =
        Rule::new("all", quota).with_hot_keys(HotKeys::Shards(NonZeroU8::new(SHARDS).unwrap()));
    let store = RedisStore::cluster(cluster.urls()).timeout(Duration::from_secs(10));
    Limiter::builder().rule(rule).store(store.connect().await.unwrap()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_one_keys_shards_live_on_all_nodes_and_admit_what_the_whole_does() {
    const BURST: u64 = 3_203;
    let cluster = RedisCluster::start(3).unwrap();
    let nodes = [limiter(&cluster, BURST).await, limiter(&cluster, BURST).await];
    let request = Attributes::new();
    assert_eq!(nodes[0].peek(&request).await.unwrap().remaining(), Some(3_203));

    let mut asking = JoinSet::new();
    for number in 0..32 {
        let node = nodes[number % 2].clone();
        asking.spawn(async move {
            let (mut admitted, mut denied) = (0, 0);
            // Nobody waits for units, and each of the last ones may be in any shard.
            while denied < 200 {
                let verdict = node.check(&Attributes::new()).await.unwrap();
                assert_eq!(verdict.mode(), Mode::Exact);
                match verdict.is_allowed() {
                    true => admitted += 1,
                    false => denied += 1,
                }
            }
            admitted
        });
    }
    let admitted: u64 = asking.join_all().await.iter().sum();
    assert_eq!(admitted, BURST);
    let left = nodes[1].peek_n(&request, Cost::ONE).await.unwrap();
    assert_eq!((left.is_allowed(), left.remaining()), (false, Some(0)));

    let mut on_node = [0; 3];
    for shard in 0..SHARDS {
        let key = format!("tollgate:default:all:@shard={shard}");
        let node = cluster.node_of(&key).unwrap();
        let exists = cluster.node(node).command(&["EXISTS", &key]).unwrap();
        assert_eq!(format!("{exists:?}"), "Integer(1)", "{key}");
        on_node[node] += 1;
    }
    assert!(on_node.iter().all(|shards| *shards >= 4), "{on_node:?}");

    // Where a shard was charged is where it is given back, on whatever node.
    let _ = nodes[0].reset(&request).await.unwrap();
    let ttl = Duration::from_secs(60);
    for units in [201, 150, 7, 1] {
        let reserved = nodes[0].reserve(&request, Cost::new(units), ttl).await.unwrap();
        let hold = reserved.into_hold().unwrap().to_string().parse().unwrap();
        let _ = nodes[1].cancel(&hold).await.unwrap();
        assert!(nodes[0].cancel(&hold).await.unwrap_err().is_not_held());
        assert_eq!(nodes[1].peek(&request).await.unwrap().remaining(), Some(3_203));
    }
}
