//! What Envoy's other filters and its access log are told: exact times, and who decided.
//!
//! It is most of an answer, so it is written as it goes over the wire, without a message in between.

use std::ops::Range;
use std::time::Duration;

use prost::{Message, length_delimiter_len};
use prost_types::Struct;
use prost_types::value::Kind;
use tollgate::{Mode, RuleDecision};

use super::Told;
use super::wire::{Wire, delimited, double, varint};
use crate::judge::Judged;
use crate::plan::Plan;
use crate::proto::rate_limit_response::Code;

/// Writes the fields of a `google.protobuf.Struct` that tells of a request, and of each of its descriptors.
/// `binding` is the most restrictive limit.
pub(super) fn write(
    wire: &mut Wire,
    domain: &str,
    plan: &Plan,
    judged: &Judged,
    told: &[Told<'_>],
    binding: Option<&RuleDecision>,
) {
    let mut fields = Fields(wire);
    fields.head(domain, !judged.is_denied);
    let mut written = 0..0;
    match binding {
        Some(binding) => written = fields.decision(binding),
        None => fields.text("mode", Mode::Unlimited.as_str()),
    }
    fields.list("descriptors", told, |fields, told| {
        fields.flag("allowed", told.code != Code::OverLimit);
        if let Some((_, decided)) = told.spoken {
            // As a rule it is this descriptor that binds, of which all has been written.
            if binding.is_some_and(|binding| std::ptr::eq(binding, decided)) {
                fields.0.0.extend_from_within(written.clone());
            } else {
                fields.decision(decided);
            }
            fields.flag("shadow", decided.rule().is_shadow());
        }
    });
    let configured = plan.descriptors.iter().zip(told);
    let passed = configured.filter(|(_, told)| told.code != Code::OverLimit);
    let metadata = passed
        .filter_map(|(planned, _)| planned.limit.as_ref()?.metadata.as_ref())
        .fold(Struct::default(), merged);
    if !metadata.fields.is_empty() {
        fields.structure("metadata", &metadata);
    }
}

/// Writes the same of a request that `rule` refuses because the store does not answer.
pub(super) fn write_failure(
    wire: &mut Wire,
    domain: &str,
    rule: Option<&str>,
    wait: Option<Duration>,
) {
    let mut fields = Fields(wire);
    fields.head(domain, false);
    fields.text("mode", Mode::Closed.as_str());
    if let Some(rule) = rule {
        fields.text("rule", rule);
    }
    if let Some(wait) = wait {
        fields.micros("retry_after_us", wait);
    }
}

/// The tags of the fields of `google.protobuf.Struct` and of what it holds.
const ENTRY: u8 = delimited(1);
const NAME: u8 = delimited(1);
const VALUE: u8 = delimited(2);
const NUMBER: u8 = double(2);
const TEXT: u8 = delimited(3);
const FLAG: u8 = varint(4);
const STRUCTURE: u8 = delimited(5);
const LIST: u8 = delimited(6);
const ITEM: u8 = delimited(1);

/// Named values, written as the fields of a `google.protobuf.Struct`.
struct Fields<'a>(&'a mut Wire);

