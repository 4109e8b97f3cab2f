//! `rules_from`: where the rules come from while the service runs.

use std::time::Duration;

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::decode::redis::LOGIN;
use crate::decode::redis_url::Named;
use crate::mistake::{Mistake, quoted};
use crate::redis::{RedisAccess, RedisServers, RedisUrl};
use crate::rules_from::{HttpUrl, RulesFrom};
use crate::store::StoreConfig;
use crate::tree::Node;

pub(super) const RULES_FROM: Shape = Shape {
    what: "`rules_from`",
    fields: &[
        "kind",
        "path",
        "url",
        "username",
        "password",
        "password_file",
        "database",
        "tls",
        "key",
        "ca",
        "token_file",
        "poll_interval",
    ],
    synonyms: &[
        ("type", "kind"),
        ("source", "kind"),
        ("file", "path"),
        ("uri", "url"),
        ("address", "url"),
        ("redis_key", "key"),
        ("user", "username"),
        ("auth", "password"),
        ("db", "database"),
        ("ssl", "tls"),
        ("ca_file", "ca"),
        ("token", "token_file"),
        ("interval", "poll_interval"),
        ("refresh", "poll_interval"),
    ],
};

const KINDS: &[&str] = &["file", "redis", "http"];

/// The fields that some kinds only have, and which.
const BELONGING: &[(&str, &[&str])] = &[
    ("path", &["file"]),
    ("url", &["redis", "http"]),
    ("username", &["redis"]),
    ("password", &["redis"]),
    ("password_file", &["redis"]),
    ("database", &["redis"]),
    ("tls", &["redis"]),
    ("key", &["redis"]),
    ("ca", &["http"]),
    ("token_file", &["http"]),
];

/// The longest key, in bytes.
const KEY_LEN_MAX: usize = 256;

/// Returns the URL of the store for the rules, without what they have of their own.
fn rules_place(of_store: &RedisUrl, fields: &Fields<'_>) -> RedisUrl {
    let mut url = of_store.clone();
    if LOGIN.iter().any(|name| fields.entry(name).is_some()) {
        url = url.without_user();
    }
    if fields.entry("database").is_some() {
        url = url.without_database();
    }
    url
}

