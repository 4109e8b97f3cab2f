//! What a load has shown.

use std::time::Duration;

use serde_json::json;

use super::load::{Plan, Seen};

/// The figures of a load.
#[derive(Debug)]
pub(super) struct Report {
    url: String,
    offered: f64,
    achieved: f64,
    connections: u16,
    seen: Seen,
    unsent: u64,
}

/// The percentiles that are told, by their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

impl Report {
    pub(super) fn new(plan: &Plan, seen: Seen, elapsed: Duration) -> Self {
        let answered = seen.allowed + seen.denied;
        let unsent = plan.count().saturating_sub(answered + seen.errors);
        let seconds = elapsed.max(plan.duration).as_secs_f64();
        Self {
            url: plan.url.clone(),
            offered: plan.count() as f64 / plan.duration.as_secs_f64(),
            achieved: answered as f64 / seconds,
            connections: plan.connections,
            seen,
            unsent,
        }
    }

    /// Returns how many requests got no answer, those included that were due and never sent.
    pub(super) const fn errors(&self) -> u64 {
        self.seen.errors + self.unsent
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the latency in microseconds that a percentage of the answers kept.
    pub(super) fn latency_us(&self, percentage: f64) -> u64 {
        self.seen.latencies_us.value_at_quantile(percentage / 100.0)
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
            line(name, in_words(self.latency_us(percentage)));
        }
        if let Some(error) = &self.seen.first_error {
            table.push_str(&format!("\nthe first error: {error}\n"));
        }
        if self.unsent > 0 {
            table.push_str(&format!(
                "\n{} were due and not sent: the load is more than {} connections can carry\n",
                self.unsent, self.connections
            ));
        }
        table
    }

    pub(super) fn json(&self) -> String {
        let latencies = PERCENTILES
            .map(|(name, percentage)| (name.to_owned(), self.latency_us(percentage).into()));
        let report = json!({
            "url": self.url,
            "connections": self.connections,
            "offered_per_second": self.offered,
            "achieved_per_second": self.achieved,
            "allowed": self.seen.allowed,
            "denied": self.seen.denied,
            "errors": self.errors(),
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
