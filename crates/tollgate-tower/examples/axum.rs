//! An axum service with rate limits.
//!
//! ```sh
//! cargo run -p tollgate-tower --features axum --example axum
//! curl -i http://127.0.0.1:3000/            # 5 at once, then one every 200 ms
//! curl -i -X POST http://127.0.0.1:3000/login   # 2 at once, then one every 3 s
//! ```
//!
//! The buckets are in memory. To share them between replicas, give the builder a store:
//! `.store(RedisStore::builder("redis://127.0.0.1:6379").connect().await?)`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota, Rule};
use tollgate_tower::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .rule(Rule::new("per-ip", Quota::new("5/s".parse()?, 5)?).with_key(["ip"]))
        .rule(
            Rule::new("login-per-ip", Quota::new("20/min".parse()?, 2)?)
                .with_match("path", ["/login"])
                .with_match("method", ["POST"])
                .with_key(["ip"]),
        )
        .build()?;

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }))
        .layer(RateLimitLayer::new(limiter));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 3000)).await?;
    // Without the connect info no request has an `ip`, and neither rule would apply.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
