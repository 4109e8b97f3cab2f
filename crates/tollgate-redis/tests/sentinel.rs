//! A store that finds its primary by Redis Sentinel, with a real fail-over (G10).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::{Duration, Instant};

use tollgate_core::{Charge, Cost, Decision, Operation, Quota, Store, StoreError, Timestamp};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisSentinel;
use tollgate_testkit::redis_sentinel::{MASTER, Passwords};

const TIMEOUT: Duration = Duration::from_millis(200);

/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(500);

const PATIENT: Duration = Duration::from_secs(40);

fn quota() -> Quota {
    Quota::new("1/day".parse().unwrap(), 100_000).unwrap()
}

async fn spend(store: &RedisStore) -> Result<Decision, StoreError> {
    let quota = quota();
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    let decisions = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await?;
    Ok(decisions[0])
}

/// Spends until another primary answers, each time within the deadline.
async fn until_another_answers(store: &RedisStore) {
    let start = Instant::now();
    loop {
        let asked = Instant::now();
        let answered = spend(store).await;
        assert!(asked.elapsed() < TIMEOUT + SLACK, "{:?}", asked.elapsed());
        if answered.is_ok() && store.status().failovers == 1 {
            return;
        }
        assert!(start.elapsed() < PATIENT, "{answered:?} {store:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn g10_a_fail_over_by_sentinel_is_followed_within_the_deadline() {
    let mut redis = RedisSentinel::start().unwrap();
    let store =
        RedisStore::sentinel(redis.urls(), MASTER).timeout(TIMEOUT).connect().await.unwrap();
    assert!(spend(&store).await.unwrap().is_allow());
    let before = redis.primary().unwrap();
    redis.kill(before).unwrap();
    // The sentinels need half a second to see it, and about one to agree and to promote; a busy
    // machine makes them elect again, which takes seconds.
    until_another_answers(&store).await;
    let status = store.status();
    assert_eq!((status.failovers, status.servers, status.connections), (1, 1, 1));
    // The replica had what was spent, and has all that was answered since.
    let left = spend(&store).await.unwrap().remaining();
    assert!(left < 100_000 - 1, "{left}");
}

#[tokio::test]
async fn a_switch_without_an_outage_is_followed_at_once_with_the_documented_permissions() {
    let redis = RedisSentinel::start().unwrap();
    let readme = include_str!("../lua/README.md");
    let mut lines = readme.lines().filter(|line| line.starts_with("ACL SETUSER tollgate "));
    let line = lines.find(|line| line.contains("sentinel|master")).unwrap();
    for sentinel in redis.sentinels() {
        let _ = sentinel.command(&line.split(' ').collect::<Vec<_>>()).unwrap();
    }
    let urls = redis.urls().into_iter().map(|url| url.replace("://", "://tollgate:password@"));
    let store = RedisStore::sentinel(urls, MASTER).timeout(TIMEOUT).connect().await.unwrap();
    let before = redis.primary().unwrap();
    let _ = redis.sentinels()[0].command(&["SENTINEL", "FAILOVER", MASTER]).unwrap();
    let _ = redis.wait_for_failover(before).unwrap();
    // The old primary still answers, as a replica. No call is needed to leave it.
    let start = Instant::now();
    while store.status().failovers == 0 {
        assert!(start.elapsed() < Duration::from_secs(2), "{store:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until_another_answers(&store).await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    let passwords = Passwords { servers: Some("for-redis"), sentinels: Some("for-sentinel") };
    let redis = RedisSentinel::start_with(passwords).unwrap();
    let with = |password: &str| -> Vec<String> {
        redis.urls().iter().map(|url| url.replace("://", &format!("://:{password}@"))).collect()
    };
    let builder = RedisStore::sentinel(with("for-sentinel"), MASTER).password("for-redis");
    let shown = format!("{builder:?}");
    let store = builder.timeout(PATIENT).connect().await.unwrap();
    assert!(spend(&store).await.unwrap().is_allow());
    for text in [shown, format!("{store:?}")] {
        assert!(!text.contains("for-redis") && !text.contains("for-sentinel"), "{text}");
    }

    for (sentinels, servers) in [("for-redis", "for-redis"), ("for-sentinel", "for-sentinel")] {
        let error = RedisStore::sentinel(with(sentinels), MASTER).password(servers).connect().await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("check the user and the password"), "{text}");
        assert!(!text.contains("for-"), "{text}");
    }
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_says_so() {
    let redis = RedisSentinel::start().unwrap();
    let url = redis.urls()[0].replace("redis://", "redis+sentinel://") + "/other";
    let error = RedisStore::builder(url).connect().await.unwrap_err().to_string();
    assert!(error.contains("No such master with that name"), "{error}");
    assert!(error.contains("check the name of the master"), "{error}");
}
