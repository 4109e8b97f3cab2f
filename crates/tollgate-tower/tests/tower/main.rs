//! The layer around services of all kinds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod asynchronous;
mod axum;
mod denial;
mod examples;
mod extractor;
mod grpc;
mod hyper;
mod layer;
mod peer_watch;
mod permit;
mod refund;
mod rejection;
mod skip;
mod support;
mod waiting;