impl Fields<'_> {
    fn head(&mut self, domain: &str, allowed: bool) {
        self.text("domain", domain);
        self.flag("allowed", allowed);
    }

    /// Writes what a limit said, and tells where.
    fn decision(&mut self, decided: &RuleDecision) -> Range<usize> {
        let start = self.0.0.len();
        let decision = decided.decision();
        self.text("rule", decided.rule().name());
        self.text("mode", decided.mode().as_str());
        self.number("limit", decision.limit().into());
        self.number("remaining", decision.remaining().into());
        self.micros("reset_after_us", decision.reset_after());
        if let Some(wait) = decided.retry_after() {
            self.micros("retry_after_us", wait);
        }
        if !decision.delay().is_zero() {
            self.micros("delay_us", decision.delay());
        }
        start..self.0.0.len()
    }

    fn text(&mut self, name: &str, text: &str) {
        self.delimited(name, TEXT, text.as_bytes());
    }

    fn number(&mut self, name: &str, number: f64) {
        self.begin(name, 9);
        self.0.0.push(NUMBER);
        self.0.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Microseconds of up to 285 years are exact in a double.
    fn micros(&mut self, name: &str, duration: Duration) {
        self.number(name, duration.as_micros() as f64);
    }

    fn flag(&mut self, name: &str, flag: bool) {
        self.begin(name, 2);
        self.0.0.extend_from_slice(&[FLAG, flag.into()]);
    }

    fn structure(&mut self, name: &str, structure: &Struct) {
        self.delimited(name, STRUCTURE, &structure.encode_to_vec());
    }

    /// Writes a list of structures, each with what `write` writes into it.
    fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Fields<'_>, &T)) {
        self.0.nested(ENTRY, |wire| {
            wire.bytes(NAME, name.as_bytes());
            wire.nested(VALUE, |wire| {
                wire.nested(LIST, |wire| {
                    for item in items {
                        wire.nested(ITEM, |wire| {
                            wire.nested(STRUCTURE, |wire| write(&mut Fields(wire), item));
                        });
                    }
                });
            });
        });
    }

    fn delimited(&mut self, name: &str, tag: u8, bytes: &[u8]) {
        self.begin(name, 1 + length_delimiter_len(bytes.len()) + bytes.len());
        self.0.bytes(tag, bytes);
    }

    /// Writes all of an entry that stands before its value, which has so many bytes.
    fn begin(&mut self, name: &str, value_len: usize) {
        let name_len = 1 + length_delimiter_len(name.len()) + name.len();
        let len = name_len + 1 + length_delimiter_len(value_len) + value_len;
        self.0.0.push(ENTRY);
        self.0.number(len as u64);
        self.0.bytes(NAME, name.as_bytes());
        self.0.0.push(VALUE);
        self.0.number(value_len as u64);
    }
}

/// Adds what is new, mapping by mapping; of two other values of one name the first stays.
fn merged(mut all: Struct, more: &Struct) -> Struct {
    for (name, value) in &more.fields {
        match (all.fields.get_mut(name).and_then(|known| known.kind.as_mut()), &value.kind) {
            (Some(Kind::StructValue(known)), Some(Kind::StructValue(more))) => {
                *known = merged(std::mem::take(known), more);
            }
            (Some(_), _) => {}
            (None, _) => {
                all.fields.insert(name.clone(), value.clone());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use prost_types::{ListValue, Value};

    use super::*;

    #[test]
    fn what_is_written_is_read_as_a_structure_however_long_it_is() {
        for len in [0, 1, 100, 127, 128, 200, 16_383, 16_384, 70_000] {
            let text = "x".repeat(len);
            let mut wire = Wire(Vec::new());
            let mut fields = Fields(&mut wire);
            fields.text("text", &text);
            fields.number("number", 1.5);
            fields.flag("flag", true);
            fields.list("list", &[false, true], |fields, flag| {
                fields.flag("flag", *flag);
                fields.text("text", &text);
            });
            let inner = Struct::decode(&fields.0.0[..]).unwrap();
            fields.structure("structure", &inner);
            let read = Struct::decode(&fields.0.0[..]).unwrap();

            let value = |kind| Value { kind: Some(kind) };
            let text = value(Kind::StringValue(text));
            let item = |flag| {
                let flag = value(Kind::BoolValue(flag));
                let named = [("flag".to_owned(), flag), ("text".to_owned(), text.clone())];
                value(Kind::StructValue(Struct { fields: named.into() }))
            };
            let list = Kind::ListValue(ListValue { values: vec![item(false), item(true)] });
            let mut expected = Struct::default();
            for (name, value) in [
                ("text", text.clone()),
                ("number", value(Kind::NumberValue(1.5))),
                ("flag", value(Kind::BoolValue(true))),
                ("list", value(list)),
            ] {
                expected.fields.insert(name.to_owned(), value);
            }
            assert_eq!(inner, expected, "{len}");
            let structure = value(Kind::StructValue(inner));
            expected.fields.insert("structure".to_owned(), structure);
            assert_eq!(read, expected, "{len}");
        }
    }
}
