//! Why a file of timelines cannot be used.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

/// A file of timelines that cannot be read or understood.
///
/// The text names the file, the timeline and the step.
#[derive(Debug)]
pub struct TimelineError {
    message: String,
    source: Option<io::Error>,
}

impl TimelineError {
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    pub(super) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self {
            message: format!("{}: cannot read it: {error}", path.display()),
            source: Some(error),
        }
    }

    pub(super) fn within(self, place: impl fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Tells whether the file could not be read at all.
    pub fn is_unreadable(&self) -> bool {
        self.source.is_some()
    }
}

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TimelineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}
