//! How the service starts and stops.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Attributes, ManualClock};
use tollgate_server::Server;

use crate::support::{Service, head, parse, reply};

const RULES: &str = "rules: [{ name: everyone, limit: 3/min }]";
const BODY: &[u8] = br#"{"attributes":{"ip":"1.2.3.4"}}"#;

/// Opens a connection and sends the head of a check, not its body.
async fn begin(service: &Service) -> TcpStream {
    let mut connection = TcpStream::connect(service.http).await.unwrap();
    connection.write_all(&head("POST", "/v1/check", &[], BODY.len())).await.unwrap();
    connection
}

/// Waits until no more connections are accepted.
async fn refused(service: &Service) {
    for _ in 0..1_000 {
        if TcpStream::connect(service.http).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("connections are still accepted");
}

#[tokio::test]
async fn a_request_in_flight_is_finished_and_no_other_is_taken() {
    let mut service = Service::start(RULES).await;
    let mut in_flight = begin(&service).await;
    // Another answer proves that the first connection has been accepted before this one.
    assert_eq!(service.post("/v1/peek", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await.status, 200);
    service.stop();
    refused(&service).await;
    let readiness = service.admin("/readyz").await;
    assert_eq!(readiness.status, 503);
    assert_eq!(readiness.json()["reason"], "stopping");

    in_flight.write_all(BODY).await.unwrap();
    let answer = reply(&mut in_flight).await;
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &2.into()));
    service.stopped().await;
}

/// Opens a connection and sends a whole question, before the service can run in between.
fn asked(address: SocketAddr) -> std::net::TcpStream {
    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection.write_all(&head("POST", "/v1/peek", &[], BODY.len())).unwrap();
    connection.write_all(BODY).unwrap();
    connection.set_nonblocking(true).unwrap();
    connection
}

#[tokio::test]
async fn who_has_connected_when_the_service_stops_is_answered() {
    let mut service = Service::start(RULES).await;
    // Nothing is accepted until this test waits for something.
    let asked: Vec<_> = (0..50).map(|_| asked(service.http)).collect();
    service.stop();
    for connection in asked {
        let mut connection = TcpStream::from_std(connection).unwrap();
        assert_eq!(reply(&mut connection).await.status, 200);
    }
    service.stopped().await;
}

#[tokio::test]
async fn a_process_takes_over_the_ports_of_another_and_loses_no_request() {
    let mut config = parse(RULES);
    config.listen.reuse_port = true;
    let mut old = Service::run(Server::bind(&config).await.unwrap());
    config.listen.http = old.http;
    config.listen.grpc = Some(old.grpc);
    config.listen.admin = old.admin;
    let new = Service::run(Server::bind(&config).await.unwrap());
    for round in 0..20 {
        // The kernel deals connections out to both while there are two.
        let asked: Vec<_> = (0..10).map(|_| asked(new.http)).collect();
        if round == 10 {
            old.stop();
        }
        for connection in asked {
            let mut connection = TcpStream::from_std(connection).unwrap();
            assert_eq!(reply(&mut connection).await.status, 200, "round {round}");
        }
    }
    old.stopped().await;
    assert_eq!(new.admin("/readyz").await.status, 200);

    config.listen.reuse_port = false;
    assert!(Server::bind(&config).await.unwrap_err().is_listen(), "both have to say so");
}

#[tokio::test]
async fn who_waits_is_told_that_the_service_stops_and_nothing_stays_spent() {
    let rules = "rules: [{ name: sms, algorithm: leaky_bucket, limit: 2/min, burst: 5 }]";
    let mut service = Service::start_with_clock(rules, &ManualClock::new()).await;
    let body = r#"{"attributes":{"ip":"1.2.3.4"},"wait_ms":60000}"#;
    service.post("/v1/acquire", body).await;
    let mut waiting = TcpStream::connect(service.http).await.unwrap();
    waiting.write_all(&head("POST", "/v1/acquire", &[], body.len())).await.unwrap();
    waiting.write_all(body.as_bytes()).await.unwrap();
    service.left(&Attributes::new(), 3).await;
    let limiter = service.limiter.clone();
    let start = Instant::now();
    service.stop();
    let told = reply(&mut waiting).await;
    assert_eq!((told.status, told.header("retry-after")), (503, Some("1")));
    assert_eq!(
        told.json()["detail"],
        "the service stops, so this wait has ended: nothing was spent, ask again"
    );
    service.stopped().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(limiter.peek(&Attributes::new()).await.unwrap().remaining(), Some(4));
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_keep_the_service_from_stopping() {
    let server = Server::bind(&parse(RULES)).await.unwrap();
    let service = Service::run(server.with_drain_timeout(Duration::from_millis(200)));
    let _never_ends = begin(&service).await;
    assert_eq!(service.post("/v1/peek", r#"{"attributes":{"ip":"1.2.3.4"}}"#).await.status, 200);
    let start = Instant::now();
    service.stopped().await;
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    for name in ["http", "admin"] {
        let mut config = parse(RULES);
        match name {
            "http" => config.listen.http = address,
            _ => config.listen.admin = address,
        }
        let error = Server::bind(&config).await.unwrap_err();
        assert!(error.is_listen());
        assert_eq!(error.address(), Some(address));
        assert_eq!(
            error.to_string(),
            format!(
                "cannot listen on {address} (listen.{name}): another process has this port: stop \
                 it, or choose another address"
            )
        );
    }
}
