//! `tollgate check`, `peek`, `refund` and `reset`: one question, one answer.

use std::process::ExitCode;

use tollgate::{CheckError, Cost, Verdict};
use tollgate_server::Answer;

use crate::args::{Check, Peek, Refund, Request, Reset};
use crate::request::{Question, prepare};
use crate::{EXIT_ERROR, EXIT_NO, console, words};

const MEMORY_NOTE: &str = "\
note: a memory store lives in one process, so this is the answer of buckets that nobody has used \
yet;
      with a Redis store it is that of the buckets which all processes share
";

pub(crate) async fn check(args: Check) -> ExitCode {
    let Some(Question { limiter, attributes, .. }) = question(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    let checked = limiter.check_n(&attributes, Cost::new(args.cost)).await;
    answered(checked, args.json, words::verdict)
}

pub(crate) async fn peek(args: Peek) -> ExitCode {
    let Some(Question { limiter, attributes, .. }) = question(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    let peeked = limiter.peek_n(&attributes, Cost::new(args.cost)).await;
    answered(peeked, args.json, words::verdict)
}

pub(crate) async fn refund(args: Refund) -> ExitCode {
    let Some(Question { limiter, attributes, .. }) = question(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    let cost = Cost::new(args.cost);
    let refunded = match args.id {
        Some(id) => limiter.refund_once(&attributes, cost, &id).await,
        None => limiter.refund(&attributes, cost).await,
    };
    answered(refunded, args.json, |verdict| words::done("refunded", verdict))
}

pub(crate) async fn reset(args: Reset) -> ExitCode {
    let Some(Question { limiter, attributes, .. }) = question(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    let reset = limiter.reset(&attributes).await;
    answered(reset, args.json, |verdict| words::done("reset", verdict))
}

async fn question(request: Request) -> Option<Question> {
    let question = prepare(request).await?;
    if question.is_alone {
        console::explain(MEMORY_NOTE);
    }
    Some(question)
}

fn answered(
    answered: Result<Verdict, CheckError>,
    json: bool,
    in_words: impl FnOnce(&Verdict) -> String,
) -> ExitCode {
    match answered {
        Ok(verdict) => {
            console::print(&if json { in_json(&verdict) } else { in_words(&verdict) });
            if verdict.is_allowed() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
        }
        Err(error) => {
            console::explain(&format!("error: {error}\n"));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn in_json(verdict: &Verdict) -> String {
    // Strings and numbers can always be written.
    let json = serde_json::to_string(&Answer::new(verdict)).unwrap_or_default();
    format!("{json}\n")
}
