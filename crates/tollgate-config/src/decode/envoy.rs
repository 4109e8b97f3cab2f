//! Files in the format of envoyproxy/ratelimit.

mod limit;
mod metadata;

use std::collections::HashMap;
use std::ops::Range;

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::envoy::{EnvoyDescriptor, EnvoyDomain};
use crate::mistake::{Mistake, quoted};
use crate::tree::{Node, Value};

const FILE: Shape = Shape {
    what: "the file",
    fields: &["domain", "descriptors"],
    synonyms: &[("descriptor", "descriptors"), ("rules", "descriptors"), ("limits", "descriptors")],
};

const DESCRIPTOR: Shape = Shape {
    what: "a descriptor",
    fields: &[
        "key",
        "value",
        "rate_limit",
        "shadow_mode",
        "quota_mode",
        "share_threshold",
        "detailed_metric",
        "value_to_metric",
        "metadata",
        "descriptors",
    ],
    synonyms: &[
        ("limit", "rate_limit"),
        ("unit", "rate_limit"),
        ("requests_per_unit", "rate_limit"),
        ("unlimited", "rate_limit"),
        ("replaces", "rate_limit"),
        ("name", "rate_limit"),
        ("shadow", "shadow_mode"),
    ],
};

/// All shapes of mappings in such a file.
#[cfg(test)]
pub(crate) const SHAPES: &[&Shape] = &[&FILE, &DESCRIPTOR, &limit::RATE_LIMIT, &limit::REPLACES];

/// The keys and values of one level, and where they stand.
type Seen = HashMap<(String, Option<String>), Range<usize>>;

impl Decoder<'_> {
    /// Decodes a file; gives the place of the domain's name with it.
    pub(crate) fn envoy_domain(&mut self, root: &Node) -> Option<(EnvoyDomain, Range<usize>)> {
        let fields = Fields::of(root, &FILE, self)?;
        let name = fields.required("domain", "domain: shop", self);
        let named = name.and_then(|node| {
            let text = self.text(node, "`domain`", "text")?;
            if text.is_empty() {
                let mistake = Mistake::new(node.span.clone(), "`domain` is empty");
                self.error(mistake.help("give it the name that Envoy's filter sends"));
                return None;
            }
            Some((text.to_owned(), node.span.clone()))
        });
        let descriptors = self.envoy_descriptors(&fields);
        let (name, span) = named?;
        Some((EnvoyDomain { name, descriptors }, span))
    }

    /// Decodes one level. A field without a value stands for an empty one in this format.
    fn envoy_descriptors(&mut self, fields: &Fields<'_>) -> Vec<EnvoyDescriptor> {
        let Some(node) = given(fields, "descriptors") else { return Vec::new() };
        let Value::Sequence(items) = &node.value else {
            self.expected(node, "`descriptors`", "a list", None);
            return Vec::new();
        };
        let mut seen = Seen::new();
        items.iter().filter_map(|item| self.envoy_descriptor(item, &mut seen)).collect()
    }

    fn envoy_descriptor(&mut self, node: &Node, seen: &mut Seen) -> Option<EnvoyDescriptor> {
        let fields = Fields::of(node, &DESCRIPTOR, self)?;
        let key_node = fields.required("key", "key: remote_address", self);
        let key = key_node.and_then(|node| {
            let text = self.text(node, "`key`", "text")?;
            if text.is_empty() {
                let mistake = Mistake::new(node.span.clone(), "`key` is empty");
                self.error(mistake.help("give it the key of the entry that Envoy sends"));
                return None;
            }
            Some(text.to_owned())
        });
        let value = given(&fields, "value")
            .and_then(|node| self.text(node, "`value`", "text"))
            .filter(|text| !text.is_empty())
            .map(str::to_owned);
        let limit = given(&fields, "rate_limit").and_then(|node| self.envoy_limit(node));
        let shadow_mode = self.envoy_switch(&fields, "shadow_mode");
        let quota_mode = self.envoy_switch(&fields, "quota_mode");
        let share_threshold = self.envoy_switch(&fields, "share_threshold");
        for name in ["detailed_metric", "value_to_metric"] {
            if self.envoy_switch(&fields, name) {
                self.values_in_metrics(&fields, name);
            }
        }
        let metadata = given(&fields, "metadata").and_then(|node| self.metadata(node));
        let descriptors = self.envoy_descriptors(&fields);

        let (key, key_node) = (key?, key_node?);
        self.check_repeated(&key, value.as_deref(), &key_node.span, seen);
        if share_threshold && !value.as_deref().is_some_and(|value| value.contains('*')) {
            let place = fields.entry("share_threshold").map_or(0..0, |e| e.name_span.clone());
            let message = "`share_threshold` needs a `value` with a `*`";
            self.error(
                Mistake::new(place, message)
                    .label("there is nothing to share")
                    .help("write the values that share one count, for example `value: files/*`"),
            );
        }
        Some(EnvoyDescriptor {
            key,
            value,
            limit,
            shadow_mode,
            quota_mode,
            share_threshold,
            metadata,
            descriptors,
        })
    }

    fn envoy_switch(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        given(fields, name).and_then(|node| self.boolean(node, name)).unwrap_or_default()
    }

    fn values_in_metrics(&mut self, fields: &Fields<'_>, name: &str) {
        let Some(entry) = fields.entry(name) else { return };
        let message = format!("`{name}` has no effect");
        self.warning(
            Mistake::new(entry.name_span.clone(), message)
                .label("metrics never show what callers send, so that they stay bounded")
                .help("give the values of interest descriptors of their own"),
        );
    }

    fn check_repeated(
        &mut self,
        key: &str,
        value: Option<&str>,
        span: &Range<usize>,
        seen: &mut Seen,
    ) {
        let both = (key.to_owned(), value.map(str::to_owned));
        let Some(first) = seen.insert(both, span.clone()) else { return };
        let value = match value {
            Some(value) => format!("with the value {}", quoted(value)),
            None => "without a value".to_owned(),
        };
        let message = format!("the key {} {value} is given twice", quoted(key));
        let mistake = Mistake::new(span.clone(), message).label("given again here");
        self.error(
            if first == *span { mistake } else { mistake.also(first, "first given here") }
                .help("remove one of the two"),
        );
    }
}

/// Returns the value of a field, if it has one.
fn given<'n>(fields: &Fields<'n>, name: &str) -> Option<&'n Node> {
    let entry = fields.entry(name)?;
    (entry.value.value != Value::Null && entry.value.value != Value::Broken).then_some(&entry.value)
}
