//! Patterns that are possible, and that no request has.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

/// The bits of an IPv6 address by which the service knows a client.
const IPV6_PREFIX: u8 = 64;

impl Decoder<'_> {
    /// Warns of a pattern that no request which the service reads by itself can match.
    pub(super) fn doubt_pattern(&mut self, attribute: &str, pattern: &str, node: &Node) {
        let (problem, help) = match attribute {
            "path" if !pattern.starts_with(['/', '*']) => {
                ("no path begins like this", format!("write {}", quoted(&format!("/{pattern}"))))
            }
            "method" if pattern.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                let capitals = pattern.to_ascii_uppercase();
                ("methods are written in capitals", format!("write {}", quoted(&capitals)))
            }
            "ip" => match ip(pattern) {
                Some(doubt) => doubt,
                None => return,
            },
            _ => return,
        };
        let message = format!("{} matches no request: {problem}", quoted(pattern));
        self.warning(Mistake::new(node.span.clone(), message).help(help));
    }
}

/// Says why no client has this address, and what was probably meant.
fn ip(pattern: &str) -> Option<(&'static str, String)> {
    if let Ok(IpAddr::V6(address)) = pattern.parse() {
        let group = Ipv6Net::new(address, IPV6_PREFIX).ok()?.trunc();
        let problem = "IPv6 addresses are grouped by their first 64 bits";
        return Some((problem, format!("write `{group}`")));
    }
    let help = match pattern.parse().ok()? {
        IpNet::V6(network) if network.prefix_len() == IPV6_PREFIX => {
            let canonical = network.trunc().to_string();
            let problem = "the network is written in another way";
            return (canonical != pattern).then(|| (problem, format!("write `{canonical}`")));
        }
        IpNet::V6(_) => {
            let example = "2001:db8:1:2::/64";
            format!("list its networks of 64 bits, which are written like `{example}`")
        }
        IpNet::V4(network) => match ipv4_pattern(network) {
            Some(pattern) => format!("write `\"{pattern}\"`"),
            None => {
                "list its addresses, or networks of whole bytes such as `\"192.0.2.*\"`".to_owned()
            }
        },
    };
    Some(("a value is compared as text, not as a network", help))
}

/// Writes a network of whole bytes as a pattern.
fn ipv4_pattern(network: Ipv4Net) -> Option<String> {
    let bytes = match network.prefix_len() {
        8 => 1,
        16 => 2,
        24 => 3,
        32 => return Some(network.addr().to_string()),
        _ => return None,
    };
    let octets = network.trunc().addr().octets();
    let parts = octets.iter().take(bytes).map(|octet| format!("{octet}."));
    Some(parts.collect::<String>() + "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_client_has_are_answered_with_what_was_meant() {
        for (pattern, help) in [
            ("192.0.2.1", None),
            ("192.0.2.*", None),
            ("*", None),
            ("unknown", None),
            ("2001:db8:1:2::/64", None),
            ("2001:db8::1", Some("write `2001:db8::/64`")),
            ("2001:db8::1/64", Some("write `2001:db8::/64`")),
            ("2001:DB8::/64", Some("write `2001:db8::/64`")),
            ("192.0.2.0/24", Some("write `\"192.0.2.*\"`")),
            ("10.1.2.3/16", Some("write `\"10.1.*\"`")),
            ("10.0.0.0/8", Some("write `\"10.*\"`")),
            ("192.0.2.1/32", Some("write `\"192.0.2.1\"`")),
        ] {
            assert_eq!(ip(pattern).map(|(_, help)| help).as_deref(), help, "{pattern}");
        }
        for pattern in ["192.0.2.0/25", "0.0.0.0/0", "2001:db8::/48", "::/0"] {
            assert!(ip(pattern).is_some_and(|(_, help)| help.starts_with("list ")), "{pattern}");
        }
    }
}
