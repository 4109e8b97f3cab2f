//! `tollgate validate`.

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;

use tollgate_config::Config;

use crate::args::Validate;
use crate::{EXIT_ERROR, EXIT_NO, console};

pub(crate) fn run(args: &Validate) -> ExitCode {
    let worst = args.files.iter().map(|file| validate(file)).max();
    ExitCode::from(worst.unwrap_or(0))
}

fn validate(file: &Path) -> u8 {
    let color = console::stderr_has_color();
    match Config::read(file) {
        Ok(config) => {
            if !config.warnings.is_empty() {
                console::explain(&format!("{}\n\n", config.warnings.render(color)));
            }
            console::print(&format!("{}: ok ({})\n", file.display(), contents(&config)));
            0
        }
        Err(errors) => {
            console::explain(&format!("{}\n\n", errors.render(color)));
            if is_readable(file) { EXIT_NO } else { EXIT_ERROR }
        }
    }
}

fn contents(config: &Config) -> String {
    let counted = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    };
    let rules = counted(config.rules.len(), "rule");
    match config.warnings.len() {
        0 => rules,
        warnings => format!("{rules}, {}", counted(warnings, "warning")),
    }
}

fn is_readable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| !metadata.is_dir()) && File::open(file).is_ok()
}
