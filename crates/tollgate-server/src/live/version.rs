//! One version of the rules.

use std::sync::Arc;

use tollgate::{Clock, RuleSet, SystemClock, Timestamp};
use tollgate_config::{Config, ConfigErrors, ConfigWarnings, EnvoyLimits, RulesFile, RulesId};

use crate::live::source::Source;

/// One version of the rules that was in force.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) id: RulesId,
    /// The text of the rules by themselves.
    pub(super) document: Arc<str>,
    pub(super) rules_count: usize,
    pub(super) origin: Origin,
    /// Who put it in force by the admin API.
    pub(super) by: Option<String>,
    pub(super) applied_at: Timestamp,
    /// What is doubtful in it.
    pub(super) warnings: Vec<String>,
}

/// How a version came to be in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It stands in the configuration that the service was started with.
    Config,
    /// The source gave it.
    Source,
    /// It was kept from before the start, since the source was away.
    Kept,
    /// It was written by the admin API.
    Push,
    /// It was taken from the history by the admin API.
    Rollback,
}

impl Origin {
    pub(crate) const ALL: [Self; 5] =
        [Self::Config, Self::Source, Self::Kept, Self::Push, Self::Rollback];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Source => "source",
            Self::Kept => "kept",
            Self::Push => "push",
            Self::Rollback => "rollback",
        }
    }
}

/// A text without mistakes.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) rules: RuleSet,
    pub(super) version: Version,
    /// The whole configuration, where the text is one.
    pub(super) config: Option<Box<Config>>,
}

/// The most warnings of one text that are logged.
const WARNINGS_MAX: usize = 10;

impl Checked {
    /// Reads a text as its source has it; a whole configuration may have no rules beside `limits`.
    pub(super) fn read(text: &[u8], source: &Source, limits: &EnvoyLimits) -> Result<Self, String> {
        let name = source.name();
        if source.is_elsewhere() {
            let file = RulesFile::from_bytes(text.to_vec(), &name).map_err(|e| report(&e))?;
            return Ok(Self::of(&file, String::from_utf8_lossy(text).into()));
        }
        let text = String::from_utf8(text.to_vec()).map_err(|_| "the file is not UTF-8")?;
        let parsed = match limits.is_empty() && limits.directory.is_none() {
            true => Config::parse(&text, &name),
            false => Config::parse_beside(&text, &name, limits.clone()),
        };
        let config = parsed.map_err(|errors| report(&errors))?;
        Ok(Self {
            rules: config.rules.clone(),
            version: Version::of(&config),
            config: Some(Box::new(config)),
        })
    }

    pub(super) fn of(file: &RulesFile, document: Arc<str>) -> Self {
        Self {
            rules: file.rules.clone(),
            version: Version {
                warnings: listed(&file.warnings),
                ..Version::new(file.id.clone(), document, file.rules.len())
            },
            config: None,
        }
    }
}

impl Version {
    pub(super) fn new(id: RulesId, document: Arc<str>, rules_count: usize) -> Self {
        let applied_at = SystemClock.now();
        let (origin, warnings) = (Origin::Source, Vec::new());
        Self { id, document, rules_count, origin, by: None, applied_at, warnings }
    }

    /// Makes the version that a whole configuration holds.
    pub(super) fn of(config: &Config) -> Self {
        let (id, document) = (config.rules_id.clone(), config.rules_text().into());
        let warnings = listed(&config.warnings);
        Self { warnings, ..Self::new(id, document, config.rules.len()) }
    }
}

/// Writes all mistakes, one a line.
pub(super) fn report(errors: &ConfigErrors) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Writes the first warnings.
pub(super) fn listed(warnings: &ConfigWarnings) -> Vec<String> {
    warnings.iter().take(WARNINGS_MAX).map(ToString::to_string).collect()
}
