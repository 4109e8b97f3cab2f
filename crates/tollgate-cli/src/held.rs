//! `tollgate reserve`, `commit`, `cancel`, `renew` and `release`: what is held under an id.

use std::process::ExitCode;

use serde::Serialize;
use tollgate::{Attributes, CheckError, Cost, Hold, Limiter, Reservation};
use tollgate_server::Answer;

use crate::args::{Asked, Cancel, Commit, Release, Renew, Reserve};
use crate::request::{Connected, Question, connect, prepare};
use crate::{EXIT_ERROR, EXIT_NO, console, words};

const RESERVE_NOTE: &str = "\
note: a memory store lives in one process, so this reservation ends with this command;
      with a Redis store all processes can settle it
";

const ALONE: &str = "\
error: a memory store lives in one process, so nothing is held in that of this command: name the
       configuration with the Redis store in which it is held, with --config FILE
";

/// What `/v1/reserve` answers.
#[derive(Serialize)]
struct Reserved<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    reservation_id: Option<String>,
}

/// The most bytes of the attributes, 8 for each included: the id of a reservation carries them.
const ATTRIBUTES_LEN_MAX: usize = 8 * 1024;

pub(crate) async fn reserve(args: Reserve) -> ExitCode {
    let Some(Question { limiter, attributes, is_alone }) = prepare(args.request).await else {
        return ExitCode::from(EXIT_ERROR);
    };
    if let Err(error) = fits(&attributes) {
        return failed(&error);
    }
    if is_alone {
        console::explain(RESERVE_NOTE);
    }
    match limiter.reserve(&attributes, Cost::new(args.cost), args.ttl).await {
        Ok(reservation) => reserved(reservation, args.json),
        Err(error) => failed(&error.to_string()),
    }
}

pub(crate) async fn commit(args: Commit) -> ExitCode {
    settle(&args.id, Cost::new(args.cost), "committed", args.asked).await
}

pub(crate) async fn cancel(args: Cancel) -> ExitCode {
    settle(&args.id, Cost::ZERO, "cancelled", args.asked).await
}

pub(crate) async fn renew(args: Renew) -> ExitCode {
    let Some(limiter) = shared(&args.asked).await else { return ExitCode::from(EXIT_ERROR) };
    let renewed = limiter.renew(&args.id).await;
    told(renewed, if args.asked.json { r#"{"renewed":true}"# } else { "renewed" })
}

pub(crate) async fn release(args: Release) -> ExitCode {
    let Some(limiter) = shared(&args.asked).await else { return ExitCode::from(EXIT_ERROR) };
    let released = limiter.release(&args.id).await;
    told(released, if args.asked.json { r#"{"released":true}"# } else { "released" })
}

async fn settle(hold: &Hold, cost: Cost, what: &str, asked: Asked) -> ExitCode {
    let Some(limiter) = shared(&asked).await else { return ExitCode::from(EXIT_ERROR) };
    match limiter.commit(hold, cost).await {
        Ok(verdict) if asked.json => told(Ok(()), &in_json(&Answer::new(&verdict))),
        Ok(verdict) => told(Ok(()), words::done(what, &verdict).trim_end()),
        Err(error) => told(Err(error), ""),
    }
}

/// Connects to a store that other processes share. What is wrong is printed.
async fn shared(asked: &Asked) -> Option<Limiter> {
    let Connected { limiter, is_alone } = connect(asked.config.as_deref()).await?;
    if is_alone {
        console::explain(ALONE);
        return None;
    }
    Some(limiter)
}

fn fits(attributes: &Attributes) -> Result<(), String> {
    let len: usize = attributes.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    if len <= ATTRIBUTES_LEN_MAX {
        return Ok(());
    }
    Err(format!(
        "the attributes take {len} bytes: a request that reserves may have {ATTRIBUTES_LEN_MAX}, so \
         leave out or shorten what no rule looks at"
    ))
}

fn reserved(reservation: Reservation, as_json: bool) -> ExitCode {
    let verdict = reservation.verdict().clone();
    let id = reservation.into_hold().as_ref().map(Hold::to_string);
    if !verdict.is_allowed() {
        match as_json {
            true => console::print(&format!("{}\n", in_json(&Answer::new(&verdict)))),
            false => console::explain(&words::verdict(&verdict)),
        }
        return ExitCode::from(EXIT_NO);
    }
    if as_json {
        let reserved = Reserved { answer: Answer::new(&verdict), reservation_id: id };
        console::print(&format!("{}\n", in_json(&reserved)));
        return ExitCode::SUCCESS;
    }
    console::explain(&words::verdict(&verdict));
    match id {
        Some(id) => console::print(&format!("{id}\n")),
        None => console::explain("note: there is nothing to settle, so there is no id\n"),
    }
    ExitCode::SUCCESS
}

fn in_json(answer: &impl Serialize) -> String {
    // Strings and numbers can always be written.
    serde_json::to_string(answer).unwrap_or_default()
}

fn told(done: Result<(), CheckError>, text: &str) -> ExitCode {
    match done {
        Ok(()) => {
            console::print(&format!("{text}\n"));
            ExitCode::SUCCESS
        }
        Err(error) if error.is_not_held() => {
            console::explain(&format!("{error}\n"));
            ExitCode::from(EXIT_NO)
        }
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(error: &str) -> ExitCode {
    console::explain(&format!("error: {error}\n"));
    ExitCode::from(EXIT_ERROR)
}
