//! `log`: what the service logs of callers.

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::log::{LogConfig, LoggedKeys};
use crate::tree::Node;

pub(super) const LOG: Shape =
    Shape { what: "`log`", fields: &["keys"], synonyms: &[("key", "keys"), ("values", "keys")] };

impl Decoder<'_> {
    pub(super) fn log(&mut self, node: &Node) -> Option<LogConfig> {
        let fields = Fields::of(node, &LOG, self)?;
        let keys = fields.value("keys", self).and_then(|node| {
            let synonyms = &[("hash", "hashed"), ("plaintext", "plain"), ("clear", "plain")];
            self.word(node, "keys", &["hashed", "plain"], synonyms)
        });
        let keys = if keys == Some("plain") { LoggedKeys::Plain } else { LoggedKeys::Hashed };
        Some(LogConfig { keys })
    }
}
