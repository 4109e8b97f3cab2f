//! `metadata`: whatever Envoy is to be told.

use std::collections::BTreeMap;

use crate::decode::Decoder;
use crate::envoy::Metadata;
use crate::tree::{Node, Scalar, Value};

impl Decoder<'_> {
    pub(super) fn metadata(&mut self, node: &Node) -> Option<BTreeMap<String, Metadata>> {
        match value(node) {
            Metadata::Map(map) => Some(map),
            _ => {
                self.expected(node, "`metadata`", "a mapping", None);
                None
            }
        }
    }
}

fn value(node: &Node) -> Metadata {
    match &node.value {
        Value::Null | Value::Broken => Metadata::Null,
        Value::Scalar(scalar) => read(scalar),
        Value::Sequence(items) => Metadata::List(items.iter().map(value).collect()),
        Value::Mapping(entries) => Metadata::Map(
            entries.iter().map(|entry| (entry.name.clone(), value(&entry.value))).collect(),
        ),
    }
}

fn read(scalar: &Scalar) -> Metadata {
    if let Some(boolean) = scalar.boolean() {
        return Metadata::Bool(boolean);
    }
    let number = scalar.text.parse::<f64>().ok().filter(|number| {
        let is_written = scalar.text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        number.is_finite() && is_written && !scalar.is_quoted
    });
    number.map_or_else(|| Metadata::Text(scalar.text.clone()), Metadata::Number)
}
