//! What Envoy's other filters and its access log are told: exact times, and who decided.
//!
//! It is most of an answer, so it is written as it goes over the wire, without a message in between.

use std::time::Duration;

use prost::Message;
use prost::encoding::encode_varint;
use prost_types::Struct;
use prost_types::value::Kind;
use tollgate::{Mode, RuleDecision};

use super::Told;
use crate::judge::Judged;
use crate::plan::Plan;
use crate::proto::rate_limit_response::Code;

/// A `google.protobuf.Struct` of this length needs no more room.
const LEN: usize = 512;

/// Tells of a request, and of each of its descriptors. `binding` is the most restrictive limit.
pub(super) fn of(
    domain: &str,
    plan: &Plan,
    judged: &Judged,
    told: &[Told<'_>],
    binding: Option<&RuleDecision>,
) -> Vec<u8> {
    let mut fields = Fields(Vec::with_capacity(LEN));
    fields.head(domain, !judged.is_denied);
    match binding {
        Some(binding) => fields.decision(binding),
        None => fields.text("mode", Mode::Unlimited.as_str()),
    }
    fields.list("descriptors", told, |fields, told| {
        fields.flag("allowed", told.code != Code::OverLimit);
        if let Some((_, decided)) = told.spoken {
            fields.decision(decided);
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
    fields.0
}

/// Tells of a request that `rule` refuses because the store does not answer.
pub(super) fn of_failure(domain: &str, rule: Option<&str>, wait: Option<Duration>) -> Vec<u8> {
    let mut fields = Fields(Vec::with_capacity(LEN));
    fields.head(domain, false);
    fields.text("mode", Mode::Closed.as_str());
    if let Some(rule) = rule {
        fields.text("rule", rule);
    }
    if let Some(wait) = wait {
        fields.micros("retry_after_us", wait);
    }
    fields.0
}

/// The tags of the fields of `google.protobuf.Struct` and of what it holds: a number and a kind.
const ENTRY: u8 = 1 << 3 | 2;
const NAME: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;
const NUMBER: u8 = 2 << 3 | 1;
const TEXT: u8 = 3 << 3 | 2;
const FLAG: u8 = 4 << 3;
const STRUCTURE: u8 = 5 << 3 | 2;
const LIST: u8 = 6 << 3 | 2;
const ITEM: u8 = 1 << 3 | 2;

/// Named values, written as the fields of a `google.protobuf.Struct`.
struct Fields(Vec<u8>);

impl Fields {
    fn head(&mut self, domain: &str, allowed: bool) {
        self.text("domain", domain);
        self.flag("allowed", allowed);
    }

    fn decision(&mut self, decided: &RuleDecision) {
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
    }

    fn text(&mut self, name: &str, text: &str) {
        self.entry(name, |fields| fields.bytes(TEXT, text.as_bytes()));
    }

    fn number(&mut self, name: &str, number: f64) {
        self.entry(name, |fields| {
            fields.0.push(NUMBER);
            fields.0.extend_from_slice(&number.to_le_bytes());
        });
    }

    /// Microseconds of up to 285 years are exact in a double.
    fn micros(&mut self, name: &str, duration: Duration) {
        self.number(name, duration.as_micros() as f64);
    }

    fn flag(&mut self, name: &str, flag: bool) {
        self.entry(name, |fields| fields.0.extend_from_slice(&[FLAG, flag.into()]));
    }

    fn structure(&mut self, name: &str, structure: &Struct) {
        self.entry(name, |fields| fields.bytes(STRUCTURE, &structure.encode_to_vec()));
    }

    /// Writes a list of structures, each with what `write` writes into it.
    fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.entry(name, |fields| {
            fields.nested(LIST, |fields| {
                for item in items {
                    fields.nested(ITEM, |fields| {
                        fields.nested(STRUCTURE, |fields| write(fields, item));
                    });
                }
            });
        });
    }

    fn entry(&mut self, name: &str, write_value: impl FnOnce(&mut Self)) {
        self.nested(ENTRY, |fields| {
            fields.bytes(NAME, name.as_bytes());
            fields.nested(VALUE, write_value);
        });
    }

    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a message whose length is known once it is there.
    fn nested(&mut self, tag: u8, write: impl FnOnce(&mut Self)) {
        self.0.extend_from_slice(&[tag, 0]);
        let start = self.0.len();
        write(self);
        let len = self.0.len() - start;
        match u8::try_from(len) {
            Ok(short @ ..0x80) => self.0[start - 1] = short,
            _ => {
                let mut prefix = Vec::new();
                encode_varint(len as u64, &mut prefix);
                self.0.splice(start - 1..start, prefix);
            }
        }
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
            let mut fields = Fields(Vec::new());
            fields.text("text", &text);
            fields.number("number", 1.5);
            fields.flag("flag", true);
            fields.list("list", &[false, true], |fields, flag| {
                fields.flag("flag", *flag);
                fields.text("text", &text);
            });
            let inner = Struct::decode(&fields.0[..]).unwrap();
            fields.structure("structure", &inner);
            let read = Struct::decode(&fields.0[..]).unwrap();

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
