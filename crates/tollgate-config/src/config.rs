//! A whole configuration, and how it is had from a file.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use tollgate_core::RuleSet;

use crate::answers::{DenialConfig, HeadersConfig};
use crate::decode::{Decoder, collide};
use crate::envoy::{EnvoyConfig, EnvoyLimits};
use crate::error::{ConfigErrors, ConfigWarnings};
use crate::listen_limits::ListenLimits;
use crate::log::LogConfig;
use crate::mistake::{Findings, Mistake};
use crate::rules_file::RulesId;
use crate::rules_from::RulesFrom;
use crate::sections::Sections;
use crate::security::{AdminToken, ListenerTls, Tls, TokenSecret};
use crate::source::{Format, Source};
use crate::store::StoreConfig;
use crate::tracing::TracingConfig;
use crate::tree::{self, Node};

/// A configuration without mistakes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where the service listens.
    pub listen: Listen,
    /// Where the buckets are kept.
    pub store: StoreConfig,
    /// How Envoy is answered.
    pub envoy: EnvoyConfig,
    /// Which headers tell a client about its limits.
    pub headers: HeadersConfig,
    /// How a denial is answered.
    pub denial: DenialConfig,
    /// Whose word on the client's address counts; a single address is a /32 or a /128.
    pub trusted_proxies: Vec<IpNet>,
    /// The certificates of the listeners.
    pub tls: Tls,
    /// Who may use the admin API. If nobody is named, everybody may who can connect to it.
    pub admin_tokens: Vec<AdminToken>,
    /// Where the rules come from while the service runs.
    pub rules_from: RulesFrom,
    /// Where the service keeps the last rules, for when their source is away.
    pub state_dir: Option<PathBuf>,
    /// What the service logs of callers.
    pub log: LogConfig,
    /// Where the service sends its traces.
    pub tracing: TracingConfig,
    /// The rules; at least one in a configuration file, unless they come from elsewhere.
    pub rules: RuleSet,
    /// The id of `rules`.
    pub rules_id: RulesId,
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// Limits in the format of envoyproxy/ratelimit, beside the rules. A configuration file has
    /// none: they are read from a directory by [`EnvoyLimits::read`].
    pub envoy_limits: EnvoyLimits,
    /// What is doubtful in it.
    pub warnings: ConfigWarnings,
    /// The sections that need a restart, and what they say.
    pub(crate) sections: Sections,
    /// What `rules` say.
    pub(crate) rules_text: String,
}

/// Where the service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listen {
    /// The check API and forward auth. The default is 127.0.0.1:8080.
    pub http: SocketAddr,
    /// Envoy's rate limit protocol, or `None` if it is off. The default is 127.0.0.1:8081.
    pub grpc: Option<SocketAddr>,
    /// Metrics, health and the admin API. The default is 127.0.0.1:9090.
    pub admin: SocketAddr,
    /// Whether other processes of the same user may listen on the same ports (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// What they grant their clients.
    pub limits: ListenLimits,
}

impl Default for Listen {
    fn default() -> Self {
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let limits = ListenLimits::default();
        let grpc = Some(local(8081));
        Self { http: local(8080), grpc, admin: local(9090), reuse_port: false, limits }
    }
}

impl Listen {
    /// Returns the names of two fields that could not both be served, because one takes the port of
    /// the other. A configuration that was read has none; one whose addresses were set afterwards
    /// may.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Listen;
    ///
    /// let mut listen = Listen::default();
    /// assert_eq!(listen.collision(), None);
    /// listen.admin = "0.0.0.0:8080".parse()?;
    /// assert_eq!(listen.collision(), Some(("http", "admin")));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn collision(&self) -> Option<(&'static str, &'static str)> {
        let (http, admin) = (("http", Some(self.http)), ("admin", Some(self.admin)));
        let grpc = ("grpc", self.grpc);
        let collides = |(_, a): &(_, Option<SocketAddr>), (_, b): &(_, Option<SocketAddr>)| {
            a.zip(*b).is_some_and(|(a, b)| collide(a, b))
        };
        let pairs = [(http, admin), (http, grpc), (grpc, admin)];
        pairs.iter().find(|(a, b)| collides(a, b)).map(|((a, _), (b, _))| (*a, *b))
    }
}

impl Config {
    /// A small commented configuration, and the one that the service starts with when it is given
    /// no file.
    pub const EXAMPLE: &str = include_str!("../example.yaml");

