//! Tollgate as a service: HTTP check API, forward auth, Envoy's rate limit protocol, health and
//! metrics.
//!
//! [`Server`] listens on three addresses, all loopback unless configured otherwise:
//!
//! - The **http** address is for services and gateways. `POST /v1/check` asks for a decision and
//!   spends, `/v1/peek` looks, `/v1/refund` gives back, `/v1/reset` fills; `/v1/acquire` waits and
//!   takes slots, which `/v1/renew` and `/v1/release` keep and give back; `/v1/reserve` spends an
//!   estimate, which `/v1/commit` and `/v1/cancel` settle; `/v1/auth` is forward auth for nginx,
//!   Caddy and Traefik. `docs/http-api.md` describes them field by field, `docs/forward-auth.md` has
//!   the recipes.
//! - The **grpc** address is for Envoy: RateLimitService v3, with gRPC health and reflection;
//!   `docs/envoy.md` describes it. It can be off.
//! - The **admin** address is for operators: `/healthz`, `/readyz`, `/metrics`, `/v1/status` and
//!   `/v1/rules`, by which rules are read and changed. `docs/live-configuration.md` describes how
//!   rules change while the service runs, `docs/security.md` how it is protected.
//!
//! # Examples
//!
//! ```
//! use tokio::sync::oneshot;
//! use tollgate_config::Config;
//! use tollgate_server::Server;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "
//! listen: { http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 127.0.0.1:0 }
//! rules: [{ name: login-per-ip, key: ip, limit: 20/min }]
//! ";
//! let server = Server::bind(&Config::parse(text, "tollgate.yaml")?).await?;
//! assert_ne!(server.http_addr().port(), 0);
//!
//! let (stop, stopped) = oneshot::channel::<()>();
//! let running = tokio::spawn(server.run(async { drop(stopped.await) }));
//! drop(stop);
//! running.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `otlp` (on by default): traces to a collector of OpenTelemetry. Without it a configuration that
//!   asks for them is refused.
//!
//! # What it keeps to itself
//!
//! An answer never holds a bucket's key, the text of a script or an error of Redis; those are in
//! the log. Labels of metrics are names from the rules (G9).

mod accept;
mod admin;
mod admin_client;
mod answer;
mod app;
mod arriving;
mod backend;
mod body;
mod client;
mod denials;
mod edge;
mod error;
mod grpc;
mod http;
mod live;
mod metrics;
mod open_files;
mod redis_access;
mod reload;
mod rules_status;
mod server;
#[cfg(feature = "otlp")]
mod spans;
#[cfg(not(feature = "otlp"))]
#[path = "no_spans.rs"]
mod spans;
mod tls;
mod token_warnings;
mod tokens;
mod unknown_domains;

pub use crate::admin_client::{AdminClient, AdminError, Replacing};
pub use crate::answer::Answer;
pub use crate::error::ServeError;
pub use crate::reload::Reload;
pub use crate::rules_status::{
    EnvoyLimitsStatus, RulesError, RulesSource, RulesStatus, RulesVersion,
};
pub use crate::server::{Server, connect};
