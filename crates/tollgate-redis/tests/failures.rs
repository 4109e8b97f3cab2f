//! What the store does when Redis forgets, is slow, is gone or refuses (G3, G10).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{
    Charge, Cost, Decision, Operation, Quota, Store, StoreError, StoreErrorKind, Ticket, Timestamp,
};
use tollgate_redis::{RedisStore, RedisStoreBuilder};
use tollgate_testkit::RedisServer;
use tollgate_testkit::redis_server::Reply;

/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(500);

const TIMEOUT: Duration = Duration::from_millis(50);

/// A deadline for tests that are not about it.
const PATIENT: Duration = Duration::from_secs(10);

/// One unit a day: nothing comes back during a test.
fn quota(burst: u64) -> Quota {
    Quota::new("1/day".parse().unwrap(), burst).unwrap()
}

fn builder(server: &RedisServer) -> RedisStoreBuilder {
    RedisStore::builder(server.url()).timeout(PATIENT)
}

async fn spend(store: &RedisStore, quota: &Quota) -> Result<Decision, StoreError> {
    let charges = [Charge::new("key", quota, Cost::ONE)];
    let decisions = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await?;
    Ok(decisions[0])
}

/// Waits for the connection that the store makes by itself. No call is made meanwhile.
async fn found_again(store: &RedisStore) {
    let start = Instant::now();
    while store.status().connections == 0 {
        assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", store.status());
        tokio::task::yield_now().await;
    }
}

async fn remaining_after_spend(store: &RedisStore, quota: &Quota) -> u32 {
    let decision = spend(store, quota).await.unwrap();
    assert!(decision.is_allow());
    decision.remaining()
}

fn command(server: &RedisServer, words: &[&str]) -> Reply {
    server.command(words).unwrap()
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again_and_fails_nothing() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let quota = quota(10);
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    for round in 1..=3 {
        let _ = command(&server, &["SCRIPT", "FLUSH"]);
        assert_eq!(store.status().script_reloads, round - 1);
        assert_eq!(u64::from(remaining_after_spend(&store, &quota).await), 9 - round);
        assert_eq!(store.status().script_reloads, round);
    }
    assert_eq!(remaining_after_spend(&store, &quota).await, 5);
    assert_eq!(store.status().script_reloads, 3);
}

#[tokio::test]
async fn a_restarted_server_is_found_again_within_a_second() {
    let mut server = RedisServer::start().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let quota = quota(10);
    for _ in 0..3 {
        assert_eq!(remaining_after_spend(&store, &quota).await, 9);
        server.kill().unwrap();
        let error = spend(&store, &quota).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(store.ping().await.unwrap_err().is_unavailable());
        server.restart().unwrap();
        found_again(&store).await;
    }
    // Connecting loads the script, so the calls did not have to.
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    let status = store.status();
    assert_eq!((status.script_reloads, status.reconnects, status.connections), (0, 3, 1));
}

#[tokio::test]
async fn calls_that_are_under_way_when_the_server_dies_fail_as_unavailable() {
    let mut server = RedisServer::start().unwrap();
    let store = Arc::new(builder(&server).coalescing(false).connect().await.unwrap());
    server.pause().unwrap();
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { spend(&store, &quota(10)).await })
        })
        .collect();
    // This runtime has one thread, so all of them are sent after a few turns.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    server.kill().unwrap();
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(error.to_string().contains("broke before the answer"), "{error}");
    }
    server.restart().unwrap();
    found_again(&store).await;
    assert_eq!(remaining_after_spend(&store, &quota(10)).await, 9);
}

