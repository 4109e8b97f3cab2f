//! From the tree to the configuration, past every mistake.

mod address;
mod admin_tokens;
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
mod hot_keys;
mod listen;
mod listen_limits;
mod log;
mod matching;
mod path;
mod proxies;
mod quota;
mod redis;
mod redis_url;
mod rls;
mod rule;
mod rules;
mod rules_from;
mod scalar;
mod store;
mod tls;
mod tracing;

use std::ops::Range;

use tollgate_core::RuleSet;

use crate::answers::{DenialConfig, HeadersConfig};
use crate::config::{Config, Listen};
use crate::decode::fields::{Fields, Shape};
pub(crate) use crate::decode::listen::collide;
use crate::envoy::{EnvoyConfig, EnvoyLimits};
use crate::error::ConfigWarnings;
use crate::log::LogConfig;
use crate::mistake::{Findings, Mistake};
use crate::rules_file::RulesId;
use crate::rules_from::RulesFrom;
use crate::sections::Sections;
use crate::security::Tls;
use crate::source::Format;
use crate::store::StoreConfig;
use crate::tracing::TracingConfig;
use crate::tree::{Node, Value};

const FILE: Shape = Shape {
    what: "the file",
    fields: &[
        "listen",
        "store",
        "trusted_proxies",
        "envoy",
        "headers",
        "denial",
        "tls",
        "admin_tokens",
        "rules_from",
        "state_dir",
        "log",
        "tracing",
        "rules",
    ],
    synonyms: &[
        ("tokens", "admin_tokens"),
        ("rules_source", "rules_from"),
        ("data_dir", "state_dir"),
        ("logging", "log"),
        ("telemetry", "tracing"),
        ("traces", "tracing"),
        ("otlp", "tracing"),
        ("opentelemetry", "tracing"),
        ("limits", "rules"),
        ("server", "listen"),
        ("redis", "store"),
        ("proxies", "trusted_proxies"),
        ("denials", "denial"),
        ("rejection", "denial"),
    ],
};

const RULES_FILE: Shape =
    Shape { what: "a file of rules", fields: &["rules"], synonyms: &[("limits", "rules")] };

/// All shapes of mappings in the file.
#[cfg(test)]
pub(crate) const SHAPES: &[&Shape] = &[
    &FILE,
    &listen::LISTEN,
    &listen_limits::LISTEN_LIMITS,
    &store::STORE,
    &tls::TLS,
    &tls::TLS_FILES,
    &admin_tokens::ADMIN_TOKEN,
    &rules_from::RULES_FROM,
    &breaker::BREAKER,
    &redis::TLS,
    &rls::ENVOY,
    &log::LOG,
    &tracing::TRACING,
    &tracing::OTLP,
    &headers::HEADERS,
    &denial::DENIAL,
    &exceptions::OVERRIDE,
    &cost::COST,
    &cost::COST_ATTRIBUTE,
    &hot_keys::HOT_KEYS,
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
        let tls = match fields.value("tls", self) {
            Some(node) => self.listener_tls(node),
            None => Some(Tls::default()),
        };
        if let (Some(tls), Some(listen)) = (&tls, &listen)
            && tls.grpc.is_some()
            && listen.grpc.is_none()
            && let Some(entry) = fields.entry("tls")
        {
            let message = "`tls.grpc` has no effect: `listen.grpc` is off";
            let help = "remove it, or give `listen.grpc` an address";
            self.warning(Mistake::new(entry.name_span.clone(), message).help(help));
        }
        let admin_tokens = match fields.value("admin_tokens", self) {
            Some(node) => self.admin_tokens(node),
            None => Some(Vec::new()),
        };
        let rules_from = match fields.value("rules_from", self) {
            Some(node) => self.rules_from(node, store.as_ref()),
            None => Some(RulesFrom::Config),
        };
        let state_dir = self.optional_path(&fields, "state_dir");
        let log = match fields.value("log", self) {
            Some(node) => self.log(node),
            None => Some(LogConfig::default()),
        };
        let tracing = match fields.value("tracing", self) {
            Some(node) => self.tracing(node),
            None => Some(TracingConfig::default()),
        };
        // Rules from elsewhere may be the only ones.
        let is_elsewhere = fields.entry("rules_from").is_some();
        let rules = match fields.entry("rules") {
            None if is_elsewhere => Some(RuleSet::default()),
            _ => self.rules(&fields),
        };
        let (rules_id, rules_text) = stated(&fields);
        Some(Config {
            listen: listen?,
            store: store?,
            trusted_proxies,
            tls: tls?,
            admin_tokens: admin_tokens?,
            rules_from: rules_from?,
            state_dir: state_dir?,
            log: log?,
            tracing: tracing?,
            headers: headers?,
            denial: denial?,
            rules: rules?,
            rules_id,
            file: None,
            envoy: envoy?,
            envoy_limits: EnvoyLimits::default(),
            warnings: ConfigWarnings::default(),
            sections: Sections::of(root),
            rules_text,
        })
    }

    /// Decodes a text with nothing but rules.
    pub(crate) fn rules_alone(&mut self, root: &Node) -> Option<(RuleSet, RulesId, String)> {
        let fields = Fields::of(root, &RULES_FILE, self)?;
        let rules = self.rules(&fields)?;
        let (id, text) = stated(&fields);
        Some((rules, id, text))
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

/// Returns the id of the rules, and them as a text of their own.
fn stated(fields: &Fields<'_>) -> (RulesId, String) {
    let Some(entry) = fields.entry("rules") else {
        return (RulesId::of_none(), String::new());
    };
    let mut text = "rules:\n".to_owned();
    if let Value::Sequence(rules) = &entry.value.value {
        for rule in rules {
            text.push_str("- ");
            text.push_str(&rule.canonical());
            text.push('\n');
        }
    }
    (RulesId::of(&entry.value), text)
}
