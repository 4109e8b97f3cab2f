//! Which configuration a command uses.

use std::path::Path;

use tollgate_config::Config;

use crate::console;

/// Reads the file, or takes the built-in example if none is named. Mistakes and warnings are
/// printed.
pub(crate) fn read(file: Option<&Path>) -> Option<Config> {
    let config = match file {
        Some(file) => Config::read(file),
        None => return Some(Config::example()),
    };
    let color = console::stderr_has_color();
    match config {
        Ok(config) => {
            if !config.warnings.is_empty() {
                console::explain(&format!("{}\n", config.warnings.render(color)));
            }
            Some(config)
        }
        Err(errors) => {
            console::explain(&format!("{}\n", errors.render(color)));
            None
        }
    }
}
