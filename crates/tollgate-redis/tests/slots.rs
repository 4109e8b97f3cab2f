//! Slots in use, by the server's clock: what is taken comes back, by release or by itself.
//!
//! The test of a holder that dies runs its own binary again as the holder, told apart by an
//! environment variable.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Commands;
use tollgate_core::{Charge, Cost, Decision, Operation, Quota, Store, Ticket, Timestamp};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisServer;

/// In a holder: the URL of the server.
const HOLDER: &str = "TOLLGATE_TEST_HOLDER_URL";

const NAME: &str = "the_slots_of_a_holder_that_was_killed_come_back_within_their_lease";

async fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn apply(
    store: &RedisStore,
    operation: Operation,
    quota: &Quota,
    cost: u64,
    ticket: u128,
) -> Decision {
    let charge = Charge::new("key", quota, Cost::new(cost)).with_ticket(Ticket::new(ticket));
    store.apply(operation, &[charge], Timestamp::EPOCH).await.unwrap()[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_pairs_of_acquire_and_release_leave_nothing() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    const TASKS: u128 = 50;
    const PAIRS: u128 = 500;
    let server = RedisServer::start().unwrap();
    let store = Arc::new(store(&server.url()).await);
    let quota = Quota::concurrency(TASKS.try_into().unwrap(), Duration::from_secs(30)).unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for pair in 0..PAIRS {
                    let ticket = Ticket::new(task << 64 | pair);
                    let charges =
                        KEYS.map(|key| Charge::new(key, &quota, Cost::ONE).with_ticket(ticket));
                    for operation in [Operation::Spend, Operation::Release] {
                        let now = Timestamp::EPOCH;
                        let decisions = store.apply(operation, &charges, now).await.unwrap();
                        assert!(decisions.iter().all(Decision::is_allow));
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(KEYS.len() as u128 * TASKS * PAIRS, 100_000);
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
}

#[tokio::test]
async fn release_and_acquire_under_one_ticket_are_idempotent() {
    let server = RedisServer::start().unwrap();
    let store = store(&server.url()).await;
    let quota = Quota::concurrency(5, Duration::from_secs(30)).unwrap();
    for _ in 0..3 {
        assert_eq!(apply(&store, Operation::Spend, &quota, 2, 7).await.remaining(), 3);
    }
    assert_eq!(apply(&store, Operation::Spend, &quota, 3, 8).await.remaining(), 0);
    assert!(apply(&store, Operation::Spend, &quota, 1, 9).await.is_deny());
    for _ in 0..3 {
        assert_eq!(apply(&store, Operation::Release, &quota, 2, 7).await.remaining(), 2);
    }
    assert!(apply(&store, Operation::Renew, &quota, 2, 7).await.is_deny());
    assert!(apply(&store, Operation::Renew, &quota, 3, 8).await.is_allow());
    assert_eq!(server.command(&["ZCARD", "tollgate:key"]).unwrap().integer(), Some(3));
}

const LEASE: Duration = Duration::from_millis(700);

fn leased() -> Quota {
    Quota::concurrency(3, LEASE).unwrap()
}

/// Takes all slots and holds them until it is killed.
async fn hold(url: String) {
    let store = store(&url).await;
    assert!(apply(&store, Operation::Spend, &leased(), 3, 1).await.is_allow());
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let () = redis.rpush("holds", 1).unwrap();
    let _: Option<(String, u64)> = redis.blpop("never", 60.0).unwrap();
}

#[tokio::test]
async fn the_slots_of_a_holder_that_was_killed_come_back_within_their_lease() {
    if let Ok(url) = env::var(HOLDER) {
        return hold(url).await;
    }
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = store(&server.url()).await;
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(HOLDER, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _: (String, u64) = redis.blpop("holds", 30.0).unwrap();
    let denied = apply(&store, Operation::Spend, &leased(), 3, 2).await;
    let killed = Instant::now();
    // The standard library kills by SIGKILL.
    holder.kill().unwrap();
    holder.wait().unwrap();
    let retry_after = denied.retry_after().unwrap();
    assert!(retry_after > Duration::ZERO && retry_after <= LEASE, "{retry_after:?}");
    // The server's clock cannot be set, so this waits, as a client would.
    tokio::time::sleep(retry_after).await;
    assert!(apply(&store, Operation::Spend, &leased(), 3, 2).await.is_allow());
    let back_after = killed.elapsed();
    assert!(back_after < LEASE + Duration::from_millis(500), "{back_after:?}");
    let tickets: Vec<String> = redis.zrange("tollgate:key", 0, -1).unwrap();
    let mine = Ticket::new(2).to_string();
    assert_eq!(tickets, [mine.clone(), format!("{mine}:2"), format!("{mine}:3")]);
}
