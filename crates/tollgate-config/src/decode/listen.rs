//! `listen`: the doors of the service.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use crate::config::Listen;
use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::Mistake;
use crate::tree::{Node, Value};

pub(super) const LISTEN: Shape = Shape {
    what: "`listen`",
    fields: &["http", "grpc", "admin", "reuse_port", "limits"],
    synonyms: &[("metrics", "admin"), ("rls", "grpc"), ("api", "http")],
};

impl Decoder<'_> {
    pub(super) fn listen(&mut self, node: &Node) -> Option<Listen> {
        let default = Listen::default();
        let fields = Fields::of(node, &LISTEN, self)?;
        let mut given: Vec<(&'static str, SocketAddr, Range<usize>)> = Vec::new();
        let mut serves_grpc = true;
        for (name, example) in defaults() {
            let Some(value) = fields.value(name, self) else {
                continue;
            };
            if name == "grpc" && is_off(value) {
                serves_grpc = false;
                continue;
            }
            if let Some(address) = self.address(value, name, example) {
                given.push((name, address, value.span.clone()));
            }
        }
        self.check_distinct(&fields, &given);
        let reuse_port = match fields.value("reuse_port", self) {
            Some(node) => self.boolean(node, "reuse_port"),
            None => Some(default.reuse_port),
        };
        let limits = match fields.value("limits", self) {
            Some(node) => self.listen_limits(node),
            None => Some(default.limits),
        };
        let address = |wanted| {
            let found = given.iter().find(|(name, ..)| *name == wanted);
            found.map(|(_, address, _)| *address)
        };
        Some(Listen {
            http: address("http").unwrap_or(default.http),
            grpc: if serves_grpc { address("grpc").or(default.grpc) } else { None },
            admin: address("admin").unwrap_or(default.admin),
            reuse_port: reuse_port?,
            limits: limits?,
        })
    }

    /// Reports two doors that could not both be opened, be it that one is a default.
    fn check_distinct(
        &mut self,
        fields: &Fields<'_>,
        given: &[(&'static str, SocketAddr, Range<usize>)],
    ) {
        for (index, (name, address, span)) in given.iter().enumerate() {
            for (other, taken, first) in &given[..index] {
                if collide(*address, *taken) {
                    self.error(
                        Mistake::new(
                            span.clone(),
                            format!("`{name}` and `{other}` listen on one port"),
                        )
                        .also(first.clone(), format!("`{other}` listens here"))
                        .help("give each its own port"),
                    );
                }
            }
            for (other, taken) in defaults() {
                if fields.entry(other).is_none() && collide(*address, taken) {
                    self.error(
                        Mistake::new(
                            span.clone(),
                            format!("`{name}` and `{other}` listen on one port"),
                        )
                        .label(format!("`{other}` listens on {taken} unless set otherwise"))
                        .help("give each its own port"),
                    );
                }
            }
        }
    }
}

/// The doors, each with the address that it has unless set otherwise.
fn defaults() -> [(&'static str, SocketAddr); 3] {
    let Listen { http, grpc, admin, .. } = Listen::default();
    [("http", http), ("grpc", grpc.unwrap_or(http)), ("admin", admin)]
}

fn is_off(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(scalar) if scalar.text == "off")
}

/// Tells whether one of two addresses takes the port from the other.
pub(crate) fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    // A socket on `::` takes the IPv4 port too.
    let covers =
        |any: IpAddr, other: IpAddr| any.is_unspecified() && (any.is_ipv6() || other.is_ipv4());
    let (ip_a, ip_b) = (a.ip(), b.ip());
    a.port() == b.port()
        && a.port() != 0
        && (ip_a == ip_b || covers(ip_a, ip_b) || covers(ip_b, ip_a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_collide_when_one_takes_the_port_of_the_other() {
        for (a, b, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!(collide(a, b), expected, "{a} {b}");
            assert_eq!(collide(b, a), expected, "{b} {a}");
        }
    }
}
