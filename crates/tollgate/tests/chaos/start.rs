//! Redis is missing at the start, and nodes come and go.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Attributes, Mode};
use tollgate_testkit::RedisServer;

use crate::fleet::{Load, NODES, exact_again, fleet, node, rule, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_a_node_starts_without_redis_and_serves_at_once() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let nodes: Vec<_> = (0..NODES).map(|_| node(&server.url())).collect();
    let first = nodes[0].check(&Attributes::new()).await.unwrap();
    assert_eq!((first.mode(), first.is_allowed()), (Mode::Local, true));
    let load = Load::start(&nodes);
    sleep(Duration::from_secs(1)).await;
    server.restart().unwrap();
    let took = exact_again(&nodes).await;
    println!("exact after {took:?}");
    sleep(Duration::from_millis(500)).await;
    let report = load.stop().await;
    assert!(report.samples.iter().all(|sample| sample.allowed.is_some()));
    let last = report.samples.iter().max_by_key(|sample| sample.at).unwrap();
    assert_eq!(last.mode, Mode::Exact);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_node_that_dies_goes_to_the_others() {
    let server = RedisServer::start().unwrap();
    let mut nodes = fleet(&server.url()).await;
    let part = |node: &tollgate::Limiter| node.local_part_of(&rule()).unwrap().burst();
    assert_eq!(part(&nodes[0]), 20);
    // It takes its announcements with it.
    drop(nodes.pop());
    let noticed = || nodes.iter().all(|node| node.status().nodes.get() == 2);
    within(Duration::from_secs(9), "two nodes are left", noticed).await;
    assert_eq!(part(&nodes[0]), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_empty_does_not_make_a_node_think_that_it_is_alone() {
    let mut server = RedisServer::start().unwrap();
    let nodes = fleet(&server.url()).await;
    for _ in 0..2 {
        server.restart().unwrap();
        for _ in 0..150 {
            sleep(Duration::from_millis(10)).await;
            let counts: Vec<u32> = nodes.iter().map(|node| node.status().nodes.get()).collect();
            assert_eq!(counts, [3, 3, 3]);
        }
    }
}
