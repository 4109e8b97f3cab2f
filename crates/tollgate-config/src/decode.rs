//! From the tree to the configuration, past every mistake.

mod address;
mod algorithm;
mod breaker;
mod cost;
mod denial;
mod doubt;
mod duration;
pub(crate) mod envoy;
mod exceptions;
mod failure;
mod fields;
mod headers;
mod listen;
mod matching;
mod proxies;
mod quota;
mod redis;
mod redis_url;
mod rls;
mod rule;
mod rules;
mod scalar;
mod store;

use std::ops::Range;

use crate::answers::{DenialConfig, HeadersConfig};
use crate::config::{Config, Listen};
use crate::decode::fields::{Fields, Shape};
pub(crate) use crate::decode::listen::collide;
use crate::envoy::{EnvoyConfig, EnvoyLimits};
use crate::error::ConfigWarnings;
use crate::mistake::{Findings, Mistake};
use crate::source::Format;
use crate::store::StoreConfig;
use crate::tree::Node;

const FILE: Shape = Shape {
    what: "the file",
    fields: &["listen", "store", "trusted_proxies", "envoy", "headers", "denial", "rules"],
    synonyms: &[
        ("limits", "rules"),
        ("server", "listen"),
        ("redis", "store"),
        ("proxies", "trusted_proxies"),
        ("denials", "denial"),
        ("rejection", "denial"),
    ],
};

/// All shapes of mappings in the file.
#[cfg(test)]
pub(crate) const SHAPES: &[&Shape] = &[
    &FILE,
    &listen::LISTEN,
    &store::STORE,
    &breaker::BREAKER,
    &redis::TLS,
    &rls::ENVOY,
    &headers::HEADERS,
    &denial::DENIAL,
    &exceptions::OVERRIDE,
    &cost::COST,
    &cost::COST_ATTRIBUTE,
    &rule::RULE,
];

/// Decodes values and collects what is wrong with them. A method that gives `None` has either
/// found nothing or has reported why there is no value.
pub(crate) struct Decoder<'f> {
    pub(crate) format: Format,
    text: &'f str,
    findings: &'f mut Findings,
    /// Whether there are limits elsewhere, so that a file may have no rules.
    has_limits: bool,
}

impl<'f> Decoder<'f> {
    pub(crate) const fn new(format: Format, text: &'f str, findings: &'f mut Findings) -> Self {
        Self { format, text, findings, has_limits: false }
    }

    /// Takes a file without rules too.
    pub(crate) const fn beside_limits(mut self) -> Self {
        self.has_limits = true;
        self
    }

    /// Decodes a whole file. Whatever it gives is to be used only if no error was found.
    pub(crate) fn config(&mut self, root: &Node) -> Option<Config> {
        let fields = Fields::of(root, &FILE, self)?;
        let listen = match fields.value("listen", self) {
            Some(node) => self.listen(node),
            None => Some(Listen::default()),
        };
        let store = match fields.value("store", self) {
            Some(node) => self.store(node),
            None => Some(StoreConfig::default()),
        };
        let trusted_proxies = fields
            .value("trusted_proxies", self)
            .map(|node| self.trusted_proxies(node))
            .unwrap_or_default();
        let envoy = match fields.value("envoy", self) {
            Some(node) => self.envoy(node),
            None => Some(EnvoyConfig::default()),
        };
        let headers = match fields.value("headers", self) {
            Some(node) => self.headers(node),
            None => Some(HeadersConfig::default()),
        };
        let denial = match fields.value("denial", self) {
            Some(node) => self.denial(node),
            None => Some(DenialConfig::default()),
        };
        let rules = self.rules(&fields);
        Some(Config {
            listen: listen?,
            store: store?,
            trusted_proxies,
            envoy: envoy?,
            headers: headers?,
            denial: denial?,
            rules: rules?,
            envoy_limits: EnvoyLimits::default(),
            warnings: ConfigWarnings::default(),
        })
    }

    pub(crate) fn error(&mut self, mistake: Mistake) {
        self.findings.error(mistake);
    }

    fn has_errors(&self) -> bool {
        !self.findings.errors.is_empty()
    }

    /// Tells whether a further error would only be counted.
    fn is_full(&self) -> bool {
        self.findings.errors.len() >= Findings::COUNT_MAX
    }

    pub(super) fn warning(&mut self, mistake: Mistake) {
        self.findings.warning(mistake);
    }

    /// Hides a part of the file from every rendering.
    pub(super) fn hide(&mut self, span: Range<usize>) {
        self.findings.secrets.push(span);
    }

    /// Hides the user and the password of a URL.
    pub(super) fn hide_user(&mut self, url: &Node) {
        let written = self.text.get(url.span.clone()).unwrap_or_default();
        let start = written.find("://").map_or(0, |scheme| scheme + 3);
        match written.rfind('@') {
            Some(at) if start < at => self.hide(url.span.start + start..url.span.start + at),
            _ => {}
        }
    }
}
