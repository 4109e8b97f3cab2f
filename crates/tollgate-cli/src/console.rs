//! What is printed, and whether in colour.

use std::env;
use std::io::{self, IsTerminal, Write};

/// Prints to stdout. A reader that has gone away is no reason to fail.
pub(crate) fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Prints to stderr.
pub(crate) fn explain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Tells whether stderr shows colours and its reader wants them.
pub(crate) fn stderr_has_color() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
