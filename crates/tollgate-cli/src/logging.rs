//! Where log lines go.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::args::{Command, LogFormat};
use crate::console;

/// Sends log lines to stderr. `RUST_LOG` sets their level; without it the service logs what
/// changes, and the other commands only what goes wrong.
pub(crate) fn start(format: LogFormat, command: &Command) {
    // What clients do to the protocol is not worth a line each.
    let level = if matches!(command, Command::Serve(_)) { "info,h2=error" } else { "warn" };
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let wanted = if wanted.is_empty() { level } else { wanted.as_str() };
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|error| {
        let ignored = format!("warning: RUST_LOG={wanted:?} is ignored: {error}\n");
        console::explain(&ignored);
        EnvFilter::new(level)
    });
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        // It would be told on stderr, which is what cannot be written to, and panics there.
        .log_internal_errors(false)
        .with_ansi(console::stderr_has_color());
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
