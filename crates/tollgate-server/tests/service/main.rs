//! The service over real sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod acquire;
mod admin;
mod api;
mod bad_requests;
mod documented;
mod forward_auth;
mod headers;
#[cfg(feature = "otlp")]
mod metrics_page;
mod redis;
mod reserve;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;
