//! Redis Cluster: three real nodes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod changes;
mod nodes;
mod spending;
mod support;