    /// The most bytes that a file may have: 1 MiB.
    pub const SIZE_MAX: usize = 1 << 20;

    /// Returns the configuration of [`EXAMPLE`](Self::EXAMPLE).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let config = Config::example();
    /// assert_eq!(config.listen.http.to_string(), "127.0.0.1:8080");
    /// assert_eq!(config.rules.len(), 3);
    /// ```
    #[expect(clippy::panic, reason = "a test pins that the constant text parses")]
    pub fn example() -> Self {
        match Self::parse(Self::EXAMPLE, "example.yaml") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        }
    }

    /// Reads a configuration from `text`. It is TOML if `name`, the name of the file, ends in
    /// `.toml`, and YAML otherwise.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of the text, not only the first. A syntax error of YAML
    /// hides what follows it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let text = "
    /// rules:
    ///   - name: login-per-ip
    ///     key: ip
    ///     limit: 20/min
    /// ";
    /// let config = Config::parse(text, "tollgate.yaml")?;
    /// let rule = config.rules.iter().next().unwrap();
    /// assert_eq!(rule.quota().burst(), 20);
    /// # Ok::<(), tollgate_config::ConfigErrors>(())
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        let format = Format::of(name);
        let (config, warnings) = parsed(text, name, format, |root, findings| {
            Decoder::new(format, text, findings).config(root)
        })?;
        Ok(Self { warnings, ..config })
    }

    /// Reads a configuration from `text` that may have no `rules`, as `limits` stand beside them.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    pub fn parse_beside(text: &str, name: &str, limits: EnvoyLimits) -> Result<Self, ConfigErrors> {
        let format = Format::of(name);
        let (config, warnings) = parsed(text, name, format, |root, findings| {
            Decoder::new(format, text, findings).beside_limits().config(root)
        })?;
        Ok(Self { warnings, envoy_limits: limits, ..config })
    }

    /// Returns the rules as a text of their own, in YAML of one rule a line, without comments.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::{Config, RulesFile};
    ///
    /// let config = Config::parse("rules: [{ name: a, limit: 20/min }]", "tollgate.yaml")?;
    /// assert_eq!(config.rules_text(), "rules:\n- {\"name\": \"a\", \"limit\": \"20/min\"}\n");
    /// assert_eq!(RulesFile::parse(config.rules_text(), "rules.yaml")?.id, config.rules_id);
    /// # Ok::<(), tollgate_config::ConfigErrors>(())
    /// ```
    pub fn rules_text(&self) -> &str {
        &self.rules_text
    }

    /// Reads a configuration from the file at `path`, at most [`SIZE_MAX`](Self::SIZE_MAX) bytes.
    /// Relative paths in it begin at the folder of the file.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] if the file cannot be read, is not UTF-8 or has mistakes; see
    /// [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let name = path.display().to_string();
        Self::parse(&text_of(path)?, &name)?.placed(path)
    }

    /// Reads a configuration from a file that may have no `rules`, as `limits` stand beside them.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_beside(path: impl AsRef<Path>, limits: EnvoyLimits) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let name = path.display().to_string();
        Self::parse_beside(&text_of(path)?, &name, limits)?.placed(path)
    }

    /// Lets relative paths begin at the folder of `file`, and refuses one that leads to it.
    fn placed(mut self, file: &Path) -> Result<Self, ConfigErrors> {
        self.place(file);
        let itself = file.canonicalize().ok();
        if let RulesFrom::File { path, .. } = &self.rules_from
            && itself.is_some()
            && path.canonicalize().ok() == itself
        {
            let message = "`rules_from` names this file itself".to_owned();
            let help = "remove `rules_from`, as changes of the rules in this file are followed, or \
                        name a file with nothing but `rules`";
            return Err(ConfigErrors::whole_file(&file.display().to_string(), message, help));
        }
        Ok(self)
    }

    fn place(&mut self, file: &Path) {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let place = |path: &mut PathBuf| *path = folder.join(&*path);
        let Tls { http, grpc, admin } = &mut self.tls;
        for ListenerTls { cert, key, client_ca } in [http, grpc, admin].into_iter().flatten() {
            [Some(cert), Some(key), client_ca.as_mut()].into_iter().flatten().for_each(place);
        }
        for token in &mut self.admin_tokens {
            if let TokenSecret::File(path) = &mut token.secret {
                place(path);
            }
        }
        if let StoreConfig::Redis(redis) = &mut self.store {
            redis.access.paths_mut().for_each(place);
        }
        match &mut self.rules_from {
            RulesFrom::File { path, .. } => place(path),
            RulesFrom::Http { ca, token_file, .. } => {
                [ca.as_mut(), token_file.as_mut()].into_iter().flatten().for_each(place);
            }
            RulesFrom::Redis { access, .. } => access.paths_mut().for_each(place),
            RulesFrom::Config => {}
        }
        self.state_dir.iter_mut().for_each(place);
        self.file = Some(file.to_owned());
    }
}

