//! `tollgate validate`.

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;

use tollgate_config::{Config, ConfigErrors, ConfigWarnings, EnvoyLimits};

use crate::args::Validate;
use crate::{EXIT_ERROR, EXIT_NO, console};

pub(crate) fn run(args: &Validate) -> ExitCode {
    let files = args.files.iter().map(|file| {
        // Beside limits for Envoy a file may have no rules.
        let read = match &args.envoy_config {
            Some(_) => Config::read_beside(file, EnvoyLimits::default()),
            None => Config::read(file),
        };
        told(file, read, is_readable, |config| (config.rules.len(), "rule", &config.warnings))
    });
    let directory = args.envoy_config.iter().map(|directory| {
        let read = EnvoyLimits::read(directory);
        told(directory, read, is_listable, |limits| (limits.len(), "limit", &limits.warnings))
    });
    ExitCode::from(files.chain(directory).max().unwrap_or(0))
}

/// Tells what was read and gives the exit status.
fn told<T>(
    path: &Path,
    read: Result<T, ConfigErrors>,
    is_readable: impl FnOnce(&Path) -> bool,
    contents: impl FnOnce(&T) -> (usize, &'static str, &ConfigWarnings),
) -> u8 {
    let color = console::stderr_has_color();
    match read {
        Ok(value) => {
            let (count, noun, warnings) = contents(&value);
            if !warnings.is_empty() {
                console::explain(&format!("{}\n\n", warnings.render(color)));
            }
            let contents = summary(count, noun, warnings.len());
            console::print(&format!("{}: ok ({contents})\n", path.display()));
            0
        }
        Err(errors) => {
            console::explain(&format!("{}\n\n", errors.render(color)));
            if is_readable(path) { EXIT_NO } else { EXIT_ERROR }
        }
    }
}

fn summary(count: usize, noun: &str, warnings: usize) -> String {
    let counted = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let all = counted(count, noun);
    match warnings {
        0 => all,
        warnings => format!("{all}, {}", counted(warnings, "warning")),
    }
}

fn is_listable(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok()
}

fn is_readable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| !metadata.is_dir()) && File::open(file).is_ok()
}
