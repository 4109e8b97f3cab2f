//! `tollgate check`.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use tollgate::{Attributes, Cost, RuleDecision, Verdict};
use tollgate_config::StoreConfig;
use tollgate_server::Answer;

use crate::args::Check;
use crate::{EXIT_ERROR, EXIT_NO, configuration, console};

const MEMORY_NOTE: &str = "\
note: a memory store lives in one process, so this is the answer of buckets that nobody has used \
yet;
      with a Redis store it is that of the buckets which all processes share
";

pub(crate) async fn run(args: Check) -> ExitCode {
    let Some(config) = configuration::read(args.config.as_deref()) else {
        return ExitCode::from(EXIT_ERROR);
    };
    let mut attributes = Attributes::new().with_domain(args.domain);
    for (name, value) in args.attributes {
        if attributes.value(&name).is_some() {
            console::explain(&format!("error: attribute {name} is given twice: give it once\n"));
            return ExitCode::from(EXIT_ERROR);
        }
        attributes.insert(name, value);
    }
    let limiter = match tollgate_server::connect(&config).await {
        Ok(limiter) => limiter,
        Err(error) => {
            console::explain(&format!("error: {error}\n"));
            return ExitCode::from(EXIT_ERROR);
        }
    };
    if matches!(config.store, StoreConfig::Memory { .. }) {
        console::explain(MEMORY_NOTE);
    }
    match limiter.check_n(&attributes, Cost::new(args.cost)).await {
        Ok(verdict) => {
            console::print(&if args.json { in_json(&verdict) } else { in_words(&verdict) });
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

fn in_words(verdict: &Verdict) -> String {
    let mut text = match (verdict.rule(), verdict.retry_after()) {
        (None, _) => "allowed: no enforced rule applies\n".to_owned(),
        (Some(rule), Some(wait)) => {
            format!("denied by {}: retry after {}\n", rule.name(), seconds(wait))
        }
        (Some(_), None) => "allowed\n".to_owned(),
    };
    let width = verdict.rules().iter().map(|decided| decided.rule().name().len()).max();
    for decided in verdict.rules() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {:width$}  {}",
            decided.rule().name(),
            rule_in_words(decided),
            width = width.unwrap_or(0)
        );
    }
    text
}

fn rule_in_words(decided: &RuleDecision) -> String {
    let decision = decided.decision();
    let mut text = format!(
        "{}  {} of {} left",
        if decision.is_allow() { "allowed" } else { "denied " },
        decision.remaining(),
        decision.limit(),
    );
    if let Some(wait) = decided.retry_after() {
        text += &format!(", retry after {}", seconds(wait));
    }
    match decision.reset_after() {
        Duration::ZERO => {}
        reset_after => text += &format!(", full in {}", seconds(reset_after)),
    }
    if decided.rule().is_shadow() {
        text += " (shadow: counts, never denies)";
    }
    match decided.mode() {
        tollgate::Mode::Exact => {}
        mode => text += &format!(" (store failed, decided by policy {})", mode.as_str()),
    }
    text
}

/// Writes seconds with as many decimals as there are, rounded up to a millisecond.
fn seconds(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    let (whole, part) = (millis / 1_000, millis % 1_000);
    let decimals = format!(".{part:03}");
    let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
    format!("{whole}{decimals} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_to_a_millisecond() {
        for (micros, text) in [
            (0, "0 s"),
            (1, "0.001 s"),
            (150_000, "0.15 s"),
            (999_001, "1 s"),
            (3_000_000, "3 s"),
            (2_996_001, "2.997 s"),
            (60_000_000, "60 s"),
        ] {
            assert_eq!(seconds(Duration::from_micros(micros)), text);
        }
    }
}
