//! A tonic service with rate limits. The service is that of gRPC health, in place of your own.
//!
//! ```sh
//! cargo run -p tollgate-tower --features axum --example tonic
//! grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check   # 3 at once, then 1 every 3 s
//! ```
//!
//! A call above the limit ends with `RESOURCE_EXHAUSTED` and says when to try again.

use std::error::Error;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tollgate::{Limiter, Quota, Rule};
use tollgate_tower::{ClientIp, Extractor, GrpcRejection, RateLimitLayer};
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 50051)).await?).await
}

/// Answers on `listener`.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .rule(
            Rule::new("checks-per-ip", Quota::new("20/min".parse()?, 3)?)
                .with_match("path", ["/grpc.health.v1.Health/Check"])
                .with_key(["ip"]),
        )
        .build()?;
    // The peer's address is in an extension of tonic.
    let proxies = ClientIp::new();
    let attributes = Extractor::default().with("ip", move |request| {
        let peer = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
        Some(proxies.attribute(peer.ip(), &request.headers))
    });
    let limits = RateLimitLayer::new(limiter).attributes(attributes).on_rejection(GrpcRejection);

    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(limits)
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
