//! One replica of the service: it asks its downstream for every request that its limiter lets in.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::io::{AsyncReadExt, stdin};
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota, RedisStore, Rule};
use tollgate_tower::RateLimitLayer;

use crate::Failure;
use crate::client::Client;
use crate::downstream::without_delay;
use crate::run::{BURST, RATE, REPLICAS};

/// How long the handler took, so that the rest is what the limiter added.
#[derive(Clone, Copy)]
struct Handled(Duration);

/// Serves until standard input ends. Without a Redis the bucket is that of this process.
pub(crate) async fn serve(downstream: &str, redis: Option<&str>) -> Result<(), Failure> {
    let limiter = match redis {
        Some(url) => Limiter::builder()
            .rule(Rule::new("all", Quota::new(format!("{RATE}/s").parse()?, BURST)?))
            .store(RedisStore::builder(url).connect_lazily()?)
            .build()?,
        None => {
            let (rate, burst) = (RATE / REPLICAS, BURST / REPLICAS);
            let rule = Rule::new("own", Quota::new(format!("{rate}/s").parse()?, burst)?);
            Limiter::builder().rule(rule).build()?
        }
    };
    let downstream = Arc::new(Client::new(downstream.parse()?));
    let app = Router::new()
        .route("/", get(forward))
        .with_state(downstream)
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(from_fn(measure))
        .route("/status", get(move || std::future::ready(status(&limiter))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?);
    let (mut input, mut nothing) = (stdin(), Vec::new());
    tokio::select! {
        served = axum::serve(listener.tap_io(without_delay), app) => served?,
        // Whoever started it has gone.
        _ = input.read_to_end(&mut nothing) => {}
    }
    Ok(())
}

async fn forward(State(downstream): State<Arc<Client>>) -> Response {
    let start = Instant::now();
    let asked = downstream.get("/").await;
    let mut response = match asked {
        Ok(reply) => reply.body.into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    };
    response.extensions_mut().insert(Handled(start.elapsed()));
    response
}

async fn measure(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let mut response = next.run(request).await;
    let Handled(handled) = response.extensions().get().copied().unwrap_or(Handled(Duration::ZERO));
    let added_us = start.elapsed().saturating_sub(handled).as_micros();
    if let Ok(value) = HeaderValue::from_str(&added_us.to_string()) {
        response.headers_mut().insert("x-added-us", value);
    }
    response
}

/// `exact` or how the store fails, and the number of nodes.
fn status(limiter: &Limiter) -> String {
    let status = limiter.status();
    let failure = status.failure.map_or("exact", tollgate::StoreErrorKind::as_str);
    format!("{failure} {}", status.nodes)
}
