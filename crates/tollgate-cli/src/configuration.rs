//! Which configuration a command uses.

use std::path::Path;

use tollgate_config::{Config, ConfigErrors, ConfigWarnings, EnvoyLimits};
use tollgate_core::RuleSet;

use crate::console;

/// Reads the file, or takes the built-in example if none is named. Mistakes and warnings are
/// printed.
pub(crate) fn read(file: Option<&Path>) -> Option<Config> {
    let config = match file {
        Some(file) => Config::read(file),
        None => return Some(Config::example()),
    };
    told(config, |config| &config.warnings)
}

/// Reads the file, and the directory of limits for Envoy. With a directory alone there are no rules
/// beside its limits.
pub(crate) fn read_with_envoy(file: Option<&Path>, directory: Option<&Path>) -> Option<Config> {
    let Some(directory) = directory else { return read(file) };
    // The mistakes of both are told at once.
    let limits = told(EnvoyLimits::read(directory), |limits| &limits.warnings);
    let Some(file) = file else {
        let mut config = Config::example();
        config.rules = RuleSet::default();
        config.envoy_limits = limits?;
        return Some(config);
    };
    let config = Config::read_beside(file, limits.clone().unwrap_or_default());
    let mut config = told(config, |config| &config.warnings)?;
    if limits.is_none() {
        // The last good ones may have been kept.
        config.state_dir.as_ref()?;
        config.envoy_limits = EnvoyLimits::unread(directory);
    }
    Some(config)
}

fn told<T>(
    read: Result<T, ConfigErrors>,
    warnings: impl FnOnce(&T) -> &ConfigWarnings,
) -> Option<T> {
    let color = console::stderr_has_color();
    match read {
        Ok(value) => {
            let warnings = warnings(&value);
            if !warnings.is_empty() {
                console::explain(&format!("{}\n", warnings.render(color)));
            }
            Some(value)
        }
        Err(errors) => {
            console::explain(&format!("{}\n", errors.render(color)));
            None
        }
    }
}
