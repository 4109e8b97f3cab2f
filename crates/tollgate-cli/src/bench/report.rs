//! What a load has shown.

use std::time::Duration;

use serde_json::json;

use super::load::Plan;
use super::seen::Seen;
use crate::signals::Received;

/// The figures of a load.
#[derive(Debug)]
pub(super) struct Report {
    plan: Plan,
    offered: f64,
    achieved: f64,
    elapsed: Duration,
    seen: Seen,
    interrupted: Option<Received>,
}

/// The percentiles that are told, by their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

impl Report {
    pub(super) fn new(
        plan: &Plan,
        seen: Seen,
        elapsed: Duration,
        interrupted: Option<Received>,
    ) -> Self {
        let answered = seen.allowed + seen.denied;
        let seconds = elapsed.max(Duration::from_millis(1)).as_secs_f64();
        Self {
            offered: plan.count() as f64 / plan.duration.as_secs_f64(),
            achieved: answered as f64 / seconds,
            plan: plan.clone(),
            elapsed,
            seen,
            interrupted,
        }
    }

    /// Returns the signal that ended the load early.
    pub(super) const fn interrupted(&self) -> Option<Received> {
        self.interrupted
    }

    /// Returns how many requests got no answer, those included that were due and never sent.
    pub(super) const fn errors(&self) -> u64 {
        self.seen.errors + self.seen.unsent
    }

    pub(super) fn url(&self) -> &str {
        &self.plan.url
    }

    /// Returns the latency in microseconds that a percentage of the requests kept, those included
    /// that failed, unless there was none.
    pub(super) fn latency_us(&self, percentage: f64) -> Option<u64> {
        let latencies = &self.seen.latencies_us;
        (!latencies.is_empty()).then(|| latencies.value_at_quantile(percentage / 100.0))
    }

    pub(super) fn table(&self) -> String {
        let mut table = String::new();
        let mut line = |name: &str, value: String| {
            table.push_str(&format!("{name:<10}{value:>14}\n"));
        };
        line("offered", format!("{:.1}/s", self.offered));
        line("achieved", format!("{:.1}/s", self.achieved));
        line("allowed", self.seen.allowed.to_string());
        line("denied", self.seen.denied.to_string());
        line("errors", self.errors().to_string());
        for (name, percentage) in PERCENTILES {
            let latency = self.latency_us(percentage);
            line(name, latency.map_or_else(|| "-".to_owned(), in_words));
        }
        if let Some(error) = &self.seen.first_error {
            table.push_str(&format!("\nthe first error: {error}\n"));
        }
        if self.seen.unsent > 0 {
            table.push_str(&format!(
                "\n{} were due and not sent: the load is more than {} connections can carry\n",
                self.seen.unsent, self.plan.connections
            ));
        }
        if self.seen.without_rule > 0 {
            table.push_str(&format!(
                "\nno rule applied to {} of the requests: {}\n",
                self.seen.without_rule,
                "compare the attributes and --domain with what the rules match"
            ));
        }
        if let Some(received) = self.interrupted {
            table.push_str(&format!(
                "\ninterrupted by {} after {:.1} s of {:.1} s\n",
                received.name(),
                self.elapsed.as_secs_f64(),
                self.plan.duration.as_secs_f64()
            ));
        }
        table
    }

    pub(super) fn json(&self) -> String {
        let latencies = PERCENTILES
            .map(|(name, percentage)| (name.to_owned(), self.latency_us(percentage).into()));
        let Plan { url, connections, keys, attribute, domain, prefix, .. } = &self.plan;
        let attributes = self.plan.attributes.iter().map(|(name, value)| format!("{name}={value}"));
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "url": url,
            "connections": connections,
            "duration_s": self.plan.duration.as_secs_f64(),
            "elapsed_s": self.elapsed.as_secs_f64(),
            "interrupted_by": self.interrupted.map(Received::name),
            "keys": keys,
            "attribute": attribute,
            "attributes": attributes.collect::<Vec<_>>(),
            "domain": domain,
            "prefix": prefix,
            "offered_per_second": self.offered,
            "achieved_per_second": self.achieved,
            "allowed": self.seen.allowed,
            "denied": self.seen.denied,
            "without_rule": self.seen.without_rule,
            "errors": self.errors(),
            "unsent": self.seen.unsent,
            "first_error": self.seen.first_error,
            "latency_us": serde_json::Map::from_iter(latencies),
        });
        format!("{report:#}\n")
    }
}

/// Writes a latency with three digits or so.
pub(super) fn in_words(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.2} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::options::Bench;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn where_nothing_ended_there_is_no_latency() {
        let line = Line::parse_from(["bench", "http://127.0.0.1:8080"]);
        let plan = Plan::new(&line.bench).unwrap();
        let seen = Seen::new().unwrap();
        let report = Report::new(&plan, seen, Duration::ZERO, Some(Received::Interrupt));
        let table = report.table();
        assert!(table.contains("\np50                    -\n"), "{table}");
        assert!(table.ends_with("\ninterrupted by SIGINT after 0.0 s of 10.0 s\n"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json["latency_us"]["max"], &json["domain"]), (&().into(), &"default".into()));
    }
}
