//! Addresses to listen on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

impl Decoder<'_> {
    /// Reads an IP address with a port, of which `example` is one.
    pub(super) fn address(
        &mut self,
        node: &Node,
        field: &str,
        example: SocketAddr,
    ) -> Option<SocketAddr> {
        let text = self.text(node, &format!("`{field}`"), "an IP address with a port")?;
        if let Ok(address) = text.parse() {
            return Some(address);
        }
        let (problem, instead) = problem(text, example);
        let message = format!("`{field}` cannot be {}", quoted(text));
        let help = format!(
            "write an IP address and a port: `{}`",
            self.format.assign_text(field, &instead.to_string())
        );
        self.error(Mistake::new(node.span.clone(), message).label(problem).help(help));
        None
    }
}

/// Says what is wrong with an address, and which one was probably meant.
fn problem(text: &str, example: SocketAddr) -> (&'static str, SocketAddr) {
    let with_port = |address: Ipv4Addr, port: u16| SocketAddr::new(IpAddr::V4(address), port);
    let port = |digits: &str| digits.parse::<u16>().ok();
    if let Some(port) = port(text) {
        return ("it has no address", with_port(Ipv4Addr::LOCALHOST, port));
    }
    if let Some(port) = text.strip_prefix(':').and_then(port) {
        return ("it has no address", with_port(Ipv4Addr::UNSPECIFIED, port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return ("it has no port", SocketAddr::new(address, example.port()));
    }
    if text.contains("://") {
        return ("it has a scheme", example);
    }
    let Some((host, digits)) = text.rsplit_once(':') else {
        return ("it has no port", example);
    };
    let Some(port) = port(digits) else {
        return ("the port is not a number from 0 to 65535", example);
    };
    match host.parse::<IpAddr>() {
        Ok(address) => ("IPv6 stands in brackets", SocketAddr::new(address, port)),
        Err(_) => {
            let problem = "a name is not an IP address";
            (problem, with_port(Ipv4Addr::LOCALHOST, port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_answered_with_the_one_that_was_meant() {
        for (text, meant) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "0.0.0.0:8080"),
            ("10.0.0.1", "10.0.0.1:8080"),
            ("::1", "[::1]:8080"),
            ("localhost:9000", "127.0.0.1:9000"),
            ("example.com:9000", "127.0.0.1:9000"),
            ("http://127.0.0.1:80", "127.0.0.1:8080"),
            ("127.0.0.1:65536", "127.0.0.1:8080"),
            ("", "127.0.0.1:8080"),
            (":", "127.0.0.1:8080"),
        ] {
            let example = "127.0.0.1:8080".parse().unwrap();
            assert_eq!(problem(text, example).1.to_string(), meant, "{text}");
        }
    }
}
