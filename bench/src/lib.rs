//! What the benchmarks share: cheap clients, and services in processes of their own.

pub mod client;
pub mod process;
pub mod processors;
mod random;
pub mod service;

pub use crate::random::Random;

/// What goes wrong in a benchmark ends it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
