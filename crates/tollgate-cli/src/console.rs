//! What is printed, and whether in colour.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use crate::EXIT_ERROR;

/// Why what was printed is not written.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Prints to stdout. A reader that has gone away is no reason to fail; what cannot be written for
/// another reason is told by [`end`].
pub(crate) fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        // The first reason is told.
        let _ = LOST.set(error);
    }
}

/// Returns the exit status: `status`, or that of an error if something printed was not written.
pub(crate) fn end(status: ExitCode) -> ExitCode {
    match LOST.get() {
        None => status,
        Some(error) => {
            explain(&format!("error: the output cannot be written: {error}\n"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// Prints to stderr.
pub(crate) fn explain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Tells whether stderr shows colours and its reader wants them.
pub(crate) fn stderr_has_color() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
