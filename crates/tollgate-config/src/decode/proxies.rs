//! `trusted_proxies`: whose word on the client's address counts.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::decode::Decoder;
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

impl Decoder<'_> {
    pub(super) fn trusted_proxies(&mut self, node: &Node) -> Vec<IpNet> {
        let mut networks = Vec::new();
        for item in self.list(node) {
            networks.extend(self.network(item));
        }
        networks
    }

    fn network(&mut self, node: &Node) -> Option<IpNet> {
        let text = self.text(node, "a trusted proxy", "an IP address or a network")?;
        let network = text.parse::<IpNet>().ok();
        let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let Some(network) = network else {
            let message = format!("{} is not an IP address or a network", quoted(text));
            let help = "write an address such as `10.0.0.7` or a network such as `10.0.0.0/8`";
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        };
        if network != network.trunc() {
            let message = format!("{} has bits set outside of its prefix", quoted(text));
            let help = format!(
                "write `{}` for the network, or `{}` for the one address",
                network.trunc(),
                network.addr()
            );
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        }
        if network.prefix_len() == 0 {
            self.warning(
                Mistake::new(node.span.clone(), "everybody is a trusted proxy")
                    .label("any client can claim any address, and so escape limits per address")
                    .help("name only the networks of your own proxies"),
            );
        }
        Some(network)
    }
}
