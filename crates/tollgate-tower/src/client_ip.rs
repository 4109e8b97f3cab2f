//! How the address of the client is found, with and without proxies in front.
//!
//! A header can be written by anyone, so the address that a connection comes from is all that can
//! be believed, unless the connection comes from a proxy that says whom it serves. [`ClientIp`] is
//! told which proxies to believe.
//!
//! # The rules
//!
//! 1. A peer that is not [trusted](ClientIp::trust) is the client. Its headers are not read. By
//!    default nobody is trusted.
//! 2. A trusted peer's `X-Forwarded-For` is walked from the right, all its lines joined in order:
//!    the rightmost entry was written by the peer itself. As long as an entry is a trusted
//!    address, the walk goes on to the next one. The first address that is not trusted is the
//!    client. If all are trusted, the leftmost is.
//! 3. An entry that is not an address (`unknown`, `_hidden`, empty, garbage) ends the walk, and
//!    the last trusted address before it is the client: what is left of such an entry may have
//!    been written by anyone.
//! 4. An entry may carry a port, `192.0.2.1:4711` or `[2001:db8::1]:4711`, which is dropped.
//! 5. The walk ends after 64 entries, and at an entry of more than 8 KiB, as it does at a
//!    malformed one.
//! 6. `::ffff:192.0.2.1` is `192.0.2.1`, wherever it stands.
//! 7. IPv6 addresses are grouped by their first 64 bits, since one customer has at least that
//!    many: `2001:db8:1:2::/64` is one client. See [`ClientIp::ipv6_prefix`].
//!
//! # Which header is believed
//!
//! `X-Forwarded-For`, if the request has it, well-formed or not; otherwise `Forwarded`
//! ([RFC 7239](https://www.rfc-editor.org/rfc/rfc7239)). The two are never mixed or compared.
//!
//! A client can add either header to its request, so it must not be able to choose which one
//! counts. It cannot as long as every trusted proxy writes `X-Forwarded-For`, as nearly all do:
//! the header is then always there, and a `Forwarded` that a client makes up is not read.
//!
//! **Warning:** proxies that write `Forwarded` *instead* pass on whatever `X-Forwarded-For` a
//! client sends, and it would be believed. Behind such proxies say so, with
//! [`ClientIp::header`] and [`ForwardingHeader::Forwarded`].
//!
//! # Deployment caveats
//!
//! - Trust the addresses of the proxies, not the network that they live in: a client inside a
//!   trusted network can claim any address.
//! - A trusted proxy must append to the header or replace it. One that passes it on untouched, or
//!   a TCP load balancer that never sees it, lets every client choose its address.
//! - If a proxy is left out of the list, all its clients share one bucket: that of the proxy.
//!
//! # Examples
//!
//! ```
//! use http::HeaderMap;
//! use tollgate_tower::ClientIp;
//!
//! let mut headers = HeaderMap::new();
//! headers.append("x-forwarded-for", "6.6.6.6, 203.0.113.7".parse()?);
//! headers.append("x-forwarded-for", "10.0.0.2".parse()?);
//!
//! // Nobody is believed: the peer is the client.
//! let direct = ClientIp::new();
//! assert_eq!(direct.attribute("10.0.0.1".parse()?, &headers), "10.0.0.1");
//!
//! // The two proxies are believed. The client made up the address to the left of its own.
//! let proxied = ClientIp::new().trust(["10.0.0.0/29".parse()?]);
//! assert_eq!(proxied.attribute("10.0.0.1".parse()?, &headers), "203.0.113.7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod list;
mod node;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use ipnet::{IpNet, Ipv4Net};

use list::FromRight;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most entries that are walked; the longest chains of proxies have a handful.
const HOP_COUNT_MAX: usize = 64;

/// How the address of the client is found.
///
/// See the [module docs](self) for the rules, the caveats and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trusted: Vec<IpNet>,
    header: ForwardingHeader,
    ipv6_prefix: u8,
}

/// Which header of a trusted proxy is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardingHeader {
    /// `X-Forwarded-For` if the request has it, otherwise `Forwarded`. Right for proxies that
    /// always write `X-Forwarded-For`.
    #[default]
    Either,
    /// `X-Forwarded-For` only.
    XForwardedFor,
    /// `Forwarded` only. Right for proxies that write it instead of `X-Forwarded-For`.
    Forwarded,
}

