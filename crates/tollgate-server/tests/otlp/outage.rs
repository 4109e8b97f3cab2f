//! A collector that does not take spans concerns nobody else.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use crate::collector::section;
use crate::support::Service;

const RULES: &str = "rules: [{ name: everyone, limit: 1000/s }]";
const BODY: &str = r#"{"attributes":{"ip":"203.0.113.7"}}"#;

/// Checks as often, and returns the longest that one took.
async fn longest(service: &Service, checks: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..checks {
        let start = Instant::now();
        assert_eq!(service.post("/v1/check", BODY).await.status, 200);
        longest = longest.max(start.elapsed());
    }
    longest
}

async fn goes_on_without(collector: SocketAddr) {
    let service = Service::start(&format!("{}{RULES}", section(collector, "1"))).await;
    let took = longest(&service, 200).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let start = Instant::now();
    service.stopped().await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_collector_that_refuses_delays_neither_a_request_nor_the_stop() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    goes_on_without(closed).await;
}

#[tokio::test]
async fn a_collector_that_accepts_and_says_nothing_delays_neither_a_request_nor_the_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    goes_on_without(silent.local_addr().unwrap()).await;
}

#[tokio::test]
async fn spans_that_are_lost_are_counted() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let short = section(closed, "1").replace("sample: 1", "sample: 1, timeout: 100ms");
    let service = Service::start(&format!("{short}{RULES}")).await;
    longest(&service, 3).await;
    let name = r#"tollgate_spans_dropped_total{reason="export_failed"}"#;
    for _ in 0..1_000 {
        if service.metric(name).await == Some(3.0) {
            assert_eq!(service.metric("tollgate_spans_exported_total").await, Some(0.0));
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is counted");
}
