//! The binary `tollgate`: the service, and a command line to ask, to take turns, to validate, to
//! change rules and to measure.

mod acquire;
mod args;
mod ask;
mod bench;
mod command;
mod configuration;
mod console;
mod held;
mod logging;
mod request;
mod rules;
mod serve;
mod signals;
mod validate;
mod words;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command, Serve};

/// The exit status of a denial, and of a configuration with mistakes.
const EXIT_NO: u8 = 1;

/// The exit status when the question could not be answered.
const EXIT_ERROR: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    logging::start(args.log_format, &args.command);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Command::Serve(Serve { workers: Some(workers), .. }) = &args.command {
        runtime.worker_threads(usize::from(*workers));
    }
    let status = match runtime.enable_all().build() {
        Ok(runtime) => {
            let status = runtime.block_on(run(args.command));
            // A file on a network that is gone is not waited for.
            runtime.shutdown_background();
            status
        }
        Err(error) => {
            console::explain(&format!("error: cannot start threads: {error}\n"));
            ExitCode::from(EXIT_ERROR)
        }
    };
    console::end(status)
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(serve) => serve::run(serve).await,
        Command::Check(check) => ask::check(check).await,
        Command::Peek(peek) => ask::peek(peek).await,
        Command::Acquire(acquire) => acquire::run(acquire).await,
        Command::Refund(refund) => ask::refund(refund).await,
        Command::Reset(reset) => ask::reset(reset).await,
        Command::Rules(rules) => rules::run(rules).await,
        Command::Reserve(reserve) => held::reserve(reserve).await,
        Command::Commit(commit) => held::commit(commit).await,
        Command::Cancel(cancel) => held::cancel(cancel).await,
        Command::Renew(renew) => held::renew(renew).await,
        Command::Release(release) => held::release(release).await,
        Command::Validate(validate) => validate::run(&validate),
        Command::Bench(bench) => bench::run(bench).await,
        Command::Example => {
            console::print(tollgate_config::Config::EXAMPLE);
            ExitCode::SUCCESS
        }
    }
}
