//! Tollgate as Envoy's rate limit service: `envoy.service.ratelimit.v3.RateLimitService`.
//!
//! [`RateLimiter`] answers by the rules of a [`Limiter`](tollgate::Limiter), for which the entries
//! of a descriptor are attributes, and by the limits of a directory in the format of
//! envoyproxy/ratelimit, [`EnvoyLimits`](tollgate_config::EnvoyLimits). `docs/envoy.md` describes
//! what is answered, field by field.
//!
//! # Examples
//!
//! ```
//! use tollgate::{Limiter, ManualClock};
//! use tollgate_config::{EnvoyConfig, EnvoyLimits};
//! use tollgate_envoy::RateLimiter;
//! use tollgate_envoy::proto::rate_limit_descriptor::Entry;
//! use tollgate_envoy::proto::rate_limit_response::Code;
//! use tollgate_envoy::proto::{RateLimitDescriptor, RateLimitRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = EnvoyLimits::parse(
//!     "
//! domain: shop
//! descriptors:
//!   - key: remote_address
//!     rate_limit: { unit: minute, requests_per_unit: 1 }
//! ",
//!     "shop.yaml",
//! )?;
//! let limiter = Limiter::builder().clock(ManualClock::new()).build()?;
//! let service = RateLimiter::new(limiter, &limits, EnvoyConfig::default());
//!
//! let entry = Entry { key: "remote_address".into(), value: "203.0.113.7".into() };
//! let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
//! let request = RateLimitRequest {
//!     domain: "shop".into(),
//!     descriptors: vec![descriptor],
//!     hits_addend: 0,
//! };
//! let first = service.should_rate_limit(&request, None).await?;
//! assert_eq!(first.overall_code(), Code::Ok);
//! let second = service.should_rate_limit(&request, None).await?;
//! assert_eq!(second.overall_code(), Code::OverLimit);
//! // The manual clock stands 20 seconds into a minute.
//! assert_eq!(second.statuses[0].duration_until_reset.map(|until| until.seconds), Some(40));
//! # Ok(())
//! # }
//! ```

mod answer;
mod client_reply;
mod judge;
mod key;
mod limits;
mod live_limits;
mod mistake;
mod name;
mod observer;
mod patience;
mod plan;
pub mod proto;
mod received;
mod routes;
mod service;
mod unit;

pub use crate::client_reply::ClientReply;
pub use crate::live_limits::LiveLimits;
pub use crate::observer::Observer;
pub use crate::patience::patience;
pub use crate::routes::{Health, routes};
pub use crate::service::RateLimiter;
