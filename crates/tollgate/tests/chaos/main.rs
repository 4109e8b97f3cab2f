//! Three nodes, a load of three times the limit, and a real Redis that is killed, stopped, flushed,
//! filled and misconfigured meanwhile (G10).
//!
//! Every test asserts that what was admitted stays below the bound of docs/guarantees.md, that no
//! check takes longer than the deadline, and that no error reaches a user under `local`.
#![cfg(all(unix, feature = "redis"))]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at what it does not expect"
)]

mod data;
mod fleet;
mod network;
mod process;
mod refusal;
mod shard;
mod start;
mod time;
