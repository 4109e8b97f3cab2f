//! Three replicas of a small service under one limit of 600/s, offered three times that, and what
//! their downstream sees: with a bucket in each process, with Tollgate, and with Tollgate while
//! Redis is killed and while it stands still.
//!
//! `cargo xtask scenario` runs it and draws `docs/img/scenario.svg`. Given a file, it writes there what
//! was counted, for the drawing.
#![expect(clippy::print_stdout, reason = "a command line talks to its user")]

mod client;
mod downstream;
mod load;
mod replica;
mod report;
mod run;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["replica", downstream] => replica::serve(downstream, None).await?,
        ["replica", downstream, redis] => replica::serve(downstream, Some(redis)).await?,
        [] => return all(None).await,
        [file] => return all(Some(file.into())).await,
        _ => return Err("usage: tollgate-scenario [FILE]".into()),
    }
    Ok(ExitCode::SUCCESS)
}

async fn all(file: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    for plan in run::PLANS {
        println!("{} ...", plan.title);
        reports.push(run::run(plan).await?);
    }
    println!("\n{}", report::table(&reports));
    if let Some(file) = file {
        std::fs::write(file, report::counts(&reports))?;
    }
    let missed: Vec<String> = reports.iter().flat_map(report::Report::missed).collect();
    for line in &missed {
        println!("missed: {line}");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
