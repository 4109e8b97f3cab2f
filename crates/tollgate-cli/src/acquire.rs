//! `tollgate acquire`: a command that runs in its turn.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;
use tollgate::{Acquisition, Cost, Limiter, Permit};

use crate::args::Acquire;
use crate::command;
use crate::request::{Question, prepare};
use crate::signals::Signals;
use crate::{EXIT_ERROR, EXIT_NO, console, words};

/// How long the store may take for what is given back when a signal ends the wait.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(1);

const MEMORY_NOTE: &str = "\
note: a memory store lives in one process, so no other waits for this command; with a Redis store
      all processes take turns
";

pub(crate) async fn run(args: Acquire) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            console::explain(&format!("error: signals cannot be received: {error}\n"));
            return ExitCode::from(EXIT_ERROR);
        }
    };
    let Some(Question { limiter, attributes, is_alone }) = prepare(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    if is_alone {
        console::explain(MEMORY_NOTE);
    }
    let acquired = tokio::select! {
        acquired = limiter.acquire(&attributes, Cost::new(args.cost), args.wait) => acquired,
        signal = signals.next() => {
            give_back(&limiter).await;
            return ExitCode::from(signal.status());
        }
    };
    let acquisition = match acquired {
        Ok(acquisition) => acquisition,
        Err(error) => {
            console::explain(&format!("error: {error}\n"));
            return ExitCode::from(EXIT_ERROR);
        }
    };
    if !acquisition.is_granted() {
        console::explain(&refusal(&acquisition, args.wait));
        give_back(&limiter).await;
        return ExitCode::from(EXIT_NO);
    }
    let permit = acquisition.into_permit().map(Permit::renewing);
    let status = command::run(&args.command, &mut signals).await;
    if let Some(permit) = permit
        && let Err(error) = permit.release().await
    {
        console::explain(&format!(
            "warning: the slot is not released, it comes back when its lease ends: {error}\n"
        ));
    }
    ExitCode::from(status)
}

async fn give_back(limiter: &Limiter) {
    // What is not given back in time stays spent; a slot comes back when its lease ends.
    let _ = timeout(GIVE_BACK_TIMEOUT, limiter.given_back()).await;
}

fn refusal(acquisition: &Acquisition, wait: Duration) -> String {
    let verdict = acquisition.verdict();
    if !verdict.is_allowed() {
        return words::verdict(verdict);
    }
    let (wait, needed) = (words::seconds(wait), verdict.delay());
    let head = match needed.is_zero() {
        true => format!("refused: others came before it, and --wait is {wait}"),
        false => format!(
            "refused: it would have to wait {}, and --wait is {wait}",
            words::seconds(needed)
        ),
    };
    format!("{head}\n{}", words::rules(verdict))
}
