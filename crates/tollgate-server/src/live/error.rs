//! How a source fails.

use std::fmt;

/// A source that gives no text.
#[derive(Debug)]
pub(crate) struct SourceError(String);

/// Why rules were not written to their source.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The source has other rules than the caller has seen.
    Conflict,
    /// The source cannot be written to.
    ReadOnly(&'static str),
    /// The source fails.
    Source(SourceError),
}

impl SourceError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Names an error with all its causes.
    pub(crate) fn of(what: &str, error: &dyn std::error::Error) -> Self {
        let mut message = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self(message)
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}

impl From<SourceError> for WriteError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}
