//! `headers`: which headers tell a client about its limits.

use crate::answers::{HeadersConfig, IetfDraft, ResetUnit};
use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::tree::Node;

pub(super) const HEADERS: Shape = Shape {
    what: "`headers`",
    fields: &["x_ratelimit", "ietf", "rule"],
    synonyms: &[("legacy", "x_ratelimit"), ("reset", "x_ratelimit"), ("draft", "ietf")],
};

const RESETS: &[(&str, &str)] =
    &[("seconds", "delta"), ("unix", "epoch"), ("none", "off"), ("false", "off")];

/// The drafts that one of the words stands for too, and other ways to write it.
const DRAFTS: &[(&str, &str)] = &[
    ("draft_03", "draft-06"),
    ("draft_04", "draft-06"),
    ("draft_05", "draft-06"),
    ("draft_08", "draft-11"),
    ("draft_09", "draft-11"),
    ("draft_10", "draft-11"),
    ("6", "draft-06"),
    ("7", "draft-07"),
    ("11", "draft-11"),
    ("none", "off"),
    ("false", "off"),
];

impl Decoder<'_> {
    pub(super) fn headers(&mut self, node: &Node) -> Option<HeadersConfig> {
        let fields = Fields::of(node, &HEADERS, self)?;
        let x_ratelimit = match fields.value("x_ratelimit", self) {
            None => Some("delta"),
            Some(node) => self.word(node, "x_ratelimit", &["delta", "epoch", "off"], RESETS),
        };
        let ietf = match fields.value("ietf", self) {
            None => Some("draft-11"),
            Some(node) => {
                let words = &["draft-11", "draft-07", "draft-06", "off"];
                self.word(node, "ietf", words, DRAFTS)
            }
        };
        let rule = match fields.value("rule", self) {
            None => Some(true),
            Some(node) => self.boolean(node, "rule"),
        };
        Some(HeadersConfig {
            x_ratelimit: match x_ratelimit? {
                "delta" => Some(ResetUnit::Delta),
                "epoch" => Some(ResetUnit::Epoch),
                _ => None,
            },
            ietf: match ietf? {
                "draft-11" => Some(IetfDraft::Draft11),
                "draft-07" => Some(IetfDraft::Draft07),
                "draft-06" => Some(IetfDraft::Draft06),
                _ => None,
            },
            rule: rule?,
        })
    }
}
