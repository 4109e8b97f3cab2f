//! The script by itself: what no call of the store shows.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use tollgate_redis::SCRIPT;
use tollgate_testkit::RedisServer;
use tollgate_testkit::redis_server::Reply;

const SECOND: u64 = 1_000_000;

/// The beginning of a second.
const START: u64 = 1_700_000_000 * SECOND;

const TICKET: &str = "0000000000000000000000000000002a";
const RECORD: &str = "{b}:ticket:0000000000000000000000000000002a";

/// Runs the script with keys and the arguments after them, and gives the numbers of its reply.
fn eval(server: &RedisServer, keys: &[&str], args: &str) -> Result<Vec<i64>, String> {
    let count = keys.len().to_string();
    let mut words = vec!["EVAL", SCRIPT, &count];
    words.extend(keys);
    words.extend(args.split(' '));
    match server.command(&words) {
        Ok(reply) => {
            Ok(reply.items().unwrap().iter().map(|item| item.integer().unwrap()).collect())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// What is used, or the level, after a call on the bucket `b`.
fn left(server: &RedisServer, keys: &[&str], args: &str) -> i64 {
    eval(server, keys, args).unwrap()[2]
}

#[test]
fn undo_gives_back_what_counts_and_nothing_else() {
    for (name, quota, period) in [
        ("fixed_window", "9 1000000", SECOND),
        ("sliding_log", "9 1 1000000", SECOND),
        ("sliding_window", "9 100000 11", SECOND + SECOND / 10),
    ] {
        let server = RedisServer::start().unwrap();
        let spend = |now: u64, cost: u64| {
            left(&server, &["b"], &format!("spend {now} 0 {name} 0 {cost} {quota}"))
        };
        // The arguments of `undo` end in an empty one for the record, and the time of what it undoes.
        let undo = |now: u64, cost: u64, since: u64| {
            left(&server, &["b"], &format!("undo {now} 0 {name} 0 {cost} {quota}  {since}"))
        };
        assert_eq!(spend(START, 4), 4, "{name}");
        assert_eq!(undo(START + 1, 3, START), 1, "{name}");
        assert_eq!(spend(START + 1, 2), 3, "{name}");
        // What was spent at the start no longer counts, what was spent since does.
        let later = START + period;
        assert_eq!(undo(later - 1, 1, START), 2, "{name}");
        assert_eq!(spend(later + period, 5), 5, "{name}");
        assert_eq!(undo(later + period, 2, START), 5, "{name}");
        assert_eq!(undo(later + period, 2, later + period), 3, "{name}");
    }
}

#[test]
fn undo_of_a_bucket_never_lifts_it_above_its_burst() {
    let server = RedisServer::start().unwrap();
    let quota = "1 1000000 1 5";
    let call = |now: u64, step: &str, rest: &str| {
        left(&server, &["b"], &format!("{step} {now} 0 token_bucket 0 3 {quota}{rest}"))
    };
    assert_eq!(call(START, "spend", ""), 2_000_000);
    assert_eq!(call(START, "undo", &format!("  {START}")), 5_000_000);
    assert_eq!(server.command(&["EXISTS", "b"]).unwrap(), Reply::Integer(0));
    assert_eq!(call(START, "undo", &format!("  {START}")), 5_000_000);
}

#[test]
fn undo_of_slots_ends_the_lease_and_undo_of_a_reservation_removes_it_once() {
    let server = RedisServer::start().unwrap();
    let slots = format!("concurrency 0 2 5 30000000 {TICKET}");
    assert_eq!(left(&server, &["b"], &format!("spend {START} 0 {slots}")), 2);
    assert_eq!(left(&server, &["b"], &format!("undo {START} 0 {slots}  {START}")), 0);
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));

    let window = "fixed_window 0 3 9 1000000";
    let reserve = format!("reserve {START} 0 {window} 60000000");
    assert_eq!(left(&server, &["b", RECORD], &reserve), 3);
    let record = server.command(&["GET", RECORD]).unwrap();
    assert_eq!(record.text(), Some(format!("3:{START}:0:{}", START + 60 * SECOND).as_str()));
    let undo = format!("undo {START} 0 {window} 0 {START}");
    assert_eq!(left(&server, &["b", RECORD], &undo), 0);
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));
    assert_eq!(left(&server, &["b"], &format!("spend {START} 0 {window}")), 3);
    assert_eq!(left(&server, &["b", RECORD], &undo), 3);
}

#[test]
fn units_that_are_taken_are_told_from_those_that_were_held_or_reserved_before() {
    let server = RedisServer::start().unwrap();
    let outcome = |keys: &[&str], args: &str| eval(&server, keys, args).unwrap()[1];
    let slots = format!("concurrency 0 2 5 30000000 {TICKET}");
    for expected in [1, 2] {
        assert_eq!(outcome(&["b"], &format!("spend {START} 0 {slots}")), expected);
    }
    let anonymous = "concurrency 0 2 5 30000000 ";
    assert_eq!(outcome(&["b"], &format!("spend {START} 0 {anonymous}")), 2);
    let bucket = "token_bucket 0 2 1 1000000 1 5";
    for expected in [1, 2] {
        let reserve = format!("reserve {START} 0 {bucket} 60000000");
        assert_eq!(outcome(&["c", RECORD], &reserve), expected);
    }
    assert_eq!(outcome(&["c"], &format!("spend {START} 0 token_bucket 0 0 1 1000000 1 5")), 2);
    assert_eq!(outcome(&["c"], &format!("spend {START} 0 token_bucket 0 4 1 1000000 1 5")), 0);
    assert_eq!(outcome(&["c", RECORD], &format!("settle {START} 0 {bucket} 0")), 2);
    assert_eq!(outcome(&["c", RECORD], &format!("settle {START} 0 {bucket} 0")), 3);
}

#[test]
fn calls_that_are_not_as_documented_are_errors_and_write_nothing() {
    let server = RedisServer::start().unwrap();
    let bucket = "token_bucket 0 1 1 1000000 1 5";
    for (keys, args, expected) in [
        (&["b"][..], format!("spend {START} 0"), "ERR apply.lua knows no algorithm nil"),
        (&["b"], format!("spend {START} 0 gcra 0 1"), "ERR apply.lua knows no algorithm gcra"),
        (&["b"], format!("steal {START} 0 {bucket}"), "ERR apply.lua knows no operation steal"),
        (&["b"], format!("spend {START} 0 {bucket} 0"), "ERR apply.lua wants 10 arguments, not 11"),
        (&["b", "c"], format!("spend {START} 0 {bucket}"), "ERR apply.lua knows no algorithm nil"),
        (&["b"], format!("refund {START} 0 {bucket}"), "arguments"),
        (&["b"], format!("refund {START} 0 {bucket} 60000000"), "arguments"),
    ] {
        let error = eval(&server, keys, &args).unwrap_err();
        assert!(error.contains(expected), "{args}: {error}");
    }
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), Reply::Integer(0));
    assert_eq!(eval(&server, &[], &format!("look {START} 0")).unwrap(), [START as i64]);
}
