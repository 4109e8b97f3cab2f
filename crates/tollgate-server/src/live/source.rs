//! Where rules come from.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_config::{Config, RulesFrom};

use crate::error::ServeError;
use crate::live::error::{SourceError, WriteError};
use crate::live::file::FileSource;
use crate::live::http::HttpSource;
use crate::live::reading::{Reading, open_regular};
use crate::live::redis::RedisSource;

/// The source of a service's rules.
#[derive(Debug)]
pub(crate) enum Source {
    /// None: the rules are those that the application gave.
    None,
    /// The configuration of the service itself.
    Config(FileSource),
    File(FileSource),
    Redis(Box<RedisSource>),
    Http(HttpSource),
}

/// What a source answers.
pub(super) enum Fetched {
    /// What it answered before.
    Same,
    /// A text, perhaps the same as before.
    Text(Vec<u8>),
    /// There are no rules yet.
    Absent,
}

impl Source {
    pub(crate) fn new(config: &Config) -> Result<Self, ServeError> {
        Ok(match &config.rules_from {
            RulesFrom::File { path, poll_interval } => {
                Self::File(FileSource::new(path, *poll_interval))
            }
            RulesFrom::Redis { url, access, key, poll_interval } => Self::Redis(Box::new(
                RedisSource::new(url, access, key, *poll_interval).map_err(ServeError::rules)?,
            )),
            RulesFrom::Http { url, ca, token_file, poll_interval } => Self::Http(
                HttpSource::new(url, ca.as_deref(), token_file.clone(), *poll_interval)
                    .map_err(ServeError::rules)?,
            ),
            _ => match &config.file {
                // A pipe gives its text once.
                Some(file) if file.is_file() => {
                    Self::Config(FileSource::new(file, RulesFrom::POLL_INTERVAL_DEFAULT))
                }
                Some(file) => {
                    let file = file.display();
                    tracing::info!(%file, "the configuration is no regular file, it is not followed");
                    Self::None
                }
                None => Self::None,
            },
        })
    }

    pub(super) async fn fetch(&self) -> Result<Fetched, SourceError> {
        match self {
            Self::None => Ok(Fetched::Same),
            Self::Config(file) | Self::File(file) => file.fetch().await,
            Self::Redis(redis) => redis.fetch().await,
            Self::Http(http) => http.fetch().await,
        }
    }

    /// Writes `text` if the source still has `seen`, where `None` is no rules.
    pub(super) async fn write(&self, seen: Option<&[u8]>, text: &str) -> Result<(), WriteError> {
        match self {
            Self::File(file) => file.write(seen, text).await,
            Self::Redis(redis) => redis.write(seen, text).await,
            Self::None | Self::Config(_) | Self::Http(_) => match self.read_only() {
                Some(why) => Err(WriteError::ReadOnly(why)),
                None => Ok(()),
            },
        }
    }

    /// Says why the admin API cannot write to this source, if it cannot.
    pub(super) const fn read_only(&self) -> Option<&'static str> {
        match self {
            Self::None => Some("the rules of this service are those that it was started with"),
            Self::Config(_) => Some(
                "the rules stand in the configuration of the service: change them there, or have \
                 them in a file or a key of their own by `rules_from`",
            ),
            Self::Http(_) => {
                Some("the rules come from an HTTP server: change them there, this service reads")
            }
            Self::File(_) | Self::Redis(_) => None,
        }
    }

    /// Tells whether the rules come from outside of the service's configuration.
    pub(super) const fn is_elsewhere(&self) -> bool {
        matches!(self, Self::File(_) | Self::Redis(_) | Self::Http(_))
    }

    /// Tells whether an answer may take long because the source waits for a change.
    pub(super) const fn waits(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Returns how long to wait before the source is asked again, and what to wake up for.
    pub(super) fn pace(&self) -> Option<(Duration, Arc<Notify>)> {
        match self {
            Self::None => None,
            Self::Config(file) | Self::File(file) => Some(file.pace()),
            Self::Redis(redis) => Some(redis.pace()),
            Self::Http(http) => Some(http.pace()),
        }
    }

    /// Looks out for changes until the future is dropped.
    pub(super) async fn watch(&self) {
        match self {
            Self::Config(file) | Self::File(file) => file.watch().await,
            Self::Redis(redis) => redis.watch().await,
            Self::None | Self::Http(_) => std::future::pending().await,
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Config(_) => "config",
            Self::File(_) => "file",
            Self::Redis(_) => "redis",
            Self::Http(_) => "http",
        }
    }

    /// Returns where it is, without passwords.
    pub(super) fn location(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Config(file) | Self::File(file) => file.path().display().to_string(),
            Self::Redis(redis) => redis.location(),
            Self::Http(http) => http.location(),
        }
    }

    /// Returns the name that mistakes are reported under, whose end tells the format.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Redis(redis) => redis.key().to_owned(),
            Self::Http(http) => http.name(),
            _ => self.location(),
        }
    }

    /// Says that there are no rules yet.
    pub(super) fn absent(&self) -> SourceError {
        match self {
            Self::Redis(redis) => SourceError::new(format!(
                "the key {} does not exist: write rules to it by `tollgate rules push`",
                redis.key()
            )),
            _ => SourceError::new(format!("there is no file {}", self.location())),
        }
    }

    /// Returns `yaml` or `toml`.
    pub(super) fn format(&self) -> &'static str {
        // The rules of a configuration are shown in one form, whatever it is written in.
        let name = PathBuf::from(self.name());
        let is_toml = name.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"));
        if self.is_elsewhere() && is_toml { "toml" } else { "yaml" }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            source => write!(f, "{} {}", source.kind(), source.location()),
        }
    }
}

/// Reads a file, and of one that is too large no more than shows that it is. `None` if there is
/// none.
pub(super) async fn read_file(
    reading: &Reading,
    path: &Path,
) -> Result<Option<Vec<u8>>, SourceError> {
    let file = path.to_owned();
    match reading.run(path, move || read_bounded(&file)).await? {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SourceError::new(format!("{} cannot be read: {error}", path.display()))),
    }
}

pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(Config::SIZE_MAX).unwrap_or(u64::MAX);
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
