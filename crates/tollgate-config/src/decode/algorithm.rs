//! `algorithm`, and the fields that only one algorithm has.

use std::num::NonZeroU16;
use std::time::Duration;

use tollgate_core::{Algorithm, Quota};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::mistake::Mistake;
use crate::tree::Node;

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow { cells: Algorithm::CELLS_DEFAULT },
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
    Algorithm::Concurrency { lease_ttl: Algorithm::LEASE_TTL_DEFAULT },
];

impl Decoder<'_> {
    /// Reads how a rule counts. Gives `None` if the name of the algorithm is wrong.
    pub(super) fn algorithm(&mut self, fields: &Fields<'_>) -> Option<Algorithm> {
        let named = match fields.entry("algorithm") {
            Some(_) => self.named_algorithm(fields),
            None => Some(Algorithm::default()),
        };
        let algorithm = match named? {
            Algorithm::SlidingWindow { cells: default } => {
                let cells = fields.value("cells", self).and_then(|node| self.cells(node));
                Algorithm::SlidingWindow { cells: cells.unwrap_or(default) }
            }
            Algorithm::Concurrency { lease_ttl: default } => {
                let lease = fields.value("lease", self).and_then(|node| self.lease(node));
                Algorithm::Concurrency { lease_ttl: lease.unwrap_or(default) }
            }
            other => other,
        };
        for (field, owner) in [("cells", "sliding_window"), ("lease", "concurrency")] {
            if algorithm.as_str() != owner {
                let help = format!(
                    "remove it, or write `{}`",
                    self.format.assign_text("algorithm", owner)
                );
                self.refuse_field(fields, field, algorithm, &[owner], &help);
            }
        }
        Some(algorithm)
    }

    fn named_algorithm(&mut self, fields: &Fields<'_>) -> Option<Algorithm> {
        let node = fields.value("algorithm", self)?;
        let synonyms = &[
            ("gcra", "token_bucket"),
            ("sliding", "sliding_window"),
            ("sliding_window_log", "sliding_log"),
            ("sliding_window_counter", "sliding_window"),
            ("fixed", "fixed_window"),
            ("semaphore", "concurrency"),
            ("in_flight", "concurrency"),
            ("concurrent", "concurrency"),
        ];
        let words = ALGORITHMS.map(Algorithm::as_str);
        let word = self.word(node, "algorithm", &words, synonyms)?;
        ALGORITHMS.into_iter().find(|algorithm| algorithm.as_str() == word)
    }

    fn cells(&mut self, node: &Node) -> Option<NonZeroU16> {
        let given = self.whole(node, "cells", &Algorithm::CELLS_DEFAULT.to_string())?;
        let cells = u16::try_from(given).ok().filter(|cells| *cells <= Quota::CELLS_MAX);
        let cells = cells.and_then(NonZeroU16::new);
        if cells.is_none() {
            let message = format!("`cells` cannot be {given}");
            let help = format!("it must be 1 to {}", Quota::CELLS_MAX);
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        cells
    }

    fn lease(&mut self, node: &Node) -> Option<Duration> {
        self.duration(node, "lease", Duration::from_millis(1)..=Quota::LEASE_TTL_MAX, "30s")
    }

    /// Reports a field that has no meaning for the rule's algorithm.
    pub(super) fn refuse_field(
        &mut self,
        fields: &Fields<'_>,
        field: &str,
        algorithm: Algorithm,
        owners: &[&str],
        help: &str,
    ) {
        let Some(entry) = fields.entry(field) else {
            return;
        };
        let plural = if owners.len() == 1 { "" } else { "s" };
        let owners = owners.iter().map(|owner| format!("`{owner}`")).collect::<Vec<_>>();
        let owners = owners.join(" and ");
        let message = format!("`{field}` belongs to the algorithm{plural} {owners}");
        let label = format!("the algorithm is `{algorithm}`");
        self.error(Mistake::new(entry.name_span.clone(), message).label(label).help(help));
    }
}
