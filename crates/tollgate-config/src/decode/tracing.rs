//! `tracing`: where the service sends its traces.

use std::time::Duration;

use crate::decode::Decoder;
use crate::decode::denial::{is_token, is_value};
use crate::decode::fields::{Fields, Shape};
use crate::mistake::{Mistake, quoted};
use crate::rules_from::HttpUrl;
use crate::tracing::{OtlpConfig, Sampler, TracingConfig, endpoint, ratio};
use crate::tree::{Entry, Node, Value};

pub(super) const TRACING: Shape = Shape {
    what: "`tracing`",
    fields: &["otlp"],
    synonyms: &[("opentelemetry", "otlp"), ("exporter", "otlp"), ("collector", "otlp")],
};

pub(super) const OTLP: Shape = Shape {
    what: "`otlp`",
    fields: &["endpoint", "sample", "headers", "timeout", "service_name"],
    synonyms: &[
        ("url", "endpoint"),
        ("address", "endpoint"),
        ("ratio", "sample"),
        ("sampler", "sample"),
        ("sample_rate", "sample"),
        ("metadata", "headers"),
        ("service", "service_name"),
        ("name", "service_name"),
    ],
};

const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The longest name of a service, in bytes.
const NAME_LEN_MAX: usize = 255;

impl Decoder<'_> {
    pub(super) fn tracing(&mut self, node: &Node) -> Option<TracingConfig> {
        let fields = Fields::of(node, &TRACING, self)?;
        let example = format!("otlp: {{ endpoint: \"{}\" }}", OtlpConfig::ENDPOINT_DEFAULT);
        let otlp = fields.required("otlp", &example, self)?;
        Some(TracingConfig { otlp: Some(self.otlp(otlp)?) })
    }

    fn otlp(&mut self, node: &Node) -> Option<OtlpConfig> {
        let fields = Fields::of(node, &OTLP, self)?;
        let endpoint = fields.value("endpoint", self).map(|node| self.endpoint(node));
        let sample = fields.value("sample", self).map(|node| self.sample(node));
        let headers = fields.value("headers", self).map(|node| self.export_headers(node));
        let timeout = fields
            .value("timeout", self)
            .map(|node| self.duration(node, "timeout", TIMEOUT_MIN..=TIMEOUT_MAX, "10s"));
        let name = fields.value("service_name", self).map(|node| self.service_name(node));
        Some(OtlpConfig {
            endpoint: required(endpoint)?,
            sampler: required(sample)?.map(Sampler::ParentBased),
            headers: required(headers)?.unwrap_or_default(),
            timeout: required(timeout)?,
            service_name: required(name)?,
        })
    }

    fn endpoint(&mut self, node: &Node) -> Option<HttpUrl> {
        let text = self.text(node, "`endpoint`", "a URL")?;
        self.hide_user(node);
        let problem = match endpoint(text) {
            Ok(url) => return Some(url),
            Err(problem) => problem,
        };
        let message = format!("`endpoint` is not where a collector listens: {problem}");
        let example = self.format.assign_text("endpoint", OtlpConfig::ENDPOINT_DEFAULT);
        let help = format!("write `{example}`; the port for gRPC is 4317 as a rule");
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    fn sample(&mut self, node: &Node) -> Option<f64> {
        let text = self.text(node, "`sample`", "a number from 0 to 1")?;
        let sample = ratio(text);
        if sample.is_none() {
            let message = format!("`sample` must be a number from 0 to 1, not {}", quoted(text));
            let help =
                format!("for one in a hundred write `{}`", self.format.assign("sample", "0.01"));
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        sample
    }

    fn export_headers(&mut self, node: &Node) -> Option<Vec<(String, String)>> {
        let Value::Mapping(entries) = &node.value else {
            let help = "for example `headers: { x-tenant: shop }`";
            self.expected(node, "`headers`", "a mapping of names to values", Some(help));
            return None;
        };
        // All are looked at, so that every mistake is told.
        let headers: Vec<_> = entries.iter().map(|entry| self.export_header(entry)).collect();
        headers.into_iter().collect()
    }

    fn export_header(&mut self, entry: &Entry) -> Option<(String, String)> {
        self.hide(entry.value.span.clone());
        let name = entry.name.to_ascii_lowercase();
        if !is_token(&name) || name.starts_with("grpc-") || name.ends_with("-bin") {
            let message = format!("{} is not the name of a header here", quoted(&entry.name));
            let help =
                "a name has letters, digits and `-`; `grpc-...` and `...-bin` belong to gRPC";
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
            return None;
        }
        let field = format!("the value of {}", quoted(&entry.name));
        let value = self.text(&entry.value, &field, "text")?;
        if !is_value(value) {
            let message = format!("{field} cannot be that of a header");
            let help = "a value has printable ASCII characters, on one line";
            self.error(Mistake::new(entry.value.span.clone(), message).help(help));
            return None;
        }
        Some((name, value.to_owned()))
    }

    fn service_name(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "`service_name`", "text")?;
        if (1..=NAME_LEN_MAX).contains(&text.len()) {
            return Some(text.to_owned());
        }
        let message = format!("`service_name` has {} bytes", text.len());
        let help = format!("a name has 1 to {NAME_LEN_MAX} bytes");
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }
}

/// Tells an absent field, which is `Some(None)`, from one with a mistake.
#[expect(clippy::option_option, reason = "the two levels are the point")]
fn required<T>(decoded: Option<Option<T>>) -> Option<Option<T>> {
    match decoded {
        None => Some(None),
        Some(None) => None,
        Some(value) => Some(value),
    }
}
