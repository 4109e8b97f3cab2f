//! `store`: where the buckets are kept.

use std::time::Duration;

use tollgate_core::key;

use crate::decode::fields::{Fields, Shape};
use crate::decode::{Decoder, redis_url};
use crate::mistake::{Mistake, quoted};
use crate::store::{RedisUrl, StoreConfig, TimeSource};
use crate::tree::{Node, Value};

pub(super) const STORE: Shape = Shape {
    what: "`store`",
    fields: &["kind", "url", "timeout", "prefix", "time_source", "keys_max"],
    synonyms: &[
        ("type", "kind"),
        ("backend", "kind"),
        ("host", "url"),
        ("address", "url"),
        ("uri", "url"),
        ("addr", "url"),
        ("port", "url"),
        ("user", "url"),
        ("username", "url"),
        ("password", "url"),
        ("database", "url"),
        ("db", "url"),
        ("deadline", "timeout"),
        ("timeout_ms", "timeout"),
        ("key_prefix", "prefix"),
        ("namespace", "prefix"),
        ("max_keys", "keys_max"),
        ("capacity", "keys_max"),
    ],
};

const KINDS: &[&str] = &["memory", "redis", "redis_sentinel", "redis_cluster"];
const MEMORY_FIELDS: &[&str] = &["keys_max"];
const REDIS_FIELDS: &[&str] = &["url", "timeout", "prefix", "time_source"];

impl Decoder<'_> {
    pub(super) fn store(&mut self, node: &Node) -> Option<StoreConfig> {
        let fields = Fields::of(node, &STORE, self)?;
        if fields.entry("kind").is_none()
            && REDIS_FIELDS.iter().any(|name| fields.entry(name).is_some())
        {
            let example = self.format.assign_text("kind", "redis");
            fields.required("kind", &example, self);
            return None;
        }
        let kind = match fields.value("kind", self) {
            Some(kind) => self.word(kind, "kind", KINDS, &[("inmemory", "memory")])?,
            None if fields.entry("kind").is_none() => "memory",
            None => return None,
        };
        match kind {
            "memory" => self.memory(&fields),
            "redis" => self.redis(&fields),
            _ => {
                let place = fields.entry("kind").map_or(0..0, |entry| entry.value.span.clone());
                let message = format!("{} is not in this version", quoted(kind));
                self.error(
                    Mistake::new(place, message).help("this version has `memory` and `redis`"),
                );
                None
            }
        }
    }

    fn memory(&mut self, fields: &Fields<'_>) -> Option<StoreConfig> {
        self.refuse(fields, REDIS_FIELDS, "redis");
        let Some(node) = fields.value("keys_max", self) else {
            return Some(StoreConfig::default());
        };
        let default = StoreConfig::KEYS_MAX_DEFAULT;
        let given = self.whole(node, "keys_max", &default.to_string())?;
        match usize::try_from(given) {
            Ok(keys_max) if (1..=StoreConfig::KEYS_MAX_LIMIT).contains(&keys_max) => {
                Some(StoreConfig::Memory { keys_max })
            }
            _ => {
                let message = format!("`keys_max` cannot be {given}");
                let help = format!("it must be 1 to {}", StoreConfig::KEYS_MAX_LIMIT);
                self.error(Mistake::new(node.span.clone(), message).help(help));
                None
            }
        }
    }

    fn redis(&mut self, fields: &Fields<'_>) -> Option<StoreConfig> {
        self.refuse(fields, MEMORY_FIELDS, "memory");
        let example = self.format.assign_text("url", "redis://127.0.0.1:6379");
        let url = fields.required("url", &example, self);
        let url = url.and_then(|node| self.redis_url(node));
        let timeout = match fields.value("timeout", self) {
            Some(node) => {
                let range = Duration::from_micros(100)..=Duration::from_secs(60);
                self.duration(node, "timeout", range, "50ms")
            }
            None => Some(StoreConfig::TIMEOUT_DEFAULT),
        };
        let prefix = match fields.value("prefix", self) {
            Some(node) => self.prefix(node),
            None => Some(StoreConfig::PREFIX_DEFAULT.to_owned()),
        };
        let time_source = match fields.value("time_source", self) {
            Some(node) => self
                .word(node, "time_source", &["server", "client"], &[("redis", "server")])
                .map(|word| match word {
                    "client" => TimeSource::Client,
                    _ => TimeSource::Server,
                }),
            None => Some(TimeSource::default()),
        };
        Some(StoreConfig::Redis {
            url: url?,
            timeout: timeout?,
            prefix: prefix?,
            time_source: time_source?,
        })
    }

    /// Reports the fields that only the other kind of store has.
    fn refuse(&mut self, fields: &Fields<'_>, names: &[&str], kind: &str) {
        for name in names {
            let Some(entry) = fields.entry(name) else {
                continue;
            };
            if *name == "url" && matches!(&entry.value.value, Value::Scalar(_)) {
                self.hide_user(&entry.value);
            }
            let message = format!("`{name}` belongs to a store of kind `{kind}`");
            let help = format!("remove it, or write `{}`", self.format.assign_text("kind", kind));
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
        }
    }

    pub(super) fn redis_url(&mut self, node: &Node) -> Option<RedisUrl> {
        let text = self.text(node, "`url`", "text")?;
        self.hide_user(node);
        if let Err(problem) = redis_url::check(text) {
            self.error(Mistake::new(node.span.clone(), problem.message).help(problem.help));
            return None;
        }
        Some(RedisUrl::new(text))
    }

    fn prefix(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "`prefix`", "text")?;
        if key::is_name(text) {
            return Some(text.to_owned());
        }
        let message = format!("`prefix` cannot be {}", quoted(text));
        let help = format!(
            "use 1 to {} letters (a-z, A-Z), digits, `_`, `-` and `.`; a `:` follows by itself",
            key::NAME_LEN_MAX
        );
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }
}
