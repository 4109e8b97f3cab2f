//! The one form that YAML and TOML are both read into: values with their places.

mod canonical;
pub(crate) mod toml;
pub(crate) mod yaml;

use std::ops::Range;

/// A value of the file, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
    /// What could not be read and has been reported.
    Broken,
}

/// A value that is neither list nor mapping, as written: `0.8` is these three characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// Whether it can only be text, and not a number or a boolean.
    pub(crate) is_quoted: bool,
}

/// A field of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) name_span: Range<usize>,
    pub(crate) value: Node,
}

impl Node {
    /// Names what the value is, for "must be a list, not ...".
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null | Value::Broken => "null",
            Value::Scalar(scalar) => scalar.kind(),
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// Returns the values in it and below it, itself included, plus the bytes of their text.
    pub(crate) fn weight(&self) -> usize {
        1 + match &self.value {
            Value::Null | Value::Broken => 0,
            Value::Scalar(scalar) => scalar.text.len(),
            Value::Sequence(items) => items.iter().map(Self::weight).sum(),
            Value::Mapping(entries) => {
                entries.iter().map(|entry| entry.name.len() + entry.value.weight()).sum()
            }
        }
    }

    /// Returns the levels of lists and mappings in it.
    pub(crate) fn depth(&self) -> usize {
        let below = |depth: Option<usize>| 1 + depth.unwrap_or(0);
        match &self.value {
            Value::Null | Value::Broken | Value::Scalar(_) => 0,
            Value::Sequence(items) => below(items.iter().map(Self::depth).max()),
            Value::Mapping(entries) => below(entries.iter().map(|e| e.value.depth()).max()),
        }
    }
}

impl Scalar {
    fn kind(&self) -> &'static str {
        if self.is_quoted {
            "text"
        } else if self.boolean().is_some() {
            "a boolean"
        } else if self.text.parse::<f64>().is_ok() {
            "a number"
        } else {
            "text"
        }
    }

    /// Returns the boolean that it is in YAML 1.2 and in TOML.
    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.text.as_str() {
            _ if self.is_quoted => None,
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        }
    }
}
