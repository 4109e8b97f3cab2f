//! Keys that hold something else than the state of an algorithm, or that of another one (G3).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Algorithm, Charge, Cost, Operation, Quota, Store, Ticket, Timestamp};
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

/// What is wrong with a key, as the error says it.
fn is_field(name: &str) -> String {
    format!("is a hash whose field {name:?} is missing or not a bucket's, so it is not a bucket")
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Numbers that are not ours, each in the place of `*`.
fn with_wrong_numbers(command: &str, wrong: &[&str]) -> Vec<Vec<String>> {
    let replaced =
        |wrong: &&str| command.split(' ').map(|word| word.replace('*', wrong)).collect::<Vec<_>>();
    wrong.iter().map(replaced).collect()
}

const NOT_INTEGERS: [&str; 12] =
    ["", "-1", "+1", "1.0", "1e3", "0x10", " 1", "1\n", "1\0", "nan", "9007199254740992", "true"];

#[tokio::test]
async fn g3_what_is_not_a_state_of_any_algorithm_is_never_decided_on_and_never_written() {
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = store(&server, "shop").await;
    let rate = "5/s".parse().unwrap();
    let window = Quota::fixed_window(rate).unwrap();
    let log = Quota::sliding_log(rate).unwrap();
    let slots = Quota::concurrency(5, Duration::from_secs(30)).unwrap();
    let ticket = Ticket::new(7);
    let is = |name: &str| format!("holds a {name}, so it is not a bucket");
    let mut table = vec![
        (window, words("SET shop:key text"), is("string")),
        (window, words("ZADD shop:key 1 used"), is("zset")),
        (window, words("HSET shop:key a 1"), is_field("used")),
        (window, words("HSET shop:key used 1"), is_field("ts")),
        (window, words("HSET shop:key ts 1"), is_field("used")),
        (window, words("HSET shop:key used 0 ts 1"), is_field("used")),
        (window, words("HSET shop:key used 1 ts 1 width 1"), is_field("width")),
        (log, words("SET shop:key text"), is("string")),
        (log, words("HSET shop:key a 1"), is_field("width")),
        (log, words("HSET shop:key width 0 ts 1 used 1 head 1 tail 1 1 1:1"), is_field("width")),
        (
            log,
            words("HSET shop:key width 31622400000001 ts 1 used 1 head 1 tail 1 1 1:1"),
            is_field("width"),
        ),
        (log, words("HSET shop:key width 1 used 1 head 1 tail 1 1 1:1"), is_field("ts")),
        (log, words("HSET shop:key width 1 ts 1 used 0 head 1 tail 1 1 1:1"), is_field("used")),
        (log, words("HSET shop:key width 1 ts 1 used 1 tail 1 1 1:1"), is_field("head")),
        (log, words("HSET shop:key width 1 ts 1 used 1 head 2 tail 1 1 1:1"), is_field("tail")),
        (log, words("HSET shop:key width 1 ts 1 used 1 head 1 tail 10001"), is_field("tail")),
        // An entry that is missing, one of the future, and sums that are not true.
        (log, words("HSET shop:key width 1 ts 1 used 1 head 1 tail 2 1 1:1"), is_field("2")),
        (log, words("HSET shop:key width 1 ts 1 used 1 head 1 tail 1 1 2:1"), is_field("1")),
        (log, words("HSET shop:key width 1 ts 1 used 2 head 1 tail 1 1 1:1"), is_field("used")),
        (log, words("HSET shop:key width 1 ts 1 used 1 head 1 tail 1 1 1:2"), is_field("used")),
        (slots, words("SET shop:key text"), is("string")),
        (slots, words("HSET shop:key a 1"), is("hash")),
        (slots, words("SADD shop:key a"), is("set")),
    ];
    let not_integers = |quota, command: &str, what: &str| {
        let commands = with_wrong_numbers(command, &NOT_INTEGERS);
        commands.into_iter().map(|words| (quota, words, is_field(what))).collect::<Vec<_>>()
    };
    table.extend(not_integers(window, "HSET shop:key used * ts 1", "used"));
    table.extend(not_integers(window, "HSET shop:key used 1 ts *", "ts"));
    for (at, name) in ["width", "ts", "used", "head", "tail"].into_iter().enumerate() {
        let mut numbers = ["1"; 5];
        numbers[at] = "*";
        let [width, ts, used, head, tail] = numbers;
        let command = format!(
            "HSET shop:key width {width} ts {ts} used {used} head {head} tail {tail} 1 1:1"
        );
        table.extend(not_integers(log, &command, name));
    }
    for entry in ["*:1", "1:*", "*", "1:1:*"] {
        let command = format!("HSET shop:key width 1 ts 1 used 1 head 1 tail 1 1 {entry}");
        table.extend(not_integers(log, &command, "1"));
    }
    let member = "is a sorted set of other members than leases, so it is not a bucket";
    for wrong in [
        "ZADD shop:key 1 level",
        "ZADD shop:key 1 0000000000000000000000000000000",
        "ZADD shop:key 1 0000000000000000000000000000000A",
        "ZADD shop:key 1 00000000000000000000000000000007:",
        "ZADD shop:key 1 00000000000000000000000000000007:x",
        "ZADD shop:key -1 00000000000000000000000000000007",
        "ZADD shop:key 1.5 00000000000000000000000000000007",
        "ZADD shop:key inf 00000000000000000000000000000007",
        "ZADD shop:key 1 00000000000000000000000000000007 2 alice",
        "ZADD shop:key 2 00000000000000000000000000000007 1 alice",
    ] {
        table.push((slots, words(wrong), member.to_owned()));
    }

    let bucket = Quota::new("1/s".parse().unwrap(), 5).unwrap();
    for (quota, make, what) in table {
        let make: Vec<&str> = make.iter().map(String::as_str).collect();
        let _ = server.command(&make).unwrap();
        let before = dump(&mut redis, "shop:key");
        let here = Charge::new("key", &quota, Cost::ONE).with_ticket(ticket);
        let other = Charge::new("other", &bucket, Cost::ONE).with_ticket(ticket);
        for charges in [[here, other], [other, here]] {
            for operation in [
                Operation::Spend,
                Operation::Look,
                Operation::Renew,
                Operation::Release,
                Operation::Refund,
                Operation::Reserve { ttl: Duration::from_secs(1) },
                Operation::Settle,
            ] {
                let error = store.apply(operation, &charges, NOW).await.unwrap_err();
                assert!(error.is_corrupt(), "{make:?}: {error}");
                assert_eq!(
                    error.to_string(),
                    format!(
                        "the redis key \"shop:key\" {what}: \
                         remove the key, or choose another prefix"
                    ),
                    "{make:?}"
                );
            }
        }
        assert_eq!(dump(&mut redis, "shop:key"), before, "{make:?}");
        assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(1), "{make:?}");
        store.reset(&["key"]).await.unwrap();
    }
}

