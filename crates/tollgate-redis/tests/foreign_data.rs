//! Keys that hold something else than a bucket, and keys that look like something else (G3).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Store, StoreErrorKind, Timestamp};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::RedisServer;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

async fn store(server: &RedisServer, prefix: &str) -> RedisStore {
    RedisStore::builder(server.url())
        .prefix(prefix)
        .time_source(TimeSource::Client)
        .timeout(Duration::from_secs(10))
        .connect()
        .await
        .unwrap()
}

/// All that a key holds, and its TTL.
fn dump(redis: &mut redis::Connection, key: &str) -> (Vec<u8>, i64) {
    redis::pipe().cmd("DUMP").arg(key).pttl(key).query(redis).unwrap()
}

#[tokio::test]
async fn g3_what_is_not_a_bucket_is_never_decided_on_and_never_written() {
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = store(&server, "shop").await;
    let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
    let holds = "holds a";
    let field = |name: &str| format!("is a hash whose field {name:?} is missing or not a bucket's");
    let huge = "9".repeat(400);
    let hash = |level: &str, scale: &str, ts: &str| {
        ["HSET", "shop:key", "level", level, "scale", scale, "ts", ts].map(str::to_owned).to_vec()
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut table = vec![
        (words("SET shop:key text"), format!("{holds} string")),
        (words("SET shop:key 5"), format!("{holds} string")),
        (words("RPUSH shop:key 1 2 3"), format!("{holds} list")),
        (words("SADD shop:key level scale ts"), format!("{holds} set")),
        (words("ZADD shop:key 1 level"), format!("{holds} zset")),
        (words("XADD shop:key * level 1 scale 1 ts 1"), format!("{holds} stream")),
        (words("HSET shop:key tokens 3 time 5"), field("level")),
        (words("HSET shop:key scale 1 ts 1"), field("level")),
        (words("HSET shop:key level 1 ts 1"), field("scale")),
        (words("HSET shop:key level 1 scale 1"), field("ts")),
        (hash("1", "0", "1"), field("scale")),
        (hash("1", "4503599627370497", "1"), field("scale")),
        (hash("9007199254740993", "1", "1"), field("level")),
    ];
    for wrong in [
        "",
        " ",
        "-1",
        "-0",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        " 1",
        "1 ",
        "1\n",
        "1\0",
        "nan",
        "inf",
        "infinity",
        "9007199254740992",
        "18446744073709551616",
        &huge,
        "\u{661}",
        "true",
    ] {
        table.push((hash(wrong, "1", "1"), field("level")));
        table.push((hash("1", wrong, "1"), field("scale")));
        table.push((hash("1", "1", wrong), field("ts")));
    }
    for (make, what) in table {
        let make: Vec<&str> = make.iter().map(String::as_str).collect();
        let _ = server.command(&make).unwrap();
        let before = dump(&mut redis, "shop:key");
        // The second charge would be allowed and must not be spent without the first.
        for keys in [["key", "other"], ["other", "key"]] {
            let charges = keys.map(|key| Charge::new(key, &quota, Cost::ONE));
            for operation in [Operation::Spend, Operation::Look, Operation::Refund] {
                let error = store.apply(operation, &charges, NOW).await.unwrap_err();
                assert!(error.is_corrupt(), "{make:?}: {error}");
                assert_eq!(
                    error.to_string(),
                    format!(
                        "the redis key \"shop:key\" {what}, so it is not a bucket: \
                         remove the key, or choose another prefix"
                    ),
                    "{make:?}"
                );
            }
        }
        assert_eq!(dump(&mut redis, "shop:key"), before, "{make:?}");
        assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(1), "{make:?}");
        // What the text advises helps.
        store.reset(&["key"]).await.unwrap();
        let charges = [Charge::new("key", &quota, Cost::ONE)];
        assert_eq!(store.apply(Operation::Look, &charges, NOW).await.unwrap()[0].remaining(), 5);
    }
}

#[tokio::test]
async fn every_key_is_a_bucket_of_its_own() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, "a.b-c_D9").await;
    let quota = Quota::new("1/day".parse().unwrap(), 100).unwrap();
    let long = "k".repeat(10_000);
    let keys = [
        "",
        "key",
        "key ",
        "Key",
        ":{}%",
        "{a}:b",
        "%3A",
        "a:b",
        "a=b",
        "\r\n",
        "\0",
        "*",
        "[k]?",
        "\u{fc}ber",
        "u\u{308}ber",
        "\u{1f600}",
        &long,
    ];
    for (spent, key) in (1..).zip(keys) {
        let charges = [Charge::new(key, &quota, Cost::new(spent))];
        let decisions = store.apply(Operation::Spend, &charges, NOW).await.unwrap();
        assert_eq!(u64::from(decisions[0].remaining()), 100 - spent, "{key:?}");
    }
    for (spent, key) in (1..).zip(keys) {
        let charges = [Charge::new(key, &quota, Cost::ONE)];
        let decisions = store.apply(Operation::Look, &charges, NOW).await.unwrap();
        assert_eq!(u64::from(decisions[0].remaining()), 100 - spent, "{key:?}");
        let exists = server.command(&["EXISTS", &format!("a.b-c_D9:{key}")]).unwrap();
        assert_eq!(exists.integer(), Some(1), "{key:?}");
    }
    store.reset(&keys).await.unwrap();
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
    store.reset(&[]).await.unwrap();
}

#[tokio::test]
async fn calls_that_break_the_contract_are_refused_before_they_are_sent() {
    let mut server = RedisServer::start().unwrap();
    let store = store(&server, "tollgate").await;
    server.kill().unwrap();
    let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
    let twice = [Charge::new("key", &quota, Cost::ONE), Charge::new("key", &quota, Cost::ONE)];
    let error = store.apply(Operation::Spend, &twice, NOW).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    let keys: Vec<String> = (0..65).map(|index| index.to_string()).collect();
    let many: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    let error = store.apply(Operation::Spend, &many, NOW).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    // Nothing to do needs no server.
    assert!(store.apply(Operation::Spend, &[], NOW).await.unwrap().is_empty());
}

#[tokio::test]
async fn g7_as_many_charges_as_may_be_spend_together() {
    let server = RedisServer::start().unwrap();
    let store = store(&server, "tollgate").await;
    let quota = Quota::new("1/day".parse().unwrap(), 2).unwrap();
    let keys: Vec<String> = (0..Charge::COUNT_MAX).map(|index| index.to_string()).collect();
    let charges: Vec<_> = keys.iter().map(|key| Charge::new(key, &quota, Cost::ONE)).collect();
    let decisions = store.apply(Operation::Spend, &charges, NOW).await.unwrap();
    assert_eq!(decisions.len(), 64);
    assert!(decisions.iter().all(|decision| decision.remaining() == 1));
    let _ = store.apply(Operation::Spend, &charges[63..], NOW).await.unwrap();
    let decisions = store.apply(Operation::Spend, &charges, NOW).await.unwrap();
    assert!(decisions[63].is_deny());
    assert!(decisions[..63].iter().all(|decision| decision.remaining() == 1));
}
