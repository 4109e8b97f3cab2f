//! The process of Redis dies, stands still, or drops its connections.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Mode;
use tollgate_testkit::RedisServer;

use crate::fleet::{BURST, DEADLINE, EXACT_WITHIN, Load, RATE, all_lost, exact_again, fleet};

async fn seconds(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_redis_is_killed_and_comes_back_empty() {
    let mut server = RedisServer::start().unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    seconds(1.0).await;
    server.kill().unwrap();
    let lost_at = load.elapsed();
    seconds(2.0).await;
    all_lost(&nodes).await;
    server.restart().unwrap();
    let back_at = load.elapsed();
    let took = exact_again(&nodes).await;
    seconds(1.0).await;
    let report = load.stop().await;
    report.assert_good(1);
    assert!(report.count(Mode::Local) > 500, "most of the outage was decided here");
    let served = report.admitted_between(lost_at, back_at);
    let least = RATE * u64::try_from((back_at - lost_at).as_millis()).unwrap() / 1_000 * 8 / 10;
    assert!(served >= least, "{served} served without Redis, of at least {least}");
    println!("exact again after {took:?}");
    assert!(took <= EXACT_WITHIN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_redis_is_killed_and_comes_back_with_its_data() {
    let mut server = RedisServer::builder()
        .arg("--appendonly")
        .arg("yes")
        .arg("--appendfsync")
        .arg("always")
        .start()
        .unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    seconds(1.0).await;
    server.kill().unwrap();
    seconds(1.0).await;
    server.restart().unwrap();
    exact_again(&nodes).await;
    let kept = server.command(&["EXISTS", "tollgate:default:all"]).unwrap();
    seconds(1.0).await;
    load.stop().await.assert_good(1);
    assert_eq!(kept.integer(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_redis_stands_still_for_five_seconds() {
    let server = RedisServer::start().unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    seconds(1.0).await;
    server.pause().unwrap();
    all_lost(&nodes).await;
    let lost_at = load.elapsed() + DEADLINE;
    seconds(5.0).await;
    let back_at = load.elapsed();
    server.resume().unwrap();
    let took = exact_again(&nodes).await;
    seconds(1.0).await;
    println!("exact again after {took:?}");
    let report = load.stop().await;
    report.assert_good(1);
    // Once a store is lost no request waits for it, not even to the deadline.
    let slowest = report.slowest_between(lost_at, back_at);
    let most = 2 * report.late + Duration::from_millis(20);
    assert!(slowest <= most, "a check took {slowest:?} without asking Redis");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_all_connections_are_killed_again_and_again() {
    let server = RedisServer::start().unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    for _ in 0..5 {
        seconds(0.4).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    }
    seconds(0.5).await;
    exact_again(&nodes).await;
    let report = load.stop().await;
    report.assert_good(1);
    let (exact, all) = (report.count(Mode::Exact), report.samples.len());
    assert!(exact * 10 >= all * 8, "{exact} of {all} are exact");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_redis_pauses_its_clients() {
    let server = RedisServer::start().unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    seconds(0.5).await;
    server.command(&["CLIENT", "PAUSE", "1500", "ALL"]).unwrap();
    seconds(1.0).await;
    all_lost(&nodes).await;
    seconds(0.5).await;
    exact_again(&nodes).await;
    seconds(0.5).await;
    let report = load.stop().await;
    report.assert_good(1);
    assert!(report.admitted() >= BURST + RATE, "it went on without Redis");
}
