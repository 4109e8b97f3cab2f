//! `store`: where the buckets are kept.

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::Mistake;
use crate::store::StoreConfig;
use crate::tree::{Node, Value};

pub(super) const STORE: Shape = Shape {
    what: "`store`",
    fields: &[
        "kind",
        "url",
        "urls",
        "master_name",
        "username",
        "password",
        "password_file",
        "database",
        "tls",
        "timeout",
        "prefix",
        "time_source",
        "breaker",
        "functions",
        "connections",
        "in_flight_max",
        "keys_max",
    ],
    synonyms: &[
        ("type", "kind"),
        ("backend", "kind"),
        ("host", "url"),
        ("address", "url"),
        ("uri", "url"),
        ("addr", "url"),
        ("port", "url"),
        ("hosts", "urls"),
        ("addresses", "urls"),
        ("nodes", "urls"),
        ("sentinels", "urls"),
        ("user", "username"),
        ("auth", "password"),
        ("db", "database"),
        ("master", "master_name"),
        ("service_name", "master_name"),
        ("deadline", "timeout"),
        ("timeout_ms", "timeout"),
        ("circuit_breaker", "breaker"),
        ("key_prefix", "prefix"),
        ("namespace", "prefix"),
        ("pool_size", "connections"),
        ("ssl", "tls"),
        ("max_keys", "keys_max"),
        ("capacity", "keys_max"),
    ],
};

const KINDS: &[&str] = &["memory", "redis", "redis_sentinel", "redis_cluster"];
const MEMORY_FIELDS: &[&str] = &["keys_max"];
const REDIS_FIELDS: &[&str] = &[
    "url",
    "urls",
    "master_name",
    "username",
    "password",
    "password_file",
    "database",
    "tls",
    "timeout",
    "prefix",
    "time_source",
    "breaker",
    "functions",
    "connections",
    "in_flight_max",
];

impl Decoder<'_> {
    pub(super) fn store(&mut self, node: &Node) -> Option<StoreConfig> {
        let fields = Fields::of(node, &STORE, self)?;
        self.hide_secrets(&fields);
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
        if kind == "memory" {
            return self.memory(&fields);
        }
        self.refuse(&fields, MEMORY_FIELDS, "memory");
        match kind {
            "redis_sentinel" => self.redis_sentinel(&fields),
            "redis_cluster" => self.redis_cluster(&fields),
            _ => self.redis_single(&fields),
        }
        .map(|redis| StoreConfig::Redis(Box::new(redis)))
    }

    /// Hides what no message and no snippet may show, be the rest right or wrong.
    pub(super) fn hide_secrets(&mut self, fields: &Fields<'_>) {
        if let Some(entry) = fields.entry("password") {
            self.hide(entry.value.span.clone());
        }
        for name in ["url", "urls"] {
            let Some(entry) = fields.entry(name) else { continue };
            match &entry.value.value {
                Value::Scalar(_) => self.hide_user(&entry.value),
                Value::Sequence(items) => items.iter().for_each(|item| self.hide_user(item)),
                _ => {}
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

    /// Reports the fields that only another kind of store has.
    pub(super) fn refuse(&mut self, fields: &Fields<'_>, names: &[&str], kind: &str) {
        for name in names {
            let Some(entry) = fields.entry(name) else {
                continue;
            };
            let message = format!("`{name}` belongs to a store of kind `{kind}`");
            let help = format!("remove it, or write `{}`", self.format.assign_text("kind", kind));
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
        }
    }
}
