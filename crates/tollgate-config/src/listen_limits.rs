//! What the listeners grant their clients, as configured.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What the listeners grant their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenLimits {
    /// The most connections at a time of `http`, and of `grpc`. Further ones wait.
    pub connections_max: usize,
    /// The most connections at a time of `admin`.
    pub admin_connections_max: usize,
    /// The most headers of a request.
    pub headers_max: usize,
    /// The most bytes of all headers of a request.
    pub header_bytes_max: u32,
    /// The most bytes of the body of a call.
    pub body_bytes_max: usize,
    /// How long the head of a request may take once it has begun, and a TLS handshake.
    pub header_timeout: Duration,
    /// How long a connection may stay without a request.
    pub idle_timeout: Duration,
}

impl ListenLimits {
    /// How many connections there can be.
    pub const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;

    /// How many headers a request can be granted.
    pub const HEADERS: RangeInclusive<usize> = 16..=1_000;

    /// How many bytes of headers a request can be granted: 8 KiB to 1 MiB.
    pub const HEADER_BYTES: RangeInclusive<usize> = 8 << 10..=1 << 20;

    /// How many bytes of a body a request can be granted: 1 KiB to 16 MiB.
    pub const BODY_BYTES: RangeInclusive<usize> = 1 << 10..=16 << 20;

    /// How long the head of a request can be granted.
    pub const HEADER_TIMEOUT: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(600);

    /// How long an idle connection can be granted.
    pub const IDLE_TIMEOUT: RangeInclusive<Duration> =
        Duration::from_millis(100)..=Duration::from_secs(3_600);
}

impl Default for ListenLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            admin_connections_max: 256,
            headers_max: 100,
            header_bytes_max: 64 << 10,
            body_bytes_max: 64 << 10,
            header_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
        }
    }
}
