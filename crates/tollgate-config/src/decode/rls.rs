//! `envoy`: how Envoy is answered.

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::envoy::{EnvoyConfig, EnvoyHeaders};
use crate::rules_from::RulesFrom;
use crate::tree::Node;

pub(super) const ENVOY: Shape = Shape {
    what: "`envoy`",
    fields: &["spend_on_denial", "headers", "poll_interval"],
    synonyms: &[
        ("count_denied", "spend_on_denial"),
        ("interval", "poll_interval"),
        ("refresh", "poll_interval"),
    ],
};

impl Decoder<'_> {
    pub(super) fn envoy(&mut self, node: &Node) -> Option<EnvoyConfig> {
        let fields = Fields::of(node, &ENVOY, self)?;
        let spend_on_denial = fields
            .value("spend_on_denial", self)
            .and_then(|node| self.boolean(node, "spend_on_denial"));
        let headers = fields.value("headers", self).and_then(|node| {
            let words = &["denials", "all", "none"];
            let synonyms = &[("denial", "denials"), ("off", "none"), ("on", "all")];
            self.word(node, "headers", words, synonyms)
        });
        let poll_interval = self.poll_interval(&fields, RulesFrom::POLL_INTERVAL_DEFAULT);
        Some(EnvoyConfig {
            spend_on_denial: spend_on_denial.unwrap_or_default(),
            headers: match headers {
                Some("all") => EnvoyHeaders::All,
                Some("none") => EnvoyHeaders::None,
                _ => EnvoyHeaders::Denials,
            },
            poll_interval: poll_interval?,
        })
    }
}
