//! Envoy's RateLimitService over real sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod answers;
mod cases;
mod failures;
mod grpc;
mod redis;
mod rls;
mod rules;
#[allow(dead_code, reason = "the other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;
mod text;
