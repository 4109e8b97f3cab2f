//! TOML into the tree.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistake::{Findings, Mistake};
use crate::tree::{Entry, Node, Scalar, Value};

/// Reads a TOML document. Syntax errors go to `findings`, and then there is no tree.
pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let value = mapping(table.into_inner(), text);
        return Some(Node { span: 0..text.len(), value });
    }
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        findings.error(Mistake::new(span, format!("TOML: {}", error.message())));
    }
    None
}

fn mapping(table: DeTable<'_>, text: &str) -> Value {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(name, value)| Entry {
            name_span: name.span(),
            name: name.into_inner().into_owned(),
            value: node(value, text),
        })
        .collect();
    // The parser sorts by name; a reader expects mistakes in the order of the file.
    entries.sort_by_key(|entry| entry.name_span.start);
    Value::Mapping(entries)
}

fn node(value: Spanned<DeValue<'_>>, text: &str) -> Node {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::Table(table) => mapping(table, text),
        DeValue::Array(items) => {
            Value::Sequence(items.into_iter().map(|item| node(item, text)).collect())
        }
        DeValue::String(string) => scalar(string.into_owned(), true),
        DeValue::Integer(integer) if integer.radix() == 10 => {
            scalar(integer.as_str().to_owned(), false)
        }
        DeValue::Integer(_) | DeValue::Datetime(_) => scalar(written(text, &span), false),
        DeValue::Float(float) => scalar(float.as_str().to_owned(), false),
        DeValue::Boolean(boolean) => scalar(boolean.to_string(), false),
    };
    Node { span, value }
}

fn scalar(text: String, is_quoted: bool) -> Value {
    Value::Scalar(Scalar { text, is_quoted })
}

fn written(text: &str, span: &Range<usize>) -> String {
    text.get(span.clone()).unwrap_or_default().to_owned()
}
