//! The configuration file of Tollgate: format, validation and errors with line and snippet.
//!
//! A [`Config`] is read from YAML, or from TOML when the name of the file ends in `.toml`, with
//! the same fields. Every mistake of a file is reported, each with its line, the text at fault and
//! what to write instead; what is doubtful but possible is a warning. The fields are described in
//! `docs/configuration.md`; [`Config::EXAMPLE`] is a commented file to start from.
//!
//! # Examples
//!
//! ```
//! use tollgate_config::Config;
//!
//! let text = "
//! rules:
//!   - name: login-per-ip
//!     match: { path: /login, method: POST }
//!     key: ip
//!     limit: 20/min
//!     brust: 20
//!     shadow: yes
//! ";
//! let errors = Config::parse(text, "tollgate.yaml").unwrap_err();
//! let lines: Vec<_> = errors.iter().map(|error| (error.line(), error.message())).collect();
//! assert_eq!(lines, [
//!     (7, "a rule has no field `brust`"),
//!     (8, "`shadow` must be true or false, not `yes`"),
//! ]);
//! ```
//!
//! # Limits
//!
//! A file has at most [`Config::SIZE_MAX`] bytes and 32 levels of nesting, and the aliases of YAML
//! may repeat at most 100,000 values and bytes, so that no file takes more than a moment. YAML is
//! read by the rules of version 1.2 with three exceptions, all of them errors: a field that is given
//! twice, a tag, and a second document. Text need not be quoted: `NO` is the text NO.

mod answers;
mod config;
mod decode;
mod envoy;
mod envoy_files;
mod error;
mod listen_limits;
mod log;
mod mistake;
mod redis;
mod render;
mod rules_file;
mod rules_from;
mod sections;
mod security;
mod source;
mod store;
mod tracing;
mod tree;

pub use ipnet::IpNet;

pub use crate::answers::{DenialConfig, DenialContent, HeadersConfig, IetfDraft, ResetUnit};
pub use crate::config::{Config, Listen};
pub use crate::envoy::{
    EnvoyAmount, EnvoyConfig, EnvoyDescriptor, EnvoyDomain, EnvoyHeaders, EnvoyLimit, EnvoyLimits,
    EnvoyUnit, Metadata,
};
pub use crate::envoy_files::EnvoyFiles;
pub use crate::error::{ConfigError, ConfigErrors, ConfigWarnings};
pub use crate::listen_limits::ListenLimits;
pub use crate::log::{LogConfig, LoggedKeys};
pub use crate::redis::{RedisAccess, RedisConfig, RedisPassword, RedisServers, RedisUrl, TlsFiles};
pub use crate::rules_file::{RulesFile, RulesId, RulesIdError};
pub use crate::rules_from::{HttpUrl, RulesFrom};
pub use crate::security::{AdminToken, ListenerTls, Scope, Tls, TokenSecret};
pub use crate::store::{StoreConfig, TimeSource};
pub use crate::tracing::{OtlpConfig, Sampler, TracingConfig};

#[cfg(test)]
mod tests;
