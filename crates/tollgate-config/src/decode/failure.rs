//! `on_store_failure` and `local_share`: the answer when the store gives none.

use tollgate_core::{FailurePolicy, Fraction, LocalShare};

use crate::decode::Decoder;
use crate::decode::fields::Fields;
use crate::decode::quota::PlacedQuota;
use crate::mistake::{Mistake, quoted};

impl Decoder<'_> {
    pub(super) fn failure_policy(&mut self, fields: &Fields<'_>) -> Option<FailurePolicy> {
        let node = fields.value("on_store_failure", self)?;
        let synonyms = &[
            ("allow", "open"),
            ("fail_open", "open"),
            ("deny", "closed"),
            ("fail_closed", "closed"),
            ("close", "closed"),
        ];
        let policies = [FailurePolicy::Local, FailurePolicy::Open, FailurePolicy::Closed];
        let words = policies.map(FailurePolicy::as_str);
        let word = self.word(node, "on_store_failure", &words, synonyms)?;
        policies.into_iter().find(|policy| policy.as_str() == word)
    }

    pub(super) fn local_share(
        &mut self,
        fields: &Fields<'_>,
        policy: Option<FailurePolicy>,
    ) -> Option<LocalShare> {
        let node = fields.value("local_share", self)?;
        if let Some(policy) = policy.filter(|policy| *policy != FailurePolicy::Local) {
            let message = "`local_share` has no effect";
            let label = format!("the rule is `{}` when the store fails", policy.as_str());
            self.warning(Mistake::new(node.span.clone(), message).label(label));
        }
        let text = self.text(node, "`local_share`", "`auto` or a number")?;
        if text == "auto" {
            return Some(LocalShare::Auto);
        }
        let fraction = Fraction::parse(text);
        if fraction.is_none() {
            let message = format!("`local_share` cannot be {}", quoted(text));
            let help = "write `auto`, or a number above 0 and at most 1 with up to 6 decimals, \
                        for example `0.8`";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        fraction.map(LocalShare::Fraction)
    }

    /// Reports quotas of a rule whose local part cannot be counted.
    pub(super) fn check_local_parts(
        &mut self,
        fields: &Fields<'_>,
        share: Option<LocalShare>,
        quotas: &[PlacedQuota],
    ) {
        let (Some(LocalShare::Fraction(fraction)), Some(entry)) =
            (share, fields.entry("local_share"))
        else {
            return;
        };
        for placed in quotas {
            if let Err(error) = fraction.of(&placed.quota) {
                let message = "the local share of the limit cannot be counted";
                self.error(
                    Mistake::new(entry.value.span.clone(), message)
                        .label(error.to_string())
                        .also(placed.span.clone(), "of this limit")
                        .help("give a larger share, or remove it"),
                );
            }
        }
    }
}
