//! `limit` and `burst`.

use tollgate_core::{Quota, QuotaError, Rate};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

impl Decoder<'_> {
    pub(super) fn quota(&mut self, fields: &Fields<'_>) -> Option<Quota> {
        let example = self.format.assign_text("limit", "20/min");
        let limit = fields.required("limit", &example, self);
        let rate = limit.and_then(|node| self.rate(node, &example));
        let burst = fields.value("burst", self);
        let units = burst.and_then(|node| self.burst(node));
        let (limit, rate) = (limit?, rate?);
        let quota = match (fields.entry("burst"), units) {
            (None, _) => Quota::from_rate(rate),
            (Some(_), Some(units)) => Quota::new(rate, units),
            (Some(_), None) => return None,
        };
        match quota {
            Ok(quota) => Some(quota),
            Err(error) => {
                let mistake = quota_mistake(burst.unwrap_or(limit), &error);
                self.error(match burst {
                    Some(_) => mistake.also(limit.span.clone(), "with this limit"),
                    None => mistake,
                });
                None
            }
        }
    }

    fn rate(&mut self, node: &Node, example: &str) -> Option<Rate> {
        // The core repeats the whole text in its errors, which is right for text that was meant as a
        // rate.
        const LEN_MAX: usize = 60;
        let text = self.text(node, "`limit`", "text such as `20/min`")?;
        if text.len() > LEN_MAX {
            let message = format!("`limit` cannot be {}", quoted(text));
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
    fn burst(&mut self, node: &Node) -> Option<u64> {
        let units = self.whole(node, "burst", "20")?;
        let error = Rate::per_second(1).and_then(|rate| Quota::new(rate, units)).err();
        match error {
            Some(error) => {
                self.error(quota_mistake(node, &error));
                None
            }
            None => Some(units),
        }
    }
}

/// Puts an error of the core at its place. Its text ends with what to do, behind a colon.
fn quota_mistake(node: &Node, error: &QuotaError) -> Mistake {
    let text = error.to_string();
    let is_outside_quotes = |at: usize| text[..at].matches('"').count().is_multiple_of(2);
    match text.rfind(": ").filter(|at| is_outside_quotes(*at)) {
        Some(at) => Mistake::new(node.span.clone(), &text[..at]).help(&text[at + 2..]),
        None => Mistake::new(node.span.clone(), text),
    }
}
