//! Rules by themselves, as their sources give them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use tollgate_core::RuleSet;

use crate::config::{parsed, text_from};
use crate::decode::Decoder;
use crate::error::{ConfigErrors, ConfigWarnings};
use crate::source::Format;
use crate::tree::Node;

/// A text with nothing but `rules`, as [`RulesFrom`](crate::RulesFrom) takes it from elsewhere.
///
/// What concerns one process only, such as where it listens, is a mistake in it: who may change the
/// rules of a fleet must not thereby change its servers.
///
/// # Examples
///
/// ```
/// use tollgate_config::RulesFile;
///
/// let file = RulesFile::parse("rules: [{ name: a, limit: 20/min }]", "rules.yaml")?;
/// assert_eq!(file.rules.len(), 1);
/// assert_eq!(file.id.as_str(), "18abea7d034c79b9");
///
/// let errors = RulesFile::parse("listen: { http: 127.0.0.1:80 }", "rules.yaml").unwrap_err();
/// assert_eq!(errors.iter().next().unwrap().message(), "a file of rules has no field `listen`");
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RulesFile {
    /// The rules, at least one.
    pub rules: RuleSet,
    /// The id of these rules.
    pub id: RulesId,
    /// What is doubtful in it.
    pub warnings: ConfigWarnings,
    pub(crate) text: String,
}

impl RulesFile {
    /// Reads rules from `text`, which is TOML if `name` ends in `.toml`, and YAML otherwise.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of the text.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        let format = Format::of(name);
        let decoded = parsed(text, name, format, |root, findings| {
            Decoder::new(format, text, findings).rules_file(root)
        })?;
        let (file, warnings) = decoded;
        Ok(Self { warnings, ..file })
    }

    /// Returns the rules in YAML of one rule a line, without comments; see
    /// [`Config::rules_text`](crate::Config::rules_text).
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads rules from bytes, which must be UTF-8 and at most [`Config::SIZE_MAX`](crate::Config::SIZE_MAX).
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of the text.
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self, ConfigErrors> {
        Self::parse(&text_from(bytes, name)?, name)
    }
}

/// What tells one version of the rules from another: the first 16 hexadecimal digits of the
/// SHA-256 of what they say.
///
/// It does not depend on comments, quotes or the format, and so is the same for all nodes with the
/// same rules, wherever they have them from.
///
/// # Examples
///
/// ```
/// use tollgate_config::RulesFile;
///
/// let yaml = RulesFile::parse("rules: [{ name: a, limit: 20/min }] # all", "rules.yaml")?;
/// let toml = RulesFile::parse("[[rules]]\nname = \"a\"\nlimit = \"20/min\"", "rules.toml")?;
/// assert_eq!(yaml.id, toml.id);
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RulesId(String);

/// A text that is not the id of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesIdError(());

impl RulesId {
    const LEN: usize = 16;

    /// Returns the id of no rules.
    pub fn of_none() -> Self {
        Self::of_text("")
    }

    pub(crate) fn of(rules: &Node) -> Self {
        Self::of_text(&rules.canonical())
    }

    /// Returns the id of limits for Envoy, by what each domain says.
    pub(crate) fn of_domains<'t>(texts: impl Iterator<Item = &'t String>) -> Self {
        let texts: Vec<&str> = texts.map(String::as_str).collect();
        Self::of_text(&texts.join("\n"))
    }

    fn of_text(text: &str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        Self(digest.iter().take(Self::LEN / 2).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of no rules.
impl Default for RulesId {
    fn default() -> Self {
        Self::of_none()
    }
}

impl fmt::Display for RulesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RulesId {
    type Err = RulesIdError;

    fn from_str(text: &str) -> Result<Self, RulesIdError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.len() == Self::LEN && text.bytes().all(is_digit) {
            true => Ok(Self(text.to_owned())),
            false => Err(RulesIdError(())),
        }
    }
}

impl fmt::Display for RulesIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the id of rules has {} digits, 0-9 and a-f", RulesId::LEN)
    }
}

impl std::error::Error for RulesIdError {}

impl Decoder<'_> {
    fn rules_file(&mut self, root: &Node) -> Option<RulesFile> {
        let (rules, id, text) = self.rules_alone(root)?;
        Some(RulesFile { rules, id, warnings: ConfigWarnings::default(), text })
    }
}
