//! `limit` and `burst`, of a rule, of its shadow and of its overrides.

use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Quota, QuotaError, Rate};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::mistake::{Mistake, quoted};
use crate::tree::{Node, Value};

/// Which fields make a quota.
#[derive(Clone, Copy)]
pub(super) struct QuotaFields {
    pub(super) limit: &'static str,
    pub(super) burst: &'static str,
}

/// A quota, and where its limit stands.
pub(super) struct PlacedQuota {
    pub(super) quota: Quota,
    pub(super) span: Range<usize>,
}

impl QuotaFields {
    pub(super) const ENFORCED: Self = Self { limit: "limit", burst: "burst" };
    pub(super) const SHADOW: Self = Self { limit: "shadow_limit", burst: "shadow_burst" };
}

impl Decoder<'_> {
    /// Reads a quota that is counted by `algorithm`, or by one that is not known.
    pub(super) fn quota(
        &mut self,
        fields: &Fields<'_>,
        names: QuotaFields,
        algorithm: Option<Algorithm>,
    ) -> Option<PlacedQuota> {
        let limit = fields.required(names.limit, &self.limit_example(names, algorithm), self);
        let (limit, quota) = match algorithm {
            Some(Algorithm::Concurrency { lease_ttl }) => {
                let slots = limit.and_then(|node| self.slots(node, names));
                self.refuse_burst(fields, names, Algorithm::Concurrency { lease_ttl });
                (limit?, Quota::concurrency(slots?, lease_ttl))
            }
            Some(Algorithm::TokenBucket | Algorithm::LeakyBucket) | None => {
                let rate = limit.and_then(|node| self.rate(node, names, algorithm));
                let burst = fields.value(names.burst, self);
                let units = burst.and_then(|node| self.burst(node, names));
                let has_burst = fields.entry(names.burst).is_some();
                let (limit, rate) = (limit?, rate?);
                let quota = match (units, algorithm?) {
                    (None, _) if has_burst => return None,
                    (None, Algorithm::LeakyBucket) => Quota::from_rate(rate)
                        .and_then(|quota| Quota::leaky_bucket(rate, quota.burst().into())),
                    (None, _) => Quota::from_rate(rate),
                    (Some(units), Algorithm::LeakyBucket) => Quota::leaky_bucket(rate, units),
                    (Some(units), _) => Quota::new(rate, units),
                };
                (limit, quota)
            }
            Some(algorithm) => {
                let rate = limit.and_then(|node| self.rate(node, names, Some(algorithm)));
                self.refuse_burst(fields, names, algorithm);
                (limit?, windowed(rate?, algorithm))
            }
        };
        match quota {
            Ok(quota) => Some(PlacedQuota { quota, span: limit.span.clone() }),
            Err(error) => {
                self.refused_quota(fields, names, limit, algorithm, &error);
                None
            }
        }
    }

    fn limit_example(&self, names: QuotaFields, algorithm: Option<Algorithm>) -> String {
        match algorithm {
            Some(Algorithm::Concurrency { .. }) => self.format.assign(names.limit, "50"),
            _ => self.format.assign_text(names.limit, "20/min"),
        }
    }

    /// Reports what the core says of a limit and a burst that are each valid.
    fn refused_quota(
        &mut self,
        fields: &Fields<'_>,
        names: QuotaFields,
        limit: &Node,
        algorithm: Option<Algorithm>,
        error: &QuotaError,
    ) {
        let part = if error.is_cells() { "cells" } else { names.burst };
        let mut mistake = match fields.entry(part) {
            Some(entry) => {
                quota_mistake(&entry.value, error).also(limit.span.clone(), "with this limit")
            }
            None => quota_mistake(limit, error),
        };
        mistake.help.get_or_insert_with(|| match algorithm {
            Some(Algorithm::SlidingLog) => format!(
                "give at most {} units, or use the algorithm `sliding_window`",
                Quota::LOG_UNITS_MAX
            ),
            _ => format!("give at most {} units", Quota::BURST_MAX),
        });
        self.error(mistake);
    }

    fn refuse_burst(&mut self, fields: &Fields<'_>, names: QuotaFields, algorithm: Algorithm) {
        let help = match algorithm {
            Algorithm::Concurrency { .. } => {
                format!("remove it: `{}` is the most that can be in flight", names.limit)
            }
            _ => format!("remove it: all units of `{}` can pass at once", names.limit),
        };
        let owners = [Algorithm::TokenBucket, Algorithm::LeakyBucket].map(Algorithm::as_str);
        self.refuse_field(fields, names.burst, algorithm, &owners, &help);
    }

    fn rate(
        &mut self,
        node: &Node,
        names: QuotaFields,
        algorithm: Option<Algorithm>,
    ) -> Option<Rate> {
        // The core repeats the whole text in its errors, which is right for text that was meant as a
        // rate.
        const LEN_MAX: usize = 60;
        let text = self.text(node, &format!("`{}`", names.limit), "text such as `20/min`")?;
        // Under a misspelt `concurrency` a plain number is as right as a rate is under the others.
        if algorithm.is_none() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let example = self.limit_example(names, algorithm);
        if text.len() > LEN_MAX {
            let message = format!("`{}` cannot be {}", names.limit, quoted(text));
            let help = format!("for example `{example}`");
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        }
        match text.parse() {
            Ok(rate) => Some(rate),
            Err(error) => {
                let mut mistake = quota_mistake(node, &error);
                mistake.help.get_or_insert_with(|| format!("for example `{example}`"));
                self.error(mistake);
                None
            }
        }
    }

    /// Reads a burst that some rate can have.
    fn burst(&mut self, node: &Node, names: QuotaFields) -> Option<u64> {
        let units = self.whole(node, names.burst, "20")?;
        let error = Rate::per_second(1).and_then(|rate| Quota::new(rate, units)).err();
        match error {
            Some(error) => {
                self.error(quota_mistake(node, &error));
                None
            }
            None => Some(units),
        }
    }

    /// Reads how many may be in flight.
    fn slots(&mut self, node: &Node, names: QuotaFields) -> Option<u64> {
        if let Value::Scalar(scalar) = &node.value
            && let Some((units, _)) = scalar.text.split_once('/')
        {
            let message = format!("`{}` cannot be {}", names.limit, quoted(&scalar.text));
            let slots = units.trim().parse().ok();
            let slots = slots.filter(|slots| is_slots(*slots)).unwrap_or(50);
            let example = self.format.assign(names.limit, &slots.to_string());
            self.error(
                Mistake::new(node.span.clone(), message)
                    .label("`concurrency` has no rate")
                    .help(format!("write how many may be in flight at once: `{example}`")),
            );
            return None;
        }
        self.whole(node, names.limit, "50")
    }
}

fn is_slots(slots: u64) -> bool {
    Quota::concurrency(slots, Duration::from_secs(1)).is_ok()
}

/// Makes the quota of an algorithm that counts in windows.
fn windowed(rate: Rate, algorithm: Algorithm) -> Result<Quota, QuotaError> {
    match algorithm {
        Algorithm::SlidingWindow { cells } => Quota::sliding_window(rate, cells),
        Algorithm::SlidingLog => Quota::sliding_log(rate),
        _ => Quota::fixed_window(rate),
    }
}

/// Puts an error of the core at its place. Its text ends with what to do, behind a colon.
pub(super) fn quota_mistake(node: &Node, error: &QuotaError) -> Mistake {
    let text = error.to_string();
    let is_outside_quotes = |at: usize| text[..at].matches('"').count().is_multiple_of(2);
    match text.rfind(": ").filter(|at| is_outside_quotes(*at)) {
        Some(at) => Mistake::new(node.span.clone(), &text[..at]).help(&text[at + 2..]),
        None => Mistake::new(node.span.clone(), text),
    }
}
