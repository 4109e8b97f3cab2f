//! The way to Redis is slow, swallows everything, or is cut.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::Mode;
use tollgate_testkit::RedisServer;
use tollgate_testkit::fault_proxy::{Direction, Fault, FaultProxy};

use crate::fleet::{Load, Report, SPREAD_OF_CONNECTIONS, all_lost, exact_again, fleet};

/// Does something to the way, waits until all nodes have noticed, and heals it.
async fn suffer(harm: impl Fn(&FaultProxy)) {
    let server = RedisServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let nodes = fleet(&proxy.url()).await;
    let load = Load::start(&nodes);
    sleep(Duration::from_millis(500)).await;
    harm(&proxy);
    all_lost(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    proxy.refuse(false);
    proxy.set_both(Fault::None);
    let took = exact_again(&nodes).await;
    sleep(Duration::from_millis(500)).await;
    let report = Report { spread: SPREAD_OF_CONNECTIONS, ..load.stop().await };
    println!("exact again after {took:?}");
    report.assert_good(1);
    assert!(report.count(Mode::Local) > 200 && report.count(Mode::Exact) > 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_answers_come_200_ms_late() {
    suffer(|proxy| proxy.set(Direction::ToClient, Fault::Delay(Duration::from_millis(200)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_everything_on_the_way_vanishes() {
    suffer(|proxy| proxy.set_both(Fault::BlackHole)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_connections_are_reset_and_refused() {
    suffer(|proxy| {
        proxy.refuse(true);
        proxy.reset();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g10_requests_arrive_and_their_answers_vanish() {
    suffer(|proxy| proxy.set(Direction::ToClient, Fault::BlackHole)).await;
}
