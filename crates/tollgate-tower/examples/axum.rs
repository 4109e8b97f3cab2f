//! An axum service with rate limits.
//!
//! ```sh
//! cargo run -p tollgate-tower --features axum --example axum
//! curl -i http://127.0.0.1:3000/                 # 5 at once, then one every 200 ms
//! curl -i -X POST http://127.0.0.1:3000/login    # 2 at once, then one every 3 s
//! curl -i http://127.0.0.1:3000/users/7          # the handler reads what is left
//! curl -i http://127.0.0.1:3000/flaky            # a 500 costs nothing
//! curl -i http://127.0.0.1:3000/healthz          # is not limited
//! ```
//!
//! The buckets are in memory. To share them between replicas, give the builder a store:
//! `.store(RedisStore::builder("redis://127.0.0.1:6379").connect().await?)`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tollgate::{Limiter, Matcher, Quota, Rule, Verdict};
use tollgate_tower::{Extractor, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 3000)).await?).await
}

/// Answers on `listener`.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder()
        .rule(Rule::new("per-ip", Quota::new("5/s".parse()?, 5)?).with_key(["ip"]))
        .rule(
            Rule::new("login-per-ip", Quota::new("20/min".parse()?, 2)?)
                .with_match("path", ["/login"])
                .with_match("method", ["POST"])
                .with_key(["ip"]),
        )
        .rule(Rule::new("flaky", Quota::new("1/hour".parse()?, 1)?).with_match("route", ["/flaky"]))
        .build()?;
    let limits = RateLimitLayer::new(limiter)
        .attributes(Extractor::default().route())
        .skip(Matcher::new().with("path", ["/healthz"]))
        .refund_if(|response| response.status.is_server_error());

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/login", post(|| async { "welcome\n" }))
        .route("/users/{id}", get(user))
        .route("/flaky", get(|| async { StatusCode::INTERNAL_SERVER_ERROR }))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(limits);

    // Without the connect info no request has an `ip`, and rules that key on it would not apply.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

async fn user(Path(id): Path<u64>, Extension(verdict): Extension<Verdict>) -> String {
    let left = verdict.remaining().unwrap_or_default();
    format!("user {id}; you may ask {left} times more at once\n")
}
