//! `tollgate bench`: an open-loop load on a service or on a Redis.

mod keys;
mod load;
mod options;
mod plot;
mod progress;
mod report;
mod seen;
mod target;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use self::load::Plan;
pub(crate) use self::options::Bench;
use self::report::Report;
use self::target::Target;
use crate::signals::Signals;
use crate::{EXIT_ERROR, EXIT_NO, console};

pub(crate) async fn run(args: Bench) -> ExitCode {
    match measured(&args).await {
        Ok(report) => told(&args, &report),
        Err(message) => {
            console::explain(&format!("error: {message}\n"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

async fn measured(args: &Bench) -> Result<Report, String> {
    let target = Arc::new(Target::new(args).await?);
    let plan = Plan::new(args)?;
    let listening = Signals::listen();
    let mut signals = listening.map_err(|error| format!("cannot listen to signals: {error}"))?;
    load::run(&plan, &target, &mut signals).await
}

/// Prints the figures, and then writes the files: one that cannot be written loses nothing.
fn told(args: &Bench, report: &Report) -> ExitCode {
    let mut errors = Vec::new();
    match &args.json {
        Some(file) if file == Path::new("-") => {
            console::explain(&report.table());
            console::print(&report.json());
        }
        Some(file) => {
            console::print(&report.table());
            errors.extend(write(file, &report.json()).err());
        }
        None => console::print(&report.table()),
    }
    if let Some(file) = &args.svg {
        errors.extend(write(file, &plot::svg(report)).err());
    }
    errors.iter().for_each(|error| console::explain(&format!("error: {error}\n")));
    match report.interrupted() {
        _ if !errors.is_empty() => ExitCode::from(EXIT_ERROR),
        Some(received) => ExitCode::from(received.status()),
        None if report.errors() > 0 => ExitCode::from(EXIT_NO),
        None => ExitCode::SUCCESS,
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