impl ClientIp {
    /// Makes the strictest way: nobody is trusted, so the client is the socket's peer.
    pub const fn new() -> Self {
        Self { trusted: Vec::new(), header: ForwardingHeader::Either, ipv6_prefix: 64 }
    }

    /// Adds proxies whose word is believed, as networks: `10.0.0.5/32`, `2001:db8:f::/48`.
    ///
    /// An IPv6 network inside `::ffff:0:0/96` stands for the IPv4 network that it maps. A wider
    /// one holds IPv6 addresses only: `::/0` does not trust IPv4 peers.
    pub fn trust(mut self, proxies: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted.extend(proxies.into_iter().map(canonical));
        self
    }

    /// Sets which header is believed. The default is [`ForwardingHeader::Either`]; see the
    /// [module docs](self#which-header-is-believed) for when it is not enough.
    pub const fn header(mut self, header: ForwardingHeader) -> Self {
        self.header = header;
        self
    }

    /// Sets how many leading bits of an IPv6 address make one client, 0 to 128. The default is 64.
    ///
    /// With 128 every address is a client of its own, so anyone with a usual connection has 2^64
    /// budgets. With 0 all IPv6 clients share one.
    ///
    /// # Errors
    ///
    /// [`Ipv6PrefixError`] if `bits` is above 128.
    pub fn ipv6_prefix(mut self, bits: u8) -> Result<Self, Ipv6PrefixError> {
        if bits > 128 {
            return Err(Ipv6PrefixError { bits });
        }
        self.ipv6_prefix = bits;
        Ok(self)
    }

    /// Finds the address of the client of a request that came from `peer`.
    ///
    /// The address is not grouped, and an IPv4-mapped one is given as IPv4.
    pub fn resolve(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return peer;
        }
        let forwarded = match self.header {
            ForwardingHeader::Either => !headers.contains_key(X_FORWARDED_FOR),
            ForwardingHeader::XForwardedFor => false,
            ForwardingHeader::Forwarded => true,
        };
        if forwarded {
            let elements = from_right(headers, &FORWARDED, FromRight::with_quotes);
            self.walk(peer, elements.map(|element| node::of_forwarded(element?)))
        } else {
            let entries = from_right(headers, &X_FORWARDED_FOR, FromRight::plain);
            self.walk(peer, entries.map(|entry| node::address(entry?)))
        }
    }

    /// Finds the client and writes it as rules see it: `203.0.113.7`, or the IPv6 group
    /// `2001:db8:1:2::/64`.
    ///
    /// With a prefix of 128 an IPv6 address is written without one.
    pub fn attribute(&self, peer: IpAddr, headers: &HeaderMap) -> String {
        match self.resolve(peer, headers) {
            IpAddr::V6(address) if self.ipv6_prefix < 128 => {
                let host_bits = 128 - u32::from(self.ipv6_prefix);
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                let network = Ipv6Addr::from_bits(address.to_bits() & mask);
                format!("{network}/{}", self.ipv6_prefix)
            }
            address => address.to_string(),
        }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// Follows the addresses that `hops` gives from the right; `None` is a malformed entry.
    fn walk(&self, peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut known = peer;
        for hop in hops.take(HOP_COUNT_MAX) {
            let Some(address) = hop else { break };
            known = address;
            if !self.trusts(known) {
                break;
            }
        }
        known
    }
}

impl Default for ClientIp {
    fn default() -> Self {
        Self::new()
    }
}

fn from_right<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    entries: fn(&'a [u8]) -> FromRight<'a>,
) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
    let lines = headers.get_all(name).into_iter().rev();
    lines.map(HeaderValue::as_bytes).flat_map(entries)
}

fn canonical(network: IpNet) -> IpNet {
    if let IpNet::V6(mapped) = network
        && mapped.prefix_len() >= 96
        && let Some(address) = mapped.addr().to_ipv4_mapped()
    {
        let network_v4 = Ipv4Net::new(address, mapped.prefix_len() - 96);
        return network_v4.map_or(network, IpNet::V4);
    }
    network
}

/// An IPv6 prefix length that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv6PrefixError {
    bits: u8,
}

impl fmt::Display for Ipv6PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPv6 prefix {} is longer than an address: give 0 to 128 bits", self.bits)
    }
}

impl std::error::Error for Ipv6PrefixError {}
