//! Traces, as a collector receives them over OTLP.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod collector;
mod envoy;
mod http;
mod outage;
#[allow(dead_code, reason = "the other tests need more of it")]
#[path = "../support/mod.rs"]
mod support;
