//! A whole configuration, and how it is had from a file.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;

use ipnet::IpNet;
use tollgate_core::RuleSet;

use crate::answers::{DenialConfig, HeadersConfig};
use crate::decode::{Decoder, collide};
use crate::envoy::{EnvoyConfig, EnvoyLimits};
use crate::error::{ConfigErrors, ConfigWarnings};
use crate::mistake::{Findings, Mistake};
use crate::source::{Format, Source};
use crate::store::StoreConfig;
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
    /// The rules; at least one in a configuration file.
    pub rules: RuleSet,
    /// Limits in the format of envoyproxy/ratelimit, beside the rules. A configuration file has
    /// none: they are read from a directory by [`EnvoyLimits::read`].
    pub envoy_limits: EnvoyLimits,
    /// What is doubtful in it.
    pub warnings: ConfigWarnings,
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
}

impl Default for Listen {
    fn default() -> Self {
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        Self { http: local(8080), grpc: Some(local(8081)), admin: local(9090) }
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

    /// Reads a configuration from the file at `path`, at most [`SIZE_MAX`](Self::SIZE_MAX) bytes.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] if the file cannot be read, is not UTF-8 or has mistakes; see
    /// [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let name = path.display().to_string();
        Self::parse(&text_of(path)?, &name)
    }

    /// Reads a configuration from a file that may have no `rules`, as `limits` stand beside them.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_beside(path: impl AsRef<Path>, limits: EnvoyLimits) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let (name, text) = (path.display().to_string(), text_of(path)?);
        let format = Format::of(&name);
        let (config, warnings) = parsed(&text, &name, format, |root, findings| {
            Decoder::new(format, &text, findings).beside_limits().config(root)
        })?;
        Ok(Self { warnings, envoy_limits: limits, ..config })
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
    if bytes.len() > Config::SIZE_MAX {
        return Err(too_large(&name));
    }
    text_from(bytes, &name)
}

pub(crate) fn text_from(bytes: Vec<u8>, name: &str) -> Result<String, ConfigErrors> {
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
