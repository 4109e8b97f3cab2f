//! TLS, tokens and bounds of the listeners.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod authority;
mod bounds;
mod log;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the other tests need more of it")]
mod support;
mod tls;
mod tokens;
