//! Many callers of one key, on the test's clock and on the server's (G1, G2, G6).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Charge, Cost, Decision, Operation, Quota, Store, Timestamp};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

async fn store(server: &RedisServer, time_source: TimeSource) -> Arc<RedisStore> {
    let builder = RedisStore::builder(server.url()).time_source(time_source);
    Arc::new(builder.timeout(Duration::from_secs(10)).connect().await.unwrap())
}

async fn apply(store: &RedisStore, operation: Operation, quota: &Quota, cost: u64) -> Decision {
    let charges = [Charge::new("key", quota, Cost::new(cost))];
    store.apply(operation, &charges, NOW).await.unwrap()[0]
}

fn redis_time(server: &RedisServer) -> Timestamp {
    let time = server.command(&["TIME"]).unwrap();
    let part =
        |index: usize| -> u64 { time.items().unwrap()[index].text().unwrap().parse().unwrap() };
    Timestamp::from_micros(part(0) * 1_000_000 + part(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_many_tasks_on_a_standing_clock_admit_exactly_the_burst() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Client).await;
    let quota = Quota::new("1000/s".parse().unwrap(), 1_000).unwrap();
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut left = Vec::new();
                for _ in 0..50 {
                    if let Decision::Allow(allow) = apply(&store, Operation::Spend, &quota, 1).await
                    {
                        left.push(allow.remaining);
                    }
                }
                left
            })
        })
        .collect();
    let mut left = Vec::new();
    for task in tasks {
        left.extend(task.await.unwrap());
    }
    // A serial order: each unit was given to one caller.
    left.sort_unstable();
    assert_eq!(left, (0..1_000).collect::<Vec<u32>>());
}

#[tokio::test]
async fn g1_the_servers_clock_admits_no_more_than_burst_and_rate_allow() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Server).await;
    let (rate, burst) = (2_000_u64, 100_u64);
    let quota = Quota::new(format!("{rate}/s").parse().unwrap(), burst).unwrap();
    let before = redis_time(&server);
    let mut admitted = 0_u128;
    for _ in 0..2_000 {
        let decision = apply(&store, Operation::Spend, &quota, 1).await;
        assert_eq!(decision.limit(), 100);
        assert!(decision.remaining() < 100);
        assert!(decision.reset_after() <= quota.fill_time(), "{decision:?}");
        match decision {
            Decision::Allow(_) => admitted += 1,
            Decision::Deny(deny) => {
                assert_eq!(deny.remaining, 0);
                assert!(deny.retry_after <= Duration::from_micros(500), "{deny:?}");
                assert!(deny.retry_after > Duration::ZERO);
                assert_eq!(deny.reset_after - deny.retry_after, Duration::from_micros(49_500));
            }
        }
    }
    let elapsed = redis_time(&server).saturating_since(before);
    let gained = u128::from(rate) * elapsed.as_micros() / 1_000_000;
    assert!(admitted >= u128::from(burst), "{admitted}");
    assert!(admitted <= u128::from(burst) + gained, "{admitted} in {elapsed:?}");
}

#[tokio::test]
async fn the_servers_clock_is_used_whatever_now_says() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Server).await;
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let before = redis_time(&server);
    assert_eq!(apply(&store, Operation::Spend, &quota, 4).await.remaining(), 6);
    let after = redis_time(&server);
    let ts = server.command(&["HGET", "tollgate:key", "ts"]).unwrap();
    let ts = Timestamp::from_micros(ts.text().unwrap().parse().unwrap());
    assert!(before <= ts && ts <= after, "{before} {ts} {after}");
    let refunded = apply(&store, Operation::Refund, &quota, 1).await;
    assert_eq!(refunded.remaining(), 7);
    assert!(refunded.reset_after() > Duration::from_secs(86_400 * 3 - 60));
}

#[tokio::test]
async fn g2_a_denial_ends_when_it_says_by_the_servers_clock() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Server).await;
    let quota = Quota::new("2/s".parse().unwrap(), 1).unwrap();
    assert!(apply(&store, Operation::Spend, &quota, 1).await.is_allow());
    for _ in 0..2 {
        let denied = apply(&store, Operation::Spend, &quota, 1).await;
        // The server's clock cannot be set, so this waits, as a client would.
        tokio::time::sleep(denied.retry_after().unwrap()).await;
        assert!(apply(&store, Operation::Spend, &quota, 1).await.is_allow());
    }
}

#[tokio::test]
async fn g5_a_key_expires_by_itself_and_only_when_its_bucket_is_full() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Server).await;
    let quota = Quota::new("1/min".parse().unwrap(), 5).unwrap();
    let ttl = || server.command(&["PTTL", "tollgate:key"]).unwrap().integer().unwrap();
    let _ = apply(&store, Operation::Spend, &quota, 2).await;
    let after_spend = ttl();
    assert!((124_000..=125_000).contains(&after_spend), "{after_spend}");
    // Neither a denial nor a look extends it.
    let _ = apply(&store, Operation::Spend, &quota, 5).await;
    let _ = apply(&store, Operation::Look, &quota, 1).await;
    assert!(ttl() <= after_spend);
    let _ = apply(&store, Operation::Refund, &quota, 1).await;
    assert!((64_000..=65_000).contains(&ttl()), "{}", ttl());
    let _ = apply(&store, Operation::Refund, &quota, 1).await;
    assert_eq!(ttl(), -2);
}
