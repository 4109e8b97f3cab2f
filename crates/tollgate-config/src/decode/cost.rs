//! `cost`: what a request costs under a rule.

use std::collections::HashMap;
use std::ops::Range;

use tollgate_core::{Cost, CostRule, HotKeys, LeaseTerms};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::decode::matching::{Conditions, matcher};
use crate::decode::quota::PlacedQuota;
use crate::mistake::{Mistake, quoted};
use crate::tree::{Node, Value};

pub(super) const COST: Shape = Shape {
    what: "an entry of `cost`",
    fields: &["match", "cost"],
    synonyms: &[
        ("conditions", "match"),
        ("matches", "match"),
        ("path", "match"),
        ("method", "match"),
        ("units", "cost"),
        ("weight", "cost"),
        ("value", "cost"),
    ],
};

pub(super) const COST_ATTRIBUTE: Shape = Shape {
    what: "the mapping of `cost`",
    fields: &["attribute"],
    synonyms: &[("name", "attribute"), ("from", "attribute"), ("by", "attribute")],
};

/// A cost, and where its numbers stand.
pub(super) struct PlacedCost {
    pub(super) rule: CostRule,
    units: Vec<(u64, Range<usize>)>,
}

impl Decoder<'_> {
    pub(super) fn cost(&mut self, node: &Node) -> Option<PlacedCost> {
        match &node.value {
            Value::Sequence(items) if items.is_empty() => {
                self.error(
                    Mistake::new(node.span.clone(), "`cost` is empty")
                        .help("remove it, so that a request costs 1"),
                );
                None
            }
            Value::Sequence(items) => self.cost_per_match(items),
            Value::Mapping(entries)
                if entries.iter().any(|entry| COST.fields.contains(&entry.name.as_str()))
                    && !entries.iter().any(|entry| entry.name == "attribute") =>
            {
                self.cost_per_match(std::slice::from_ref(node))
            }
            Value::Mapping(_) => {
                let fields = Fields::of(node, &COST_ATTRIBUTE, self)?;
                let example = self.format.assign_text("attribute", "bytes");
                let attribute = fields.required("attribute", &example, self)?;
                let name = self.text(attribute, "`attribute`", "the name of an attribute")?;
                self.is_name(name, &attribute.span, "an attribute").then(|| PlacedCost {
                    rule: CostRule::Attribute(name.to_owned()),
                    units: Vec::new(),
                })
            }
            Value::Scalar(scalar) if scalar.text.starts_with(|c: char| c.is_alphabetic()) => {
                let attribute = self.format.mapping("attribute", "bytes");
                let attribute = self.format.assign("cost", &attribute);
                let message =
                    format!("`cost` must be a whole number, not {}", quoted(&scalar.text));
                self.error(Mistake::new(node.span.clone(), message).help(format!(
                    "for example `{}`; the value of an attribute is written as `{attribute}`",
                    self.format.assign("cost", "10")
                )));
                None
            }
            _ => {
                let units = self.units(node)?;
                let rule = CostRule::Constant(Cost::new(units));
                Some(PlacedCost { rule, units: vec![(units, node.span.clone())] })
            }
        }
    }

    fn cost_per_match(&mut self, items: &[Node]) -> Option<PlacedCost> {
        let mut costs = Vec::new();
        let mut units = Vec::new();
        let mut seen = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let is_last = index + 1 == items.len();
            if let Some((conditions, cost, span)) = self.matched_cost(item, is_last) {
                let help = "remove one of the two; the first that holds counts";
                self.doubt_repetition(&mut seen, &conditions, &item.span, "this cost", help);
                costs.push((matcher(conditions), Cost::new(cost)));
                units.push((cost, span));
            }
        }
        (costs.len() == items.len())
            .then_some(PlacedCost { rule: CostRule::PerMatch(costs), units })
    }

    fn matched_cost(
        &mut self,
        item: &Node,
        is_last: bool,
    ) -> Option<(Conditions, u64, Range<usize>)> {
        let fields = Fields::of(item, &COST, self)?;
        let example = self.format.mapping("path", "/export/*");
        let example = self.format.assign("match", &example);
        // An entry without conditions is for all other requests, so nothing can follow it.
        let conditions = if fields.entry("match").is_some() {
            let node = fields.required("match", &example, self);
            node.and_then(|node| self.narrow_conditions(node, "`match`", &example))
        } else if is_last {
            Some(Vec::new())
        } else {
            let message = "only the last entry of `cost` can be without `match`";
            self.error(
                Mistake::new(item.span.clone(), message)
                    .label("it would hold for every request")
                    .help(format!("add `{example}`, or move the entry to the end")),
            );
            None
        };
        let cost = fields.required("cost", &self.format.assign("cost", "10"), self)?;
        let units = self.units(cost)?;
        Some((conditions?, units, cost.span.clone()))
    }

    fn units(&mut self, node: &Node) -> Option<u64> {
        let units = self.whole(node, "cost", "10")?;
        if units == 0 {
            self.error(
                Mistake::new(node.span.clone(), "`cost` cannot be 0")
                    .help("give at least 1; requests that are free belong in `unlimited`"),
            );
            return None;
        }
        Some(units)
    }

    /// Reports costs above the rule's own limit and all of its overrides, and doubts a cost above
    /// some of them.
    pub(super) fn check_cost(
        &mut self,
        cost: &PlacedCost,
        own: &PlacedQuota,
        overrides: &[PlacedQuota],
        hot_keys: HotKeys,
    ) {
        let quotas = || std::iter::once(own).chain(overrides);
        // What a bucket can hold as it is kept in a store that nodes share.
        let burst = |placed: &PlacedQuota| {
            let whole = u64::from(placed.quota.burst());
            match hot_keys {
                HotKeys::Shards(count) => whole.div_ceil(count.get().into()),
                HotKeys::Lease => LeaseTerms::of(&placed.quota)
                    .map_or(whole, |terms| terms.quota().burst().into()),
                _ => whole,
            }
        };
        let as_kept = match hot_keys {
            HotKeys::Shards(count) if count.get() > 1 => " in a shard",
            HotKeys::Lease => " with `lease`",
            _ => "",
        };
        let most = quotas().map(burst).max().unwrap_or_default();
        for (units, span) in &cost.units {
            let above = |limits: &str, limit: &PlacedQuota| {
                let message = format!("cost {units} is above {limits} of the rule");
                Mistake::new(span.clone(), message)
                    .label("requests of this cost are refused")
                    .also(limit.span.clone(), format!("at most {} at once{as_kept}", burst(limit)))
            };
            if *units > most {
                let help = format!("give at most {most}, or allow more at once");
                self.error(above("every limit", own).help(help));
            } else if matches!(cost.rule, CostRule::Constant(_)) {
                for limit in quotas().filter(|limit| burst(limit) < *units) {
                    let help = "allow more at once, or use `blocked` if that is meant";
                    self.warning(above("one of the limits", limit).help(help));
                }
            }
        }
    }
}
