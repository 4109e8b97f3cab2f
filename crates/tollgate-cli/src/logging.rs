//! Where log lines go.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::args::{Command, LogFormat};
use crate::console;

/// Sends log lines to stderr. `RUST_LOG` sets their level; without it the service logs what
/// changes, and the other commands only what goes wrong.
pub(crate) fn start(format: LogFormat, command: &Command) {
    let level = if matches!(command, Command::Serve(_)) { "info" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(console::stderr_has_color());
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