/// Reads the text of a file of at most [`Config::SIZE_MAX`] bytes.
pub(crate) fn text_of(path: &Path) -> Result<String, ConfigErrors> {
    let name = path.display().to_string();
    if path.is_dir() {
        let message = "this is a directory, not a file".to_owned();
        let help = "give the path of a file in it";
        return Err(ConfigErrors::whole_file(&name, message, help));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(Config::SIZE_MAX).unwrap_or(u64::MAX);
    File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(
        |error| {
            let message = format!("the file cannot be read: {error}");
            let help = "check that it exists and that this user may read it";
            ConfigErrors::whole_file(&name, message, help)
        },
    )?;
    text_from(bytes, &name)
}

/// Reads bytes as text.
pub(crate) fn text_from(bytes: Vec<u8>, name: &str) -> Result<String, ConfigErrors> {
    if bytes.len() > Config::SIZE_MAX {
        return Err(too_large(name));
    }
    String::from_utf8(bytes).map_err(|error| not_utf8(name, &error))
}

/// Reads what `decode` makes of a text, with the warnings about it.
pub(crate) fn parsed<T>(
    text: &str,
    name: &str,
    format: Format,
    decode: impl FnOnce(&Node, &mut Findings) -> Option<T>,
) -> Result<(T, ConfigWarnings), ConfigErrors> {
    if text.len() > Config::SIZE_MAX {
        return Err(too_large(name));
    }
    let mut findings = Findings::default();
    control_characters(text, &mut findings);
    let mut decoded = None;
    if findings.errors.is_empty()
        && let Some(root) = parse_tree(text, format, &mut findings)
    {
        decoded = decode(&root, &mut findings);
    }
    let source = Source::new(name, text);
    match decoded.filter(|_| findings.errors.is_empty()) {
        Some(decoded) => Ok((decoded, ConfigWarnings::new(source, findings))),
        None => Err(ConfigErrors::new(source, findings)),
    }
}

fn parse_tree(text: &str, format: Format, findings: &mut Findings) -> Option<Node> {
    let root = match format {
        Format::Yaml => tree::yaml::parse(text, findings),
        Format::Toml => tree::toml::parse(text, findings),
    };
    // An empty file is a configuration without fields, and is told so.
    let empty = || Node { span: 0..0, value: tree::Value::Mapping(Vec::new()) };
    root.or_else(|| findings.errors.is_empty().then(empty))
}

/// Reports characters that neither YAML nor TOML may contain, a binary file in the worst case.
fn control_characters(text: &str, findings: &mut Findings) {
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        let ends_line = character == '\r' && matches!(rest.peek(), Some((_, '\n')));
        if !character.is_ascii_control() || matches!(character, '\n' | '\t') || ends_line {
            continue;
        }
        let message = format!("the file contains the control character U+{:04X}", character as u32);
        findings.error(Mistake::new(at..at + 1, message).help("remove it"));
        return;
    }
}

fn too_large(name: &str) -> ConfigErrors {
    let message = format!("the file is larger than {} bytes", Config::SIZE_MAX);
    ConfigErrors::whole_file(name, message, "check that this is the right file")
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> ConfigErrors {
    let bytes = error.as_bytes();
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        let message = "the file is UTF-16, not UTF-8".to_owned();
        return ConfigErrors::whole_file(name, message, "save it as UTF-8");
    }
    let start = error.utf8_error().valid_up_to();
    let byte = bytes.get(start).copied().unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    let span: Range<usize> = start..start + '\u{FFFD}'.len_utf8();
    let mut findings = Findings::default();
    findings.error(
        Mistake::new(span, format!("the file is not UTF-8: byte 0x{byte:02X}"))
            .help("save it as UTF-8"),
    );
    ConfigErrors::new(Source::new(name, &text), findings)
}
