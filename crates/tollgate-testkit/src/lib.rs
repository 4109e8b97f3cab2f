//! What a test of a Tollgate store needs.
//!
//! - [`RedisServer`] is a `redis-server` of the test's own on loopback.

#[cfg(unix)]
pub mod redis_server;

#[cfg(unix)]
pub use crate::redis_server::RedisServer;
