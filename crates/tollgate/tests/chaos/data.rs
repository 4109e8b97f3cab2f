//! Redis loses its scripts or its data, or holds what is not ours.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Attributes, Limiter, Mode, Quota, RedisStore, Rule};
use tollgate_testkit::RedisServer;

use crate::fleet::{BURST, Load, PATIENT, bound, fleet_within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_sent_again_and_fail_nothing() {
    let server = RedisServer::start().unwrap();
    let nodes = fleet_within(&server.url(), PATIENT).await;
    let load = Load::start(&nodes);
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        server.command(&["SCRIPT", "FLUSH", "SYNC"]).unwrap();
    }
    sleep(Duration::from_millis(200)).await;
    let report = load.stop().await;
    report.assert_within_bound(0);
    assert_eq!(report.count(Mode::Exact), report.samples.len());
    let reloads: u64 =
        nodes.iter().map(|node| node.store().as_redis().unwrap().status().script_reloads).sum();
    assert!(reloads >= 10, "{reloads} reloads after 10 flushes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_flushed_data_gives_one_burst_each_time_and_fails_nothing() {
    let server = RedisServer::start().unwrap();
    let nodes = fleet_within(&server.url(), PATIENT).await;
    let load = Load::start(&nodes);
    const FLUSHES: u64 = 5;
    for _ in 0..FLUSHES {
        sleep(Duration::from_millis(300)).await;
        server.command(&["FLUSHALL"]).unwrap();
    }
    sleep(Duration::from_millis(300)).await;
    let report = load.stop().await;
    let most = bound(report.elapsed, 0) + FLUSHES * BURST;
    assert_eq!(report.count(Mode::Exact), report.samples.len());
    assert!(report.admitted() <= most, "{} admitted of {most}", report.admitted());
    // A forgotten bucket is a full one (G5).
    assert!(report.admitted() > bound(report.elapsed, 0), "{}", report.admitted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_key_that_holds_something_else_concerns_itself_only() {
    let server = RedisServer::start().unwrap();
    let quota = Quota::new("1/hour".parse().unwrap(), 5).unwrap();
    let store = RedisStore::builder(server.url()).timeout(PATIENT).connect().await.unwrap();
    let limiter = Limiter::builder()
        .rule(Rule::new("per-ip", quota).with_key(["ip"]))
        .store(store)
        .build()
        .unwrap();
    server.command(&["SET", "tollgate:default:per-ip:ip=203.0.113.1", "not ours"]).unwrap();
    let (bad, good) =
        (Attributes::from([("ip", "203.0.113.1")]), Attributes::from([("ip", "203.0.113.2")]));
    for round in 0..20 {
        let verdict = limiter.check(&bad).await.unwrap();
        assert_eq!((verdict.mode(), verdict.is_allowed()), (Mode::Local, round < 5));
        let verdict = limiter.check(&good).await.unwrap();
        assert_eq!((verdict.mode(), verdict.is_allowed()), (Mode::Exact, round < 5));
    }
    assert_eq!((limiter.status().failure, limiter.status().openings), (None, 0));
    let kept = server.command(&["GET", "tollgate:default:per-ip:ip=203.0.113.1"]).unwrap();
    assert_eq!(kept.text(), Some("not ours"), "what is not ours is not written");
}
