//! A hyper service without axum.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tollgate_tower::RateLimitLayer;
use tower::{Layer, service_fn};

use crate::support::{limiter, rule};

#[tokio::test]
async fn a_hyper_connection_is_limited() {
    let (limiter, _) = limiter([rule("all", "1/min", 1)]);
    let hello = service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    });
    let service = TowerToHyperService::new(RateLimitLayer::new(limiter).layer(hello));
    let (mut client, server) = duplex(64 * 1024);
    let serving = http1::Builder::new().serve_connection(TokioIo::new(server), service);
    let serving = tokio::spawn(serving);

    let requests =
        "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    client.write_all(requests.as_bytes()).await.unwrap();
    let mut responses = String::new();
    client.read_to_string(&mut responses).await.unwrap();
    serving.await.unwrap().unwrap();

    let (first, second) = responses.split_once("hello").unwrap();
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(second.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{second}");
    assert!(second.contains("\r\nretry-after: 60\r\n"), "{second}");
}
