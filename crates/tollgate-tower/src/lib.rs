//! Rate limits as a tower layer, for axum, hyper and tonic services.
//!
//! [`RateLimitLayer`] asks a [`Limiter`](tollgate::Limiter) about every request before the service
//! sees it. On a Redis store all replicas of the service spend from one exact budget; on the memory
//! store the layer works the same within one process.
//!
//! # What happens to a request
//!
//! 1. The [`Extractor`] makes its attributes: by default the client's `ip`, the `path` and the
//!    `method`. The rules of the limiter decide which of them matter.
//! 2. Every rule that applies is charged, or none is. A request that is denied costs nothing and
//!    never reaches the service. If no rule applies, the request passes and the response is left
//!    alone.
//! 3. A leaky bucket's delay is waited out here, so that requests reach the service evenly spaced.
//!    Units and slots are not waited for, unless [`RateLimitLayer::max_wait`] says so. What was
//!    taken is given back if the client goes away meanwhile.
//! 4. A rule that counts requests in flight
//!    ([`Quota::concurrency`](tollgate::Quota::concurrency)) counts a request until the service has
//!    failed, or its response's body has ended or was dropped, whatever the reason: the slots are
//!    held by the future and then by the [`PermitBody`]. They are renewed meanwhile, so a response
//!    may outlast the lease; that is only for a process that is killed.
//! 5. An allowed request has spent its cost before the service is called. It is not given back if
//!    the service fails or the client goes away then, unless [`RateLimitLayer::refund_if`] says so.
//! 6. A denial is answered with 429, a cost above the burst of a rule with 422, an attribute that
//!    should tell the cost and does not with 400, and a store that cannot answer, where a rule is
//!    [`FailurePolicy::Closed`](tollgate::FailurePolicy::Closed), with 503. Under the other
//!    policies a request passes, or is limited by this process alone, while the store is away.
//! 7. The default answer is `application/problem+json`, see [`ProblemResponse`]; set another by
//!    [`RateLimitLayer::on_rejection`], for instance a [`DenialResponse`]. None of the texts tells anything of keys or the store.
//! 8. Every limited response, allowed or denied, carries the [`headers`] of its limits, unless the
//!    service or an inner layer has set them.
//! 9. A request that reaches the service carries its [`Verdict`](tollgate::Verdict) in its
//!    extensions, for instance for axum's `Extension<Verdict>`. Every response of the service and every denial carries the [`Verdict`](tollgate::Verdict) in
//!    its extensions, and every rejection its [`Rejection`], for layers further out that log or
//!    count. A verdict that an inner layer has left there stays.
//! 10. Errors of the service pass through as they are.
//! 11. Requests that [`RateLimitLayer::skip`], [`skip_networks`](RateLimitLayer::skip_networks) or
//!     [`skip_if`](RateLimitLayer::skip_if) names go straight to the service.
//! 12. All services made from a layer or its clones share its limiter, and so the budget.
//!
//! # Deployment caveats
//!
//! - **The peer's address has to be told.** With axum, serve by
//!   `into_make_service_with_connect_info::<SocketAddr>()` and enable the feature `axum`; otherwise
//!   put a [`PeerAddr`] into the extensions of every request. **Without either a request has no `ip`,
//!   and rules that key on it limit nothing**, unless they say
//!   [`Missing::Share`](tollgate::Missing::Share). A warning is logged once then.
//! - **Behind a proxy all clients have the proxy's address**, until [`ClientIp::trust`] names it.
//!   See [`client_ip`] for what is believed and what is not.
//! - **The path is matched as it was sent.** `/login` does not match `/login/`, `//login` or
//!   `/%6Cogin`. If the service routes those alike, match them alike, or key on what the router
//!   found: `.with("route", |request| ...)` with axum's `MatchedPath`.
//! - **Place it outside of what is costly and inside of what it needs.** Layers further in are not
//!   run for denied requests. An attribute such as an account is there only if the layer that
//!   authenticates runs first. Layers that answer by themselves, such as CORS, belong outside, so
//!   that preflight requests cost nothing.
//! - **The check waits for the store**, with Redis for one round trip and at most the deadline of
//!   the store. Beside that it costs an allocation for its future, since that of an `async fn` has
//!   no name, and those of the attributes. A rule that delays or counts slots costs a task more.
//! - **Requests that wait are requests in memory.** Behind a leaky bucket at most its `burst` wait
//!   per key; with `max_wait` as many as clients send in that time.
//! - **An upgraded connection is in flight until its handshake is answered**, since the body of a
//!   101 is empty. Hold a [`Permit`](tollgate::Permit) of your own to count WebSockets.
//! - **The response has another body type**, [`PermitBody`] of the service's. axum, hyper and tonic
//!   take it as they take that; a layer that names the type of the body may not.
//!
//! # Examples
//!
//! Two logins per address, then one every three seconds:
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Limiter, ManualClock, Quota, Rule};
//! use tollgate_tower::{PeerAddr, RateLimitLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::new();
//! let limiter = Limiter::builder()
//!     .rule(
//!         Rule::new("login-per-ip", Quota::new("20/min".parse()?, 2)?)
//!             .with_match("path", ["/login"])
//!             .with_key(["ip"]),
//!     )
//!     .clock(clock.clone())
//!     .build()?;
//!
//! let hello = service_fn(|_: Request<()>| async {
//!     Ok::<_, Infallible>(Response::new("hello".to_owned()))
//! });
//! let service = RateLimitLayer::new(limiter).layer(hello);
//!
//! let login = || {
//!     let peer = PeerAddr(([203, 0, 113, 7], 4711).into());
//!     Request::post("/login").extension(peer).body(()).unwrap()
//! };
//! assert_eq!(service.clone().oneshot(login()).await?.headers()["x-ratelimit-remaining"], "1");
//! assert_eq!(service.clone().oneshot(login()).await?.headers()["x-ratelimit-remaining"], "0");
//!
//! let denied = service.clone().oneshot(login()).await?;
//! assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(denied.headers()["retry-after"], "3");
//!
//! clock.advance(Duration::from_secs(3));
//! assert_eq!(service.oneshot(login()).await?.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```
//!
//! An axum service behind a proxy, with limits by account, a cost by method and an answer of its
//! own:
//!
//! ```
//! use axum::Router;
//! use axum::response::IntoResponse;
//! use axum::routing::get;
//! use http::request::Parts;
//! use http::{Method, Response};
//! use tollgate::{Cost, Limiter, Quota, Rule};
//! use tollgate_tower::{ClientIp, Extractor, RateLimitLayer, Rejection};
//!
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder()
//!     .rule(Rule::new("per-ip", Quota::from_rate("100/s".parse()?)?).with_key(["ip"]))
//!     .rule(Rule::new("per-account", Quota::from_rate("5000/hour".parse()?)?).with_key(["account"]))
//!     .build()?;
//!
//! let proxies = ClientIp::new().trust(["10.0.0.5/32".parse()?, "10.0.0.6/32".parse()?]);
//! let layer = RateLimitLayer::new(limiter)
//!     .attributes(
//!         Extractor::default()
//!             .client_ip(proxies)
//!             .with("account", |request| request.extensions.get::<Account>().map(Account::id)),
//!     )
//!     .cost_of(|request| match request.method {
//!         Method::GET | Method::HEAD => Cost::ONE,
//!         _ => Cost::new(10),
//!     })
//!     .on_rejection(|rejection: &Rejection, _: &Parts| {
//!         (rejection.status(), format!("Slow down: {rejection}\n")).into_response()
//!     });
//!
//! let app = Router::new().route("/orders", get(|| async { "orders" })).layer(layer);
//! # Ok(app)
//! # }
//! # app().unwrap();
//! # #[derive(Clone)]
//! # struct Account(u64);
//! # impl Account {
//! #     fn id(&self) -> String {
//! #         self.0.to_string()
//! #     }
//! # }
//! ```
//!
//! # With tonic
//!
//! A gRPC client does not understand a 429; [`GrpcRejection`] answers with the status
//! `RESOURCE_EXHAUSTED`. The peer's address is in an extension of tonic, which a closure reads:
//!
//! ```text
//! let proxies = ClientIp::new();
//! let extractor = Extractor::default().with("ip", move |request| {
//!     let peer = request.extensions.get::<TcpConnectInfo>()?.remote_addr()?;
//!     Some(proxies.attribute(peer.ip(), &request.headers))
//! });
//! let layer = RateLimitLayer::new(limiter).attributes(extractor).on_rejection(GrpcRejection);
//! Server::builder().layer(layer).add_service(greeter).serve(address).await
//! ```
//!
//! `examples/tonic.rs` is a whole service. The status of a call that fails late stands in its
//! trailers, where [`RateLimitLayer::refund_if`] does not see it.
//!
//! The path of a call is its method: `/helloworld.Greeter/SayHello`.
//!
//! # Features
//!
//! - `axum`: reads the peer's address from `axum::extract::ConnectInfo<SocketAddr>`, and the route
//!   (`Extractor::route`).
//!
//! The crate leaves the features of `tollgate` alone. An application that keeps its buckets in Redis
//! depends on `tollgate` with its feature `redis`, which is on by default there.

pub mod client_ip;
pub mod headers;

mod body;
mod denial;
mod extractor;
mod future;
mod grpc;
mod layer;
mod peer_addr;
mod peer_watch;
mod refund;
mod rejection;
mod response;
mod service;
mod skip;

pub use ipnet::IpNet;

pub use crate::body::PermitBody;
pub use crate::client_ip::ClientIp;
pub use crate::denial::{DenialBody, DenialResponse};
pub use crate::extractor::Extractor;
pub use crate::future::ResponseFuture;
pub use crate::grpc::GrpcRejection;
pub use crate::layer::RateLimitLayer;
pub use crate::peer_addr::PeerAddr;
pub use crate::rejection::Rejection;
pub use crate::response::{ProblemResponse, RejectionResponse};
pub use crate::service::RateLimit;
