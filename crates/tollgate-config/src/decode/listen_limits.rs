//! `listen.limits`: what the listeners grant their clients.

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::listen_limits::ListenLimits;
use crate::tree::Node;

pub(super) const LISTEN_LIMITS: Shape = Shape {
    what: "`limits`",
    fields: &[
        "connections_max",
        "admin_connections_max",
        "headers_max",
        "header_bytes_max",
        "body_bytes_max",
        "header_timeout",
        "idle_timeout",
    ],
    synonyms: &[
        ("connections", "connections_max"),
        ("max_connections", "connections_max"),
        ("headers", "headers_max"),
        ("max_headers", "headers_max"),
        ("header_size", "header_bytes_max"),
        ("body_size", "body_bytes_max"),
        ("max_body_size", "body_bytes_max"),
        ("header_read_timeout", "header_timeout"),
        ("read_header_timeout", "header_timeout"),
        ("keepalive_timeout", "idle_timeout"),
        ("keep_alive_timeout", "idle_timeout"),
    ],
};

impl Decoder<'_> {
    pub(super) fn listen_limits(&mut self, node: &Node) -> Option<ListenLimits> {
        let fields = Fields::of(node, &LISTEN_LIMITS, self)?;
        let default = ListenLimits::default();
        let mut number = |field, range, default| match fields.value(field, self) {
            Some(node) => self.number(node, field, range),
            None => Some(default),
        };
        let connections_max =
            number("connections_max", ListenLimits::CONNECTIONS, default.connections_max);
        let admin_connections_max = number(
            "admin_connections_max",
            ListenLimits::CONNECTIONS,
            default.admin_connections_max,
        );
        let headers_max = number("headers_max", ListenLimits::HEADERS, default.headers_max);
        let header_bytes_max = number("header_bytes_max", ListenLimits::HEADER_BYTES, 64 << 10);
        let body_bytes_max =
            number("body_bytes_max", ListenLimits::BODY_BYTES, default.body_bytes_max);
        let mut duration = |field, range, default| match fields.value(field, self) {
            Some(node) => self.duration(node, field, range, "10s"),
            None => Some(default),
        };
        let header_timeout =
            duration("header_timeout", ListenLimits::HEADER_TIMEOUT, default.header_timeout);
        let idle_timeout =
            duration("idle_timeout", ListenLimits::IDLE_TIMEOUT, default.idle_timeout);
        Some(ListenLimits {
            connections_max: connections_max?,
            admin_connections_max: admin_connections_max?,
            headers_max: headers_max?,
            header_bytes_max: u32::try_from(header_bytes_max?).ok()?,
            body_bytes_max: body_bytes_max?,
            header_timeout: header_timeout?,
            idle_timeout: idle_timeout?,
        })
    }
}