#[tokio::test]
async fn g3_what_is_not_a_record_is_never_settled_and_never_written() {
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = store(&server, "shop").await;
    let quota = Quota::new("1/s".parse().unwrap(), 5).unwrap();
    let record = "{shop:key}:ticket:00000000000000000000000000000007";
    for make in [
        vec!["SET", record, ""],
        vec!["SET", record, "5"],
        vec!["SET", record, "5:5:5"],
        vec!["SET", record, "5:5:0:"],
        vec!["SET", record, ":5:0:5"],
        vec!["SET", record, "5:5:0:9007199254740992"],
        vec!["SET", record, "5:9007199254740992:0:5"],
        vec!["SET", record, "5:5:9007199254740992:5"],
        vec!["SET", record, "-5:5:0:5"],
        vec!["SET", record, "5:5:0:5:5"],
        vec!["HSET", record, "units", "5"],
        vec!["RPUSH", record, "5:5:5"],
    ] {
        let _ = server.command(&make).unwrap();
        let before = dump(&mut redis, record);
        let charge = Charge::new("key", &quota, Cost::ONE).with_ticket(Ticket::new(7));
        for operation in [
            Operation::Refund,
            Operation::Reserve { ttl: Duration::from_secs(1) },
            Operation::Settle,
        ] {
            let error = store.apply(operation, &[charge], NOW).await.unwrap_err();
            assert!(error.is_corrupt());
            assert_eq!(
                error.to_string(),
                format!(
                    "the redis key {record:?} does not hold <units>:<since>:<queue end>:<end>, so it is not the note of \
                     a ticket: remove the key, or choose another prefix"
                )
            );
        }
        assert_eq!(dump(&mut redis, record), before, "{make:?}");
        assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(1), "{make:?}");
        // Operations without records do not look at it.
        assert!(store.apply(Operation::Spend, &[charge], NOW).await.unwrap()[0].is_allow());
        let _ = server.command(&["DEL", record, "shop:key"]).unwrap();
    }
}