#[tokio::test]
async fn g10_a_server_that_does_not_answer_is_a_timeout_within_the_deadline() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).timeout(TIMEOUT).connect().await.unwrap();
    let quota = quota(10);
    let _ = spend(&store, &quota).await.unwrap();
    server.pause().unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let error = spend(&store, &quota).await.unwrap_err();
        let took = start.elapsed();
        assert!(error.is_timeout(), "{error}");
        assert!(took >= TIMEOUT && took < TIMEOUT + SLACK, "{took:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "redis at 127.0.0.1:{} gave no answer within 50ms, and may still execute the call: \
                 see whether it is overloaded or paused, or raise the timeout",
                server.port()
            )
        );
    }
    server.resume().unwrap();
    // It does execute them, which is why a timeout is not repeated.
    let decision = builder(&server).connect().await.unwrap();
    assert_eq!(remaining_after_spend(&decision, &quota).await, 5);
}

#[tokio::test]
async fn a_connection_on_which_five_calls_have_no_answer_is_replaced() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).timeout(TIMEOUT).connect().await.unwrap();
    server.pause().unwrap();
    for unanswered in 1..=5 {
        assert_eq!(store.status().connections_replaced, 0);
        assert!(spend(&store, &quota(10)).await.unwrap_err().is_timeout());
        assert_eq!(store.status().timeouts, unanswered);
    }
    assert_eq!(store.status().connections_replaced, 1);
    // A paused server takes no part in a new connection. Nothing is sent, and soon nobody waits.
    let error = spend(&store, &quota(10)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let start = Instant::now();
    for _ in 0..100 {
        assert!(spend(&store, &quota(10)).await.unwrap_err().is_unavailable());
    }
    assert!(start.elapsed() < TIMEOUT + SLACK, "{:?}", start.elapsed());
    server.resume().unwrap();
    let start = Instant::now();
    while store.ping().await.is_err() {
        assert!(start.elapsed() < PATIENT);
    }
    assert_eq!(store.status().connections_replaced, 1);
}

#[tokio::test]
async fn g10_a_refused_connection_is_unavailable_within_the_deadline() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let port = server.port();
    let error = RedisStore::builder(server.url()).connect().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");

    let store = RedisStore::builder(server.url()).connect_lazily().unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let error = spend(&store, &quota(10)).await.unwrap_err();
        assert!(error.is_unavailable());
        assert!(start.elapsed() < TIMEOUT + SLACK);
        assert_eq!(
            error.to_string(),
            format!(
                "cannot connect to redis at 127.0.0.1:{port} (Connection refused (os error 111)): \
                 see whether it runs and can be reached"
            )
        );
    }
}

#[tokio::test]
async fn no_timeout_is_too_long() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).timeout(Duration::MAX).connect().await.unwrap();
    assert!(format!("{store:?}").contains("timeout: 86400s"));
    assert_eq!(remaining_after_spend(&store, &quota(10)).await, 9);
}

#[tokio::test]
async fn a_store_made_while_redis_is_down_works_once_it_is_up() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let store = builder(&server).connect_lazily().unwrap();
    assert!(spend(&store, &quota(10)).await.unwrap_err().is_unavailable());
    server.restart().unwrap();
    found_again(&store).await;
    assert_eq!(remaining_after_spend(&store, &quota(10)).await, 9);
}

#[test]
fn a_store_outlives_the_runtime_that_made_its_connection() {
    let server = RedisServer::start().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Made outside of a runtime, it connects at its first call.
    let store = builder(&server).connect_lazily().unwrap();
    for remaining in [9, 8] {
        assert_eq!(runtime().block_on(remaining_after_spend(&store, &quota(10))), remaining);
    }
    // An attempt that its runtime took along is not waited for.
    runtime().block_on(async { drop(builder(&server).connect_lazily()) });
    assert_eq!(runtime().block_on(remaining_after_spend(&store, &quota(10))), 7);
}

#[tokio::test]
async fn one_attempt_to_connect_serves_all_who_wait() {
    let server = RedisServer::start().unwrap();
    let received = || -> u64 {
        let stats = command(&server, &["INFO", "stats"]);
        let line = stats
            .text()
            .unwrap()
            .lines()
            .find_map(|l| l.strip_prefix("total_connections_received:"));
        line.unwrap().parse().unwrap()
    };
    let store = Arc::new(builder(&server).connect_lazily().unwrap());
    let before = received();
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { spend(&store, &quota(64)).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap().is_allow());
    }
    // The store's, and that of the second look at the statistics.
    assert_eq!(received() - before, 2);
}

