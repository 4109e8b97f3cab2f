//! What the caller gets when a file is wrong or doubtful.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::mistake::{Findings, Mistake};
use crate::render;
use crate::source::{Position, Source};

/// Every mistake of one configuration file, in the order of their lines.
///
/// [`Display`](fmt::Display) writes them all as a compiler would: message, file, line, the text at
/// fault and what to write instead. Passwords are shown as stars.
///
/// At most 100 mistakes are kept; how many more there are is the last line of the rendering.
///
/// # Examples
///
/// ```
/// use tollgate_config::Config;
///
/// let text = "rules:\n  - name: login\n    limit: 20\n";
/// let errors = Config::parse(text, "tollgate.yaml").unwrap_err();
/// assert_eq!(errors.len(), 1);
/// assert_eq!(
///     errors.to_string(),
///     r#"error: rate "20" has no '/'
///  --> tollgate.yaml:3:12
///   |
/// 3 |     limit: 20
///   |            ^^
///   |
///   = help: write it as units/period, for example "20/min""#
/// );
/// ```
#[derive(Debug)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
    omitted: usize,
}

/// What is doubtful in a configuration that is in order, in the order of the lines.
#[derive(Clone, Debug, Default)]
pub struct ConfigWarnings {
    warnings: Vec<ConfigError>,
}

/// One mistake of a configuration file, or one warning about it.
///
/// [`Display`](fmt::Display) writes it in one line for a log: `file:line:column: message: help`.
#[derive(Clone)]
pub struct ConfigError {
    pub(crate) source: Arc<Source>,
    pub(crate) mistake: Mistake,
    pub(crate) severity: Severity,
    position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Warning,
    /// An error that has no place, since the file could not be read.
    WholeFile,
    /// A warning about a directory.
    WholeDirectory,
}

fn masked(mut source: Source, secrets: &[Range<usize>]) -> Arc<Source> {
    source.mask(secrets);
    Arc::new(source)
}

fn located(source: &Arc<Source>, mistakes: Vec<Mistake>, severity: Severity) -> Vec<ConfigError> {
    let mut located: Vec<_> = mistakes
        .into_iter()
        .map(|mistake| ConfigError {
            position: source.position(mistake.span.start),
            source: Arc::clone(source),
            mistake,
            severity,
        })
        .collect();
    located.sort_by_key(|error| error.mistake.span.start);
    located
}

impl ConfigErrors {
    /// Makes the report of `findings`, of which at least one is an error.
    pub(crate) fn new(source: Source, findings: Findings) -> Self {
        debug_assert!(!findings.errors.is_empty());
        let source = masked(source, &findings.secrets);
        Self {
            errors: located(&source, findings.errors, Severity::Error),
            warnings: located(&source, findings.warnings, Severity::Warning),
            omitted: findings.omitted,
        }
    }

    /// Makes the report of a file that has no text to show.
    pub(crate) fn whole_file(name: &str, message: String, help: &str) -> Self {
        Self {
            errors: vec![ConfigError {
                source: Arc::new(Source::new(name, "")),
                mistake: Mistake::new(0..0, message).help(help),
                severity: Severity::WholeFile,
                position: Position { line: 1, column: 1 },
            }],
            warnings: Vec::new(),
            omitted: 0,
        }
    }

    /// Adds those of another file.
    pub(crate) fn append(&mut self, mut more: Self) {
        self.errors.append(&mut more.errors);
        self.warnings.append(&mut more.warnings);
        self.omitted += more.omitted;
    }

    /// Returns the number of mistakes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// Returns the mistakes in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.errors.iter()
    }

    /// Returns the warnings, which alone would not keep the file from being used.
    pub fn warnings(&self) -> impl Iterator<Item = &ConfigError> {
        self.warnings.iter()
    }

    /// Writes all mistakes, then the warnings, each with its snippet; with ANSI colours if `color`.
    pub fn render(&self, color: bool) -> String {
        let mut text = render::all(self.errors.iter().chain(&self.warnings), color);
        if self.omitted > 0 {
            let plural = if self.omitted == 1 { "" } else { "s" };
            let count = self.omitted;
            text.push_str(&format!("\n\nerror: {count} more mistake{plural} not shown"));
        }
        text
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigErrors {}

impl ConfigWarnings {
    pub(crate) fn new(source: Source, findings: Findings) -> Self {
        let source = masked(source, &findings.secrets);
        Self { warnings: located(&source, findings.warnings, Severity::Warning) }
    }

    /// Adds one about a directory, which has no text to show.
    pub(crate) fn push_directory(&mut self, name: &str, message: String, help: &str) {
        self.warnings.push(ConfigError {
            source: Arc::new(Source::new(name, "")),
            mistake: Mistake::new(0..0, message).help(help),
            severity: Severity::WholeDirectory,
            position: Position { line: 1, column: 1 },
        });
    }

    /// Adds those of another file.
    pub(crate) fn append(&mut self, mut more: Self) {
        self.warnings.append(&mut more.warnings);
    }

    /// Returns the number of warnings.
    pub fn len(&self) -> usize {
        self.warnings.len()
    }

    /// Tells whether there is no warning.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }

    /// Returns the warnings in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.warnings.iter()
    }

    /// Writes all warnings, each with its snippet; with ANSI colours if `color`.
    pub fn render(&self, color: bool) -> String {
        render::all(self.warnings.iter(), color)
    }
}

impl fmt::Display for ConfigWarnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl ConfigError {
    /// Returns what is wrong, in one line.
    pub fn message(&self) -> &str {
        &self.mistake.message
    }

    /// Returns what to write instead, if there is more to say than the message does.
    pub fn help(&self) -> Option<&str> {
        let label = Some(self.mistake.label.as_str()).filter(|label| !label.is_empty());
        self.mistake.help.as_deref().or(label)
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        self.source.name()
    }

    /// Returns the line of the file, from 1; 1 if the file could not be read.
    pub fn line(&self) -> usize {
        self.position.line
    }

    /// Returns the column in the line, in characters from 1; 1 if the file could not be read.
    pub fn column(&self) -> usize {
        self.position.column
    }

    /// Tells whether this is a warning: the file can be used as it is.
    pub fn is_warning(&self) -> bool {
        matches!(self.severity, Severity::Warning | Severity::WholeDirectory)
    }

    pub(crate) fn has_no_place(&self) -> bool {
        matches!(self.severity, Severity::WholeFile | Severity::WholeDirectory)
    }

    /// Writes the mistake with its snippet; with ANSI colours if `color`.
    pub fn render(&self, color: bool) -> String {
        render::all([self], color)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())?;
        if !self.has_no_place() {
            write!(f, ":{}:{}", self.line(), self.column())?;
        }
        write!(f, ": {}", self.message())?;
        if !self.mistake.label.is_empty() {
            write!(f, ": {}", self.mistake.label)?;
        }
        // Further lines of a help are an example to copy, which a log has no place for.
        match self.mistake.help.as_deref().and_then(|help| help.lines().next()) {
            Some(help) => write!(f, ": {}", help.trim_end_matches(':')),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigError")
            .field("file", &self.file())
            .field("line", &self.line())
            .field("column", &self.column())
            .field("message", &self.message())
            .field("help", &self.help())
            .field("is_warning", &self.is_warning())
            .finish()
    }
}

impl std::error::Error for ConfigError {}
