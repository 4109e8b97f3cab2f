//! What a request costs under a rule.

use std::fmt;

use crate::attributes::Attributes;
use crate::cost::Cost;
use crate::matcher::Matcher;

/// What one request costs under a rule, in units.
///
/// The cost that a caller gives with a request is multiplied by it: a check of cost 2 under a rule
/// that costs 10 spends 20 units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostRule {
    /// One unit.
    #[default]
    One,
    /// Always as many units.
    Constant(Cost),
    /// The value of an attribute, a whole number; one unit if the request does not have it.
    Attribute(String),
    /// The cost of the first condition that holds; one unit if none does.
    PerMatch(Vec<(Matcher, Cost)>),
}

impl CostRule {
    /// Returns what a request of the caller's `cost` spends.
    ///
    /// # Errors
    ///
    /// [`CostError`] if the attribute that tells the cost is not a whole number of 64 bits.
    #[inline]
    pub fn cost(&self, attributes: &Attributes, cost: Cost) -> Result<Cost, CostError> {
        match self {
            Self::One => Ok(cost),
            _ => self.cost_of_rule(attributes, cost),
        }
    }

    fn cost_of_rule(&self, attributes: &Attributes, cost: Cost) -> Result<Cost, CostError> {
        let units = match self {
            Self::One => 1,
            Self::Constant(constant) => constant.units(),
            Self::Attribute(name) => match attributes.value(name) {
                Some(value) => whole(value).ok_or_else(|| CostError {
                    attribute: name.clone(),
                    value: value.chars().take(64).collect(),
                })?,
                None => 1,
            },
            Self::PerMatch(costs) => costs
                .iter()
                .find(|(matcher, _)| matcher.matches(attributes))
                .map_or(1, |(_, cost)| cost.units()),
        };
        Ok(Cost::new(cost.units().saturating_mul(units)))
    }
}

fn whole(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// An attribute that should tell a cost and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostError {
    attribute: String,
    value: String,
}

impl CostError {
    /// Returns the name of the attribute.
    pub fn attribute(&self) -> &str {
        &self.attribute
    }
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "attribute {:?} tells the cost and must be a whole number, not {:?}",
            self.attribute, self.value
        )
    }
}

impl std::error::Error for CostError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_cost_is_multiplied_by_the_rules() {
        let attributes = Attributes::from([("bytes", "512"), ("path", "/export")]);
        let cost = |rule: CostRule, cost| rule.cost(&attributes, Cost::new(cost)).unwrap().units();
        assert_eq!(cost(CostRule::One, 3), 3);
        assert_eq!(cost(CostRule::Constant(Cost::new(10)), 2), 20);
        assert_eq!(cost(CostRule::Attribute("bytes".into()), 1), 512);
        assert_eq!(cost(CostRule::Attribute("absent".into()), 1), 1);
        let per_match = CostRule::PerMatch(vec![
            (Matcher::new().with("path", ["/query"]), Cost::new(2)),
            (Matcher::new().with("path", ["/export"]), Cost::new(10)),
        ]);
        assert_eq!(cost(per_match.clone(), 1), 10);
        assert_eq!(cost(per_match, 0), 0);
        assert_eq!(cost(CostRule::Constant(Cost::new(u64::MAX)), 2), u64::MAX);
    }

    #[test]
    fn a_cost_that_is_not_a_whole_number_is_refused() {
        for value in ["1.5", "-1", "", "+2", "1e3", "18446744073709551616", "ten"] {
            let attributes = Attributes::new().with("bytes", value);
            let rule = CostRule::Attribute("bytes".into());
            let error = rule.cost(&attributes, Cost::ONE).map(Cost::units);
            assert_eq!(
                error.unwrap_err().to_string(),
                format!(
                    "attribute \"bytes\" tells the cost and must be a whole number, not {value:?}"
                )
            );
        }
    }
}