#[tokio::test]
async fn g3_a_replica_refuses_and_spends_nothing() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let quota = quota(10);
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    let _ = command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = spend(&store, &quota).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(
        error.to_string().ends_with("it is a replica: let the URL name the primary"),
        "{error}"
    );
    let _ = command(&server, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(remaining_after_spend(&store, &quota).await, 8);
}

#[tokio::test]
async fn g3_a_server_out_of_memory_refuses_and_writes_nothing() {
    let server = RedisServer::start().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let _ = command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let (a, b) = (quota(10), quota(10));
    let charges = [Charge::new("a", &a, Cost::ONE), Charge::new("b", &b, Cost::ONE)];
    let error = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(
        error.to_string().contains("(OOM ") && error.to_string().ends_with("raise its maxmemory"),
        "{error}"
    );
    assert_eq!(command(&server, &["DBSIZE"]).integer(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_with_a_script_is_unavailable() {
    let server = RedisServer::builder().arg("--lua-time-limit").arg("1").start().unwrap();
    let store = builder(&server).connect().await.unwrap();
    let url = server.url();
    let endless = tokio::task::spawn_blocking(move || {
        let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut redis).unwrap_err()
    });
    let error = loop {
        match spend(&store, &quota(1_000_000)).await {
            // The other script has not come yet.
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.is_unavailable(), "{error}");
    assert!(error.to_string().contains("(BUSY "), "{error}");
    let _ = command(&server, &["SCRIPT", "KILL"]);
    let killed = endless.await.unwrap();
    assert!(killed.to_string().contains("killed"), "{killed}");
    assert!(spend(&store, &quota(1_000_000)).await.unwrap().is_allow());
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    let server = RedisServer::builder().arg("--requirepass").arg("open-sesame").start().unwrap();
    let with = |password: &str| format!("redis://:{password}@{}", server.address());

    let builder = RedisStore::builder(with("guessed-it")).timeout(PATIENT);
    assert!(!format!("{builder:?}").contains("guessed-it"));
    let store = builder.clone().connect_lazily().unwrap();
    assert!(!format!("{store:?}").contains("guessed-it"));
    let lazily = spend(&store, &quota(10)).await.unwrap_err();
    let at_once = builder.connect().await.unwrap_err();
    for error in [lazily, at_once] {
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&server.address().to_string()), "{shown}");
        assert!(!shown.contains("guessed-it"), "{shown}");
    }

    let store = RedisStore::builder(with("open-sesame")).timeout(PATIENT).connect().await.unwrap();
    assert!(!format!("{store:?}").contains("open-sesame"));
    assert_eq!(remaining_after_spend(&store, &quota(10)).await, 9);
}

/// Goes every way through the script.
async fn use_every_command(store: &RedisStore) {
    let rate = "3/day".parse().unwrap();
    let quotas = [
        Quota::leaky_bucket(rate, 3).unwrap(),
        Quota::fixed_window(rate).unwrap(),
        Quota::sliding_log(rate).unwrap(),
        // The leases of a day that are left are shortened, those of a millisecond end.
        Quota::concurrency(3, Quota::LEASE_TTL_MAX).unwrap(),
        Quota::concurrency(3, Duration::from_millis(1)).unwrap(),
        Quota::concurrency(3, Duration::from_secs(30)).unwrap(),
    ];
    let reserve = Operation::Reserve { ttl: Duration::from_secs(30) };
    // Each quota finds the state of the one before it under the key.
    for (quota, number) in quotas.iter().zip(1..) {
        for (operation, cost, ticket) in [
            (Operation::Spend, 2, 1),
            (Operation::Spend, 3, 2),
            (Operation::Renew, 2, 1),
            (reserve, 1, 3),
            (Operation::Settle, 0, 3),
            (Operation::Look, 1, 4),
            (Operation::Refund, 1, 4),
            (Operation::Release, 2, 1),
            (Operation::Refund, 3, 5),
            (Operation::Spend, 2, 6),
            (Operation::Spend, 1, 7),
            (Operation::Release, 2, 6),
        ] {
            let ticket = Ticket::new(number << 64 | ticket);
            let charge = Charge::new("ways", quota, Cost::new(cost)).with_ticket(ticket);
            let decided = store.apply(operation, &[charge], Timestamp::EPOCH).await;
            assert!(decided.is_ok(), "{operation:?} {cost} of {quota}: {}", decided.unwrap_err());
        }
    }
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let server = RedisServer::start().unwrap();
    let readme = include_str!("../lua/README.md");
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER tollgate ")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    let _ = command(&server, &words);

    let url = format!("redis://tollgate:password@{}", server.address());
    let store = RedisStore::builder(url).timeout(PATIENT).connect().await.unwrap();
    let quota = quota(10);
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    for operation in [Operation::Look, Operation::Refund] {
        let _ = store.apply(operation, &charges, Timestamp::EPOCH).await.unwrap();
    }
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    use_every_command(&store).await;
    store.reset(&["key"]).await.unwrap();
    let _ = command(&server, &["FLUSHALL"]);
    let _ = command(&server, &["SCRIPT", "FLUSH"]);
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    let _ = command(&server, &["DEL", "tollgate:key"]);
    let _ = command(&server, &["SET", "tollgate:key", "text"]);
    assert!(spend(&store, &quota).await.unwrap_err().is_corrupt());

    let _ = command(&server, &["ACL", "SETUSER", "tollgate", "-hmget"]);
    let error = spend(&store, &quota).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("lua/README.md"), "{error}");

    // Without the keys of records all but what writes one goes well.
    let _ = command(&server, &["DEL", "tollgate:key"]);
    let _ = command(&server, &["ACL", "SETUSER", "tollgate", "+hmget", "resetkeys", "~tollgate:*"]);
    assert_eq!(remaining_after_spend(&store, &quota).await, 9);
    let reserve = Operation::Reserve { ttl: Duration::from_secs(30) };
    let charges = [Charge::new("key", &quota, Cost::ONE).with_ticket(Ticket::new(1))];
    let error = store.apply(reserve, &charges, Timestamp::EPOCH).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    let advice = "on the keys PREFIX:* and {PREFIX:*";
    assert!(error.to_string().ends_with(advice), "{error}");
}

