//! Verdicts and rules in words.

use std::fmt::Write;
use std::time::Duration;

use tollgate::{Algorithm, Quota, Rule, RuleDecision, Verdict};
use tollgate_core::CostRule;

/// Says whether a request may pass, and what each rule says.
pub(crate) fn verdict(verdict: &Verdict) -> String {
    let head = match verdict.rule() {
        None => "allowed: no enforced rule applies".to_owned(),
        Some(rule) if !verdict.is_allowed() => match verdict.retry_after() {
            Some(wait) => format!("denied by {}: retry after {}", rule.name(), seconds(wait)),
            None => format!("denied by {}: it blocks this request", rule.name()),
        },
        Some(_) if !verdict.delay().is_zero() => {
            format!("allowed: go on after {}", seconds(verdict.delay()))
        }
        Some(_) => "allowed".to_owned(),
    };
    format!("{head}\n{}", rules(verdict))
}

/// Says what each rule says, one a line.
pub(crate) fn rules(verdict: &Verdict) -> String {
    let width = verdict.rules().iter().map(|decided| decided.rule().name().len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for decided in verdict.rules() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:width$}  {}", decided.rule().name(), decision(decided));
    }
    text
}

/// Says that something was done, and what each rule then says.
pub(crate) fn done(what: &str, verdict: &Verdict) -> String {
    match verdict.rules().is_empty() {
        true => format!("{what}: no rule applies\n"),
        false => format!("{what}\n{}", rules(verdict)),
    }
}

fn decision(decided: &RuleDecision) -> String {
    let decision = decided.decision();
    let mut text = if decision.is_allow() { "allowed  " } else { "denied   " }.to_owned();
    let Some(quota) = decided.quota() else {
        text += "blocked";
        return text;
    };
    let taken = decision.limit().saturating_sub(decision.remaining());
    let whole = match quota.algorithm() {
        Algorithm::Concurrency { .. } => {
            text += &format!("{taken} of {} in flight", decision.limit());
            "all back in"
        }
        Algorithm::LeakyBucket => {
            text += &format!("{taken} of {} in the queue", decision.limit());
            "empty in"
        }
        _ => {
            text += &format!("{} of {} left", decision.remaining(), decision.limit());
            "full in"
        }
    };
    if !decision.delay().is_zero() {
        text += &format!(", go on after {}", seconds(decision.delay()));
    }
    if let Some(wait) = decided.retry_after() {
        text += &format!(", retry after {}", seconds(wait));
    }
    if !decision.reset_after().is_zero() {
        text += &format!(", {whole} {}", seconds(decision.reset_after()));
    }
    if decided.rule().is_shadow() {
        text += " (shadow: counts, never denies)";
    }
    match decided.mode() {
        tollgate::Mode::Exact | tollgate::Mode::Lease => {}
        mode => text += &format!(" (store failed, decided by policy {})", mode.as_str()),
    }
    text
}

/// Says what a rule limits, and for whom.
pub(crate) fn rule(rule: &Rule) -> String {
    let mut text = quota(rule.quota());
    text += &match rule.key() {
        [] => " for all together".to_owned(),
        key => format!(" for each {}", key.join(" and ")),
    };
    let matches: Vec<_> = rule
        .matcher()
        .iter()
        .map(|(attribute, patterns)| {
            let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_str()).collect();
            format!("{attribute} {}", patterns.join(" or "))
        })
        .collect();
    if !matches.is_empty() {
        text += &format!(", if {}", matches.join(" and "));
    }
    match rule.cost() {
        CostRule::One => {}
        CostRule::Constant(cost) => text += &format!(", {cost} units each"),
        CostRule::Attribute(name) => text += &format!(", as many units as {name} says"),
        _ => text += ", units by what matches",
    }
    match rule.exceptions().len() {
        0 => {}
        1 => text += ", with 1 exception",
        count => text += &format!(", with {count} exceptions"),
    }
    if rule.is_shadow() {
        text += " (shadow: counts, never denies)";
    }
    text
}

fn quota(quota: &Quota) -> String {
    let rate = quota.rate();
    match quota.algorithm() {
        Algorithm::FixedWindow => format!("{rate} in a fixed window"),
        Algorithm::SlidingWindow { .. } => format!("{rate} in a sliding window"),
        Algorithm::SlidingLog => format!("{rate} in a sliding log"),
        Algorithm::LeakyBucket => format!("{rate} evenly spaced, {} in the queue", quota.burst()),
        Algorithm::Concurrency { lease_ttl } => {
            format!("{} in flight, leased for {}", quota.burst(), seconds(lease_ttl))
        }
        _ => quota.to_string(),
    }
}

/// Writes seconds with as many decimals as there are, rounded up to a millisecond.
pub(crate) fn seconds(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    let (whole, part) = (millis / 1_000, millis % 1_000);
    let decimals = format!(".{part:03}");
    let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
    format!("{whole}{decimals} s")
}

#[cfg(test)]
mod tests {
    use tollgate::Cost;

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

    #[test]
    fn a_rule_of_each_algorithm_is_put_into_words() {
        let rate = "20/min".parse().unwrap();
        for (quota, words) in [
            (Quota::new(rate, 5).unwrap(), "20/min burst 5"),
            (Quota::fixed_window(rate).unwrap(), "20/min in a fixed window"),
            (
                Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT).unwrap(),
                "20/min in a sliding window",
            ),
            (Quota::sliding_log(rate).unwrap(), "20/min in a sliding log"),
            (Quota::leaky_bucket(rate, 5).unwrap(), "20/min evenly spaced, 5 in the queue"),
            (
                Quota::concurrency(5, Duration::from_secs(30)).unwrap(),
                "5 in flight, leased for 30 s",
            ),
        ] {
            let plain = Rule::new("all", quota);
            assert_eq!(rule(&plain), format!("{words} for all together"));
            let costly = plain.with_key(["ip"]).with_cost(CostRule::Constant(Cost::new(3)));
            assert_eq!(rule(&costly), format!("{words} for each ip, 3 units each"));
        }
    }
}