#[tokio::test]
async fn a_rule_that_changes_its_algorithm_starts_afresh() {
    let server = RedisServer::start().unwrap();
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let store = store(&server, "shop").await;
    let rate = "5/s".parse().unwrap();
    let bucket = Quota::new(rate, 5).unwrap();
    let quotas = [
        (bucket, "hash"),
        (Quota::fixed_window(rate).unwrap(), "hash"),
        (Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT).unwrap(), "hash"),
        (Quota::concurrency(5, Duration::from_secs(30)).unwrap(), "zset"),
    ];
    let charge = |quota, cost, ticket| {
        [Charge::new("key", quota, Cost::new(cost)).with_ticket(Ticket::new(ticket))]
    };
    for (before, _) in &quotas {
        for (after, kind) in quotas.iter().filter(|(after, _)| after != before) {
            let _ = store.apply(Operation::Spend, &charge(before, 2, 1), NOW).await.unwrap();
            let stored = dump(&mut redis, "shop:key").0;
            // A look and a denial leave it, as they leave everything.
            let look = store.apply(Operation::Look, &charge(after, 1, 2), NOW).await.unwrap();
            assert_eq!(look[0].remaining(), 5, "{before} to {after}");
            let denied = store.apply(Operation::Spend, &charge(after, 6, 2), NOW).await.unwrap();
            assert!(denied[0].is_deny());
            assert_eq!(dump(&mut redis, "shop:key").0, stored, "{before} to {after}");

            let spent = store.apply(Operation::Spend, &charge(after, 1, 2), NOW).await.unwrap();
            assert_eq!(spent[0].remaining(), 4, "{before} to {after}");
            let now_is = server.command(&["TYPE", "shop:key"]).unwrap();
            assert_eq!(now_is.text(), Some(*kind));
            let look = store.apply(Operation::Look, &charge(before, 1, 1), NOW).await.unwrap();
            assert_eq!(look[0].remaining(), 5, "{before} to {after}");
            store.reset(&["key"]).await.unwrap();
        }
    }
    // Only what is ours to the last field is replaced.
    for (make, what) in [
        ("HSET shop:key used 1 ts 1 note 1", is_field("level")),
        ("HSET shop:key width 1 ts 1 used 1 head 1 tail 1 1 1:1 note 1", is_field("level")),
        ("HSET shop:key width 1 ts 1 used 1 head 1 tail 2 1 1:1", is_field("level")),
        (
            "ZADD shop:key 1 00000000000000000000000000000007 2 alice",
            "holds a zset, so it is not a bucket".to_owned(),
        ),
    ] {
        let make = words(make);
        let make: Vec<&str> = make.iter().map(String::as_str).collect();
        let _ = server.command(&make).unwrap();
        let error = store.apply(Operation::Spend, &charge(&bucket, 1, 1), NOW).await.unwrap_err();
        assert!(error.to_string().contains(&what), "{error}");
        store.reset(&["key"]).await.unwrap();
    }
}