#[tokio::test]
async fn bad_urls_and_prefixes_are_invalid_before_anything_connects() {
    let too_long = "p".repeat(65);
    for prefix in ["", "a b", "a:b", "a{b}", "\u{fc}", &too_long] {
        let error =
            RedisStore::builder("redis://127.0.0.1").prefix(prefix).connect_lazily().unwrap_err();
        assert!(error.is_invalid());
        assert_eq!(
            error.to_string(),
            format!("key prefix {prefix:?} is not 1 to 64 letters, digits, '_', '-' and '.'")
        );
    }
    for url in [
        "",
        "127.0.0.1:6379",
        "http://x:secret@host",
        "redis://:secret",
        "rediss://:secret@host/#insecure",
        "redis+sentinel://user:secret@a:1",
        "redis+cluster://",
        "redis+cluster://user:secret@",
        "redis+cluster://user:secret@a,,b",
        "redis+cluster://user:secret@a:1,b:x",
        "redis+cluster://user:secret@a:1,b:2/1",
        "redis+cluster://user:secret@a:1/0,b:2",
    ] {
        let error = RedisStore::builder(url).connect().await.unwrap_err();
        assert!(error.is_invalid(), "{url}: {error}");
        let text = error.to_string();
        assert!(!text.contains("secret"), "{text}");
        assert!(text.contains("): write it as redis"), "{text}");
    }
}
