//! `tollgate bench`: an open-loop load on a service or on a Redis.

mod keys;
mod load;
mod options;
mod plot;
mod report;
mod target;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use self::load::Plan;
pub(crate) use self::options::Bench;
use self::report::Report;
use self::target::Target;
use crate::{EXIT_ERROR, EXIT_NO, console};

pub(crate) async fn run(args: Bench) -> ExitCode {
    match measured(&args).await {
        Ok(report) => {
            console::print(&report.table());
            if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
        }
        Err(message) => {
            console::explain(&format!("error: {message}\n"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

async fn measured(args: &Bench) -> Result<Report, String> {
    let target = Arc::new(Target::new(args).await?);
    let report = load::run(&Plan::new(args)?, &target).await?;
    if let Some(file) = &args.json {
        write(file, &report.json())?;
    }
    if let Some(file) = &args.svg {
        write(file, &plot::svg(&report))?;
    }
    Ok(report)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