impl Decoder<'_> {
    pub(super) fn rules_from(
        &mut self,
        node: &Node,
        store: Option<&StoreConfig>,
    ) -> Option<RulesFrom> {
        let fields = Fields::of(node, &RULES_FROM, self)?;
        self.hide_secrets(&fields);
        let example = self.format.assign_text("kind", "file");
        let kind = fields.required("kind", &example, self)?;
        let kind = self.word(kind, "kind", KINDS, &[("https", "http"), ("url", "http")])?;
        self.refuse_others(&fields, kind);
        match kind {
            "file" => {
                let path = self.required_path(&fields, "path", "rules.yaml");
                let poll_interval = self.poll_interval(&fields, RulesFrom::POLL_INTERVAL_DEFAULT);
                Some(RulesFrom::File { path: path?, poll_interval: poll_interval? })
            }
            "redis" => self.rules_from_redis(&fields, store),
            _ => self.rules_from_http(&fields),
        }
    }

    fn rules_from_redis(
        &mut self,
        fields: &Fields<'_>,
        store: Option<&StoreConfig>,
    ) -> Option<RulesFrom> {
        let (url, access) = match (fields.entry("url"), store) {
            (None, Some(StoreConfig::Redis(redis))) => match &redis.servers {
                RedisServers::Single(url) => (Some(rules_place(url, fields)), redis.access.clone()),
                _ => (self.rules_url(fields), RedisAccess::default()),
            },
            _ => (self.rules_url(fields), RedisAccess::default()),
        };
        let access = self.rules_access(fields, url.as_ref(), access);
        let key = match fields.value("key", self) {
            Some(node) => self.redis_key(node),
            None => Some(RulesFrom::KEY_DEFAULT.to_owned()),
        };
        let poll_interval = self.poll_interval(fields, RulesFrom::POLL_INTERVAL_DEFAULT);
        let (url, access) = (url?, access?);
        Some(RulesFrom::Redis { url, access, key: key?, poll_interval: poll_interval? })
    }

    /// Reads what the server is shown, each part in place of what the store shows to the same
    /// server.
    fn rules_access(
        &mut self,
        fields: &Fields<'_>,
        url: Option<&RedisUrl>,
        of_store: RedisAccess,
    ) -> Option<RedisAccess> {
        if let Some(url) = url {
            self.refuse_second_access(fields, url);
        }
        let mut given = self.redis_access(fields, url.map_or(&[], std::slice::from_ref))?;
        if LOGIN.iter().all(|name| fields.entry(name).is_none()) {
            (given.username, given.password) = (of_store.username, of_store.password);
        }
        if fields.entry("database").is_none() {
            given.database = of_store.database;
        }
        if fields.entry("tls").is_none() {
            given.tls = of_store.tls;
        }
        Some(given)
    }

    fn rules_url(&mut self, fields: &Fields<'_>) -> Option<RedisUrl> {
        let example = self.format.assign_text("url", "redis://127.0.0.1:6379");
        let node = fields.required("url", &example, self)?;
        self.redis_url(node, "url", Named::Server)
    }

    fn redis_key(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "`key`", "text")?;
        if (1..=KEY_LEN_MAX).contains(&text.len()) {
            return Some(text.to_owned());
        }
        let message = format!("`key` has {} bytes", text.len());
        let help = format!("a key has 1 to {KEY_LEN_MAX} bytes");
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    fn rules_from_http(&mut self, fields: &Fields<'_>) -> Option<RulesFrom> {
        let example = self.format.assign_text("url", "https://config.example/rules.yaml");
        let node = fields.required("url", &example, self);
        let url = node.and_then(|node| self.http_url(node));
        let ca = self.optional_path(fields, "ca");
        let token_file = self.optional_path(fields, "token_file");
        let poll_interval = self.poll_interval(fields, RulesFrom::HTTP_POLL_INTERVAL_DEFAULT);
        let url = url?;
        if !url.is_https() && token_file.as_ref().is_some_and(Option::is_some) {
            let span = fields.entry("token_file").map_or(0..0, |entry| entry.name_span.clone());
            self.warning(
                Mistake::new(span, "the token is sent without encryption")
                    .help("use an `https` URL, unless the server is on this machine"),
            );
        }
        Some(RulesFrom::Http {
            url,
            ca: ca?,
            token_file: token_file?,
            poll_interval: poll_interval?,
        })
    }

    fn http_url(&mut self, node: &Node) -> Option<HttpUrl> {
        let text = self.text(node, "`url`", "text")?;
        self.hide_user(node);
        if let Some(query) = self.text.get(node.span.clone()).and_then(|url| url.find('?')) {
            self.hide(node.span.start + query + 1..node.span.end);
        }
        match HttpUrl::parse(text) {
            Ok(url) => Some(url),
            Err(problem) => {
                let help = "write http[s]://host[:port]/path";
                self.error(Mistake::new(node.span.clone(), problem).help(help));
                None
            }
        }
    }

    pub(super) fn poll_interval(
        &mut self,
        fields: &Fields<'_>,
        default: Duration,
    ) -> Option<Duration> {
        match fields.value("poll_interval", self) {
            Some(node) => {
                let range = Duration::from_millis(100)..=Duration::from_secs(3_600);
                self.duration(node, "poll_interval", range, "5s")
            }
            None => Some(default),
        }
    }

    fn refuse_others(&mut self, fields: &Fields<'_>, kind: &str) {
        for (name, kinds) in BELONGING {
            let Some(entry) = fields.entry(name) else { continue };
            if kinds.contains(&kind) {
                continue;
            }
            let message = format!("`{name}` does not belong to rules of kind {}", quoted(kind));
            let other = self.format.assign_text("kind", kinds[0]);
            let help = format!("remove it, or write `{other}`");
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
        }
    }
}
