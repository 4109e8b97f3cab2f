//! Redis answers and refuses: it is full, a replica, or wants another password.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Mode, StoreErrorKind};
use tollgate_testkit::RedisServer;

use crate::fleet::{Load, NODES, all_lost, exact_again, fleet, node};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_redis_is_out_of_memory_and_evicts_nothing() {
    let server = RedisServer::start().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let nodes = fleet(&server.url()).await;
    let load = Load::start(&nodes);
    sleep(Duration::from_millis(500)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    sleep(Duration::from_millis(1_500)).await;
    let failing = nodes.iter().filter_map(|node| node.status().failure).collect::<Vec<_>>();
    assert_eq!(failing, [StoreErrorKind::Refused; NODES]);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    exact_again(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    load.stop().await.assert_good(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_read_only_replica_answers_until_it_is_promoted() {
    let primary = RedisServer::start().unwrap();
    let replica = RedisServer::builder()
        .arg("--replicaof")
        .arg("127.0.0.1")
        .arg(primary.port().to_string())
        .start()
        .unwrap();
    let nodes: Vec<_> = (0..NODES).map(|_| node(&replica.url())).collect();
    let load = Load::start(&nodes);
    all_lost(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(nodes[0].status().failure, Some(StoreErrorKind::Refused));
    replica.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    exact_again(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    let report = load.stop().await;
    // Nobody knew of the others, so each granted the whole.
    let errors = report.samples.iter().filter(|sample| sample.allowed.is_none()).count();
    assert_eq!(errors, 0);
    assert!(report.count(Mode::Local) > 100 && report.count(Mode::Exact) > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_wrong_password_is_a_loss_until_it_is_right() {
    let server = RedisServer::start().unwrap();
    let right = format!("redis://:right@{}", server.address());
    server.command(&["CONFIG", "SET", "requirepass", "wrong"]).unwrap();
    let nodes: Vec<_> = (0..NODES).map(|_| node(&right)).collect();
    let load = Load::start(&nodes);
    all_lost(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    let admin = redis::Client::open(format!("redis://:wrong@{}", server.address())).unwrap();
    let mut admin = admin.get_connection().unwrap();
    let () =
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right").query(&mut admin).unwrap();
    exact_again(&nodes).await;
    sleep(Duration::from_millis(300)).await;
    let report = load.stop().await;
    assert!(report.samples.iter().all(|sample| sample.allowed.is_some()));
    let last = report.samples.iter().max_by_key(|sample| sample.at).unwrap();
    assert_eq!(last.mode, Mode::Exact);
}
