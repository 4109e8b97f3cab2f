//! `store` in Redis: one server, a primary that sentinels know, or a cluster.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::{BreakerSettings, key};

use crate::decode::fields::{Fields, Shape};
use crate::decode::redis_url::Named;
use crate::decode::{Decoder, redis_url};
use crate::mistake::{Mistake, quoted};
use crate::redis::{RedisAccess, RedisConfig, RedisPassword, RedisServers, RedisUrl, TlsFiles};
use crate::store::TimeSource;
use crate::tree::Node;

pub(super) const TLS: Shape = Shape {
    what: "`tls`",
    fields: &["ca", "cert", "key"],
    synonyms: &[
        ("ca_cert", "ca"),
        ("ca_file", "ca"),
        ("cacert", "ca"),
        ("root", "ca"),
        ("certificate", "cert"),
        ("cert_file", "cert"),
        ("private_key", "key"),
        ("key_file", "key"),
    ],
};

/// The fields with a user or a password.
pub(super) const LOGIN: [&str; 3] = ["username", "password", "password_file"];

impl Decoder<'_> {
    pub(super) fn redis_single(&mut self, fields: &Fields<'_>) -> Option<RedisConfig> {
        self.refuse(fields, &["urls"], "redis_cluster");
        self.refuse(fields, &["master_name"], "redis_sentinel");
        let example = self.format.assign_text("url", "redis://127.0.0.1:6379");
        let node = fields.required("url", &example, self);
        let url = node.and_then(|node| self.redis_url(node, "url", Named::Server));
        if let Some(url) = &url {
            self.refuse_second_access(fields, url);
        }
        self.redis(fields, url.clone().map(RedisServers::Single), url.as_slice())
    }

    pub(super) fn redis_cluster(&mut self, fields: &Fields<'_>) -> Option<RedisConfig> {
        self.refuse(fields, &["database"], "redis");
        self.refuse(fields, &["master_name"], "redis_sentinel");
        let urls = self.redis_urls(fields, 7000);
        self.refuse_second_login(fields, urls.iter().flatten().any(RedisUrl::has_user));
        let servers = urls.clone().map(RedisServers::Cluster);
        self.redis(fields, servers, &urls.unwrap_or_default())
    }

    pub(super) fn redis_sentinel(&mut self, fields: &Fields<'_>) -> Option<RedisConfig> {
        let urls = self.redis_urls(fields, 26_379);
        let example = self.format.assign_text("master_name", "mymaster");
        let master_name = fields.required("master_name", &example, self);
        let master_name = master_name.and_then(|node| self.master_name(node));
        let servers = urls
            .clone()
            .zip(master_name)
            .map(|(urls, master_name)| RedisServers::Sentinel { urls, master_name });
        self.redis(fields, servers, &urls.unwrap_or_default())
    }

    /// Reads what all kinds have.
    fn redis(
        &mut self,
        fields: &Fields<'_>,
        servers: Option<RedisServers>,
        urls: &[RedisUrl],
    ) -> Option<RedisConfig> {
        let access = self.redis_access(fields, urls);
        let functions = match fields.value("functions", self) {
            Some(node) => self.boolean(node, "functions"),
            None => Some(false),
        };
        let connections = match fields.value("connections", self) {
            Some(node) => self.number(node, "connections", 1..=RedisConfig::CONNECTIONS_MAX),
            None => Some(1),
        };
        let in_flight_max = match fields.value("in_flight_max", self) {
            Some(node) => self.number(node, "in_flight_max", 1..=RedisConfig::IN_FLIGHT_MAX_LIMIT),
            None => Some(RedisConfig::IN_FLIGHT_MAX_DEFAULT),
        };
        let timeout = match fields.value("timeout", self) {
            Some(node) => {
                let range = Duration::from_micros(100)..=Duration::from_secs(60);
                self.duration(node, "timeout", range, "50ms")
            }
            None => Some(RedisConfig::TIMEOUT_DEFAULT),
        };
        let prefix = match fields.value("prefix", self) {
            Some(node) => self.prefix(node),
            None => Some(RedisConfig::PREFIX_DEFAULT.to_owned()),
        };
        let breaker = match fields.value("breaker", self) {
            Some(node) => self.breaker(node),
            None => Some(BreakerSettings::default()),
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
        Some(RedisConfig {
            servers: servers?,
            access: access?,
            functions: functions?,
            connections: connections?,
            in_flight_max: in_flight_max?,
            timeout: timeout?,
            prefix: prefix?,
            time_source: time_source?,
            breaker: breaker?,
        })
    }

    /// Reads who asks, for which database, and the certificates.
    pub(super) fn redis_access(
        &mut self,
        fields: &Fields<'_>,
        urls: &[RedisUrl],
    ) -> Option<RedisAccess> {
        let username = fields.value("username", self);
        let username = username.and_then(|node| self.some_text(node, "username"));
        let password = self.password(fields);
        let has_password = LOGIN[1..].iter().any(|name| fields.entry(name).is_some());
        if let Some(entry) = fields.entry("username").filter(|_| !has_password) {
            let mistake = Mistake::new(entry.name_span.clone(), "the user has no password");
            self.error(
                mistake.help(
                    "add `password` or `password_file`; for a user with `nopass` any will do",
                ),
            );
        }
        let database = fields.value("database", self);
        let database = database.and_then(|node| self.number(node, "database", 0..=9_999));
        let database = database.and_then(|database| u32::try_from(database).ok());
        let tls = self.tls(fields, urls)?;
        Some(RedisAccess { username, password, database, tls })
    }

    /// Reports what is said of one server in its URL, and in fields as well.
    pub(super) fn refuse_second_access(&mut self, fields: &Fields<'_>, url: &RedisUrl) {
        self.refuse_second_login(fields, url.has_user());
        if let Some(entry) = fields.entry("database").filter(|_| url.has_database()) {
            let message = "`database` is given, and one in the URL as well";
            let mistake = Mistake::new(entry.name_span.clone(), message);
            self.error(mistake.help("remove what is behind the host and the port of the URL"));
        }
    }

    pub(super) fn redis_url(&mut self, node: &Node, field: &str, named: Named) -> Option<RedisUrl> {
        let text = self.text(node, &format!("`{field}`"), "text")?;
        if let Err(problem) = redis_url::check(text, named) {
            self.error(Mistake::new(node.span.clone(), problem.message).help(problem.help));
            return None;
        }
        Some(RedisUrl::new(text))
    }

    fn redis_urls(&mut self, fields: &Fields<'_>, port: u16) -> Option<Vec<RedisUrl>> {
        let example = self.format.assign("urls", &format!("[\"redis://127.0.0.1:{port}\"]"));
        if let Some(url) = fields.entry("url") {
            let mistake =
                Mistake::new(url.name_span.clone(), "`url` belongs to a store of one server");
            self.error(mistake.help(format!("write a list: `{example}`")));
            fields.entry("urls")?;
        }
        let node = fields.required("urls", &example, self)?;
        let items = self.list(node);
        if items.is_empty() {
            let mistake = Mistake::new(node.span.clone(), "`urls` names no server");
            self.error(mistake.help(format!("write `{example}`")));
            return None;
        }
        let urls: Vec<_> =
            items.iter().map(|item| self.redis_url(item, "urls", Named::Node)).collect();
        let urls: Vec<RedisUrl> = urls.into_iter().collect::<Option<_>>()?;
        let other = urls.iter().position(|url| url.is_tls() != urls[0].is_tls());
        if let Some(other) = other {
            let message = "some of the `urls` are with TLS and some are not";
            self.error(
                Mistake::new(items[other].span.clone(), message)
                    .help("write all as rediss://, or none"),
            );
            return None;
        }
        Some(urls)
    }

    fn master_name(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "`master_name`", "text")?;
        // As Sentinel itself takes it.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !text.is_empty() && text.bytes().all(allowed) {
            return Some(text.to_owned());
        }
        let message = format!("`master_name` cannot be {}", quoted(text));
        let help = "write the name behind `sentinel monitor` in the configuration of the sentinels: \
                    letters, digits, `.`, `-` and `_`";
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    /// Reports a user or a password that is also in the URL.
    fn refuse_second_login(&mut self, fields: &Fields<'_>, is_in_url: bool) {
        let found = LOGIN.iter().find_map(|name| Some((name, fields.entry(name)?)));
        if let Some((name, entry)) = found
            && is_in_url
        {
            let message = format!("`{name}` is given, and a user or a password in the URL as well");
            let mistake = Mistake::new(entry.name_span.clone(), message);
            self.error(mistake.help("remove what is before the `@` of the URL, and the `@`"));
        }
    }

    fn password(&mut self, fields: &Fields<'_>) -> Option<RedisPassword> {
        let text = fields.value("password", self);
        let text = text.and_then(|node| self.some_text(node, "password"));
        let file = fields.value("password_file", self);
        let file = file.and_then(|node| self.some_text(node, "password_file"));
        if let (Some(_), Some(entry)) = (fields.entry("password"), fields.entry("password_file")) {
            let message = "`password` and `password_file` are both given";
            self.error(Mistake::new(entry.name_span.clone(), message).help("remove one of them"));
        }
        text.map(RedisPassword::Text).or_else(|| Some(RedisPassword::File(file?.into())))
    }

    fn tls(&mut self, fields: &Fields<'_>, urls: &[RedisUrl]) -> Option<TlsFiles> {
        let Some(node) = fields.value("tls", self) else { return Some(TlsFiles::default()) };
        let tls = Fields::of(node, &TLS, self)?;
        if urls.iter().any(|url| !url.is_tls())
            && let Some(entry) = fields.entry("tls")
        {
            let message = "`tls` has no meaning without a URL of `rediss://`";
            self.error(
                Mistake::new(entry.name_span.clone(), message)
                    .help("write the URL as rediss://, or remove `tls`"),
            );
        }
        let mut file = |name| {
            let node = tls.value(name, self)?;
            self.some_text(node, name).map(PathBuf::from)
        };
        let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
        for (given, absent) in [("cert", "key"), ("key", "cert")] {
            if let Some(entry) = tls.entry(given)
                && tls.entry(absent).is_none()
            {
                let example =
                    self.format.assign_text(absent, &format!("/etc/tollgate/{absent}.pem"));
                self.error(
                    Mistake::new(
                        entry.name_span.clone(),
                        format!("`{given}` is of no use without `{absent}`"),
                    )
                    .help(format!("add `{example}`")),
                );
            }
        }
        Some(TlsFiles { ca, identity: cert.zip(key) })
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
