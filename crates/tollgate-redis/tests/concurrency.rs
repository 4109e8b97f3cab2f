//! Many callers of one key, on the test's clock and on the server's (G1, G2, G6).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tollgate_core::{
    Algorithm, Charge, Cost, Decision, Operation, Quota, Store, Ticket, Timestamp,
};
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

/// 1,000 units of each algorithm, none of which come back while the clock stands.
fn thousands() -> [Quota; 6] {
    let rate = "1000/s".parse().unwrap();
    [
        Quota::new(rate, 1_000).unwrap(),
        Quota::leaky_bucket(rate, 1_000).unwrap(),
        Quota::fixed_window(rate).unwrap(),
        Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT).unwrap(),
        Quota::sliding_log(rate).unwrap(),
        Quota::concurrency(1_000, Duration::from_secs(30)).unwrap(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_many_tasks_on_a_standing_clock_admit_exactly_the_limit() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Client).await;
    for quota in thousands() {
        let key = quota.algorithm().as_str();
        let tasks: Vec<_> = (0..64_u128)
            .map(|task| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let mut left = Vec::new();
                    for call in 0..25 {
                        let ticket = Ticket::new(task << 64 | call);
                        let charge = Charge::new(key, &quota, Cost::ONE).with_ticket(ticket);
                        let decisions = store.apply(Operation::Spend, &[charge], NOW).await;
                        if let Decision::Allow(allow) = decisions.unwrap()[0] {
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
        assert_eq!(left, (0..1_000).collect::<Vec<u32>>(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_overlapping_requests_of_all_algorithms_spend_in_all_buckets_or_in_none() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Client).await;
    let quotas = Arc::new(thousands());
    let tasks: Vec<_> = (0..32_usize)
        .map(|task| {
            let (store, quotas) = (Arc::clone(&store), Arc::clone(&quotas));
            tokio::spawn(async move {
                let mut spent = [0; 6];
                for call in 0..40 {
                    let ticket = Ticket::new((task as u128) << 64 | call);
                    // Three of the six, in an order of their own.
                    let chosen = [0, 1, 2].map(|step| (task + step * (1 + task % 2)) % 6);
                    let charges: Vec<_> = (1..)
                        .zip(chosen)
                        .map(|(cost, index)| {
                            let quota = &quotas[index];
                            Charge::new(quota.algorithm().as_str(), quota, Cost::new(cost))
                                .with_ticket(ticket)
                        })
                        .collect();
                    let decisions = store.apply(Operation::Spend, &charges, NOW).await.unwrap();
                    if decisions.iter().all(Decision::is_allow) {
                        for (charge, index) in charges.iter().zip(chosen) {
                            spent[index] += charge.cost.units();
                        }
                    }
                }
                spent
            })
        })
        .collect();
    let mut spent = [0; 6];
    for task in tasks {
        for (sum, of_task) in spent.iter_mut().zip(task.await.unwrap()) {
            *sum += of_task;
        }
    }
    for (quota, spent) in quotas.iter().zip(spent) {
        let look = [Charge::new(quota.algorithm().as_str(), quota, Cost::ZERO)];
        let decisions = store.apply(Operation::Look, &look, NOW).await.unwrap();
        assert_eq!(1_000 - u64::from(decisions[0].remaining()), spent, "{}", quota.algorithm());
    }
    // Some were denied, or nothing would be shown.
    assert!(spent.iter().sum::<u64>() < 32 * 40 * 6, "{spent:?}");
    assert!(spent.iter().any(|spent| *spent > 990), "{spent:?}");
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
    // Two minutes until it is full, 5 s more, and a slack of 10 s and an eighth.
    assert!((149_000..=150_000).contains(&after_spend), "{after_spend}");
    // Neither a denial nor a look extends it.
    let _ = apply(&store, Operation::Spend, &quota, 5).await;
    let _ = apply(&store, Operation::Look, &quota, 1).await;
    assert!(ttl() <= after_spend);
    let _ = apply(&store, Operation::Refund, &quota, 1).await;
    assert!((145_000..=after_spend).contains(&ttl()), "{}", ttl());
    let _ = apply(&store, Operation::Refund, &quota, 1).await;
    assert_eq!(ttl(), -2);
}

#[tokio::test]
async fn g5_the_ttl_is_set_now_and_then_and_always_reaches_until_the_bucket_is_full() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, TimeSource::Server).await;
    let pexpires = || {
        let stats = server.command(&["INFO", "commandstats"]).unwrap();
        let line = stats
            .text()
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_pexpire:calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    };
    let spend_all = async |quota: &Quota| {
        let keys: Vec<_> = (0..100).map(|number| format!("{}:{number}", quota.burst())).collect();
        let spend = async |key: &String| {
            let charge = Charge::new(key, quota, Cost::ONE);
            let decisions = store.apply(Operation::Spend, &[charge], Timestamp::EPOCH).await;
            assert!(decisions.unwrap()[0].is_allow());
        };
        join_all(keys.iter().map(spend)).await;
        let ttl = |key: &String| {
            server.command(&["PTTL", &format!("tollgate:{key}")]).unwrap().integer().unwrap()
        };
        keys.iter().map(ttl).min().unwrap()
    };
    // Each spends a millisecond's worth, so the first TTL is enough for all.
    let fast = Quota::new("1000/s".parse().unwrap(), 1_000).unwrap();
    for _ in 0..10 {
        assert!(spend_all(&fast).await > 5_000);
    }
    let once = pexpires();
    assert!((100..=200).contains(&once), "{once} for 1,000 spendings");
    // Each spends a minute's worth, which the slack does not cover.
    let slow = Quota::new("1/min".parse().unwrap(), 5).unwrap();
    for minutes in 1..=4 {
        let least = spend_all(&slow).await;
        assert!(least > minutes * 60_000 + 4_000, "{least} ms after {minutes}");
    }
    assert_eq!(pexpires(), once + 400);
}

#[tokio::test]
async fn g5_where_the_callers_clock_decides_every_write_sets_the_ttl() {
    let server = RedisServer::start().unwrap();
    let by_server = store(&server, TimeSource::Server).await;
    let by_client = store(&server, TimeSource::Client).await;
    let quota = Quota::new("1/min".parse().unwrap(), 5).unwrap();
    let has_expires =
        || server.command(&["HEXISTS", "tollgate:key", "expires"]).unwrap().integer().unwrap();
    let ttl = || server.command(&["PTTL", "tollgate:key"]).unwrap().integer().unwrap();
    let _ = apply(&by_server, Operation::Spend, &quota, 2).await;
    assert_eq!(has_expires(), 1);
    let charge = Charge::new("key", &quota, Cost::ONE);
    let now = redis_time(&server);
    let spent = by_client.apply(Operation::Spend, &[charge], now).await.unwrap();
    assert_eq!(spent[0].remaining(), 2);
    assert_eq!(has_expires(), 0);
    assert!((180_000..=185_000).contains(&ttl()), "{}", ttl());
    let _ = apply(&by_server, Operation::Spend, &quota, 1).await;
    assert_eq!(has_expires(), 1);
    assert!(ttl() > 240_000, "{}", ttl());
}
