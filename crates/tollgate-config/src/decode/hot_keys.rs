//! `hot_keys`: how a key with much traffic is served.

use std::num::NonZeroU8;

use tollgate_core::{Algorithm, HotKeys, LeaseTerms, Quota, ShardTerms};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::decode::quota::PlacedQuota;
use crate::mistake::{Mistake, listed};
use crate::tree::{Node, Value};

pub(super) const HOT_KEYS: Shape = Shape {
    what: "the mapping of `hot_keys`",
    fields: &["shards"],
    synonyms: &[
        ("shard", "shards"),
        ("n", "shards"),
        ("count", "shards"),
        ("parts", "shards"),
        ("buckets", "shards"),
    ],
};

/// What is said besides of a quota that cannot be served as `hot_keys` says.
const HELP: &str = "or remove `hot_keys`: `exact` is the default";

impl Decoder<'_> {
    /// Reads how the keys under a rule's own quota and those of its overrides are served.
    pub(super) fn hot_keys(
        &mut self,
        fields: &Fields<'_>,
        own: Option<&PlacedQuota>,
        overrides: &[PlacedQuota],
    ) -> HotKeys {
        let Some(node) = fields.value("hot_keys", self) else {
            return HotKeys::Exact;
        };
        if matches!(node.value, Value::Mapping(_)) {
            return self.shards(node, own, overrides).map_or(HotKeys::Exact, HotKeys::Shards);
        }
        if let Value::Scalar(scalar) = &node.value
            && matches!(scalar.text.as_str(), "shards" | "shard")
        {
            let example = format!("{{ {} }}", self.format.assign("shards", "16"));
            let example = self.format.assign("hot_keys", &example);
            let message = "`shards` needs their number";
            let help = format!("for example `{example}`");
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return HotKeys::Exact;
        }
        let words = ["exact", "lease"];
        let shards = format!("{{ {} }}", self.format.assign("shards", "n"));
        let choices = listed(&[words[0], words[1], &shards]);
        match self.word_of(node, "hot_keys", &words, &[("leases", "lease")], &choices) {
            Some("lease") => {
                self.check_lease(node, own, overrides);
                HotKeys::Lease
            }
            _ => HotKeys::Exact,
        }
    }

    /// Reports quotas that have no slices, and doubts those whose slices would end too soon.
    fn check_lease(&mut self, node: &Node, own: Option<&PlacedQuota>, overrides: &[PlacedQuota]) {
        let algorithm = own.into_iter().chain(overrides).map(|one| one.quota.algorithm()).next();
        if let Some(other) = algorithm.filter(|one| *one != Algorithm::TokenBucket) {
            let message = format!("`lease` needs the algorithm `token_bucket`, not `{other}`");
            let help = format!("use that, {HELP}");
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return;
        }
        for (placed, is_own) in each(own, overrides) {
            let quota = &placed.quota;
            let Some(terms) = LeaseTerms::of(quota) else {
                let (least, burst) = (LeaseTerms::BURST_MIN, quota.burst());
                let message = format!("`lease` needs a burst of at least {least}, not {burst}");
                let help = format!("raise the burst, {HELP}");
                self.error(at(node, placed, is_own, message).help(help));
                continue;
            };
            if terms.ttl() < LeaseTerms::TTL_MIN {
                let (less, burst) = (terms.quota().burst(), quota.burst());
                let message = format!(
                    "`lease` leases nothing of a burst of {burst} at {}: a slice would last for \
                     less than {} ms",
                    quota.rate(),
                    LeaseTerms::TTL_MIN.as_millis()
                );
                let help = format!("raise the burst to at least {}, {HELP}", burst_min(quota));
                let mistake = at(node, placed, is_own, message);
                self.warning(
                    mistake.label(format!("at most {less} at once all the same")).help(help),
                );
            }
        }
    }

    fn shards(
        &mut self,
        node: &Node,
        own: Option<&PlacedQuota>,
        overrides: &[PlacedQuota],
    ) -> Option<NonZeroU8> {
        let fields = Fields::of(node, &HOT_KEYS, self)?;
        let node = fields.required("shards", &self.format.assign("shards", "16"), self)?;
        let count = self.whole(node, "shards", "16")?;
        let most = ShardTerms::COUNT_MAX;
        let count = u8::try_from(count).ok().filter(|count| *count <= most);
        let Some(count) = count.and_then(NonZeroU8::new) else {
            let message = "`shards` is out of range";
            let help = format!("give 1 to {most}");
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        };
        for (placed, is_own) in each(own, overrides) {
            if let Err(error) = ShardTerms::of(&placed.quota, count) {
                let help = format!("change that, {HELP}");
                self.error(at(node, placed, is_own, error.to_string()).help(help));
                // What is wrong with the rule's own is wrong with most of the others.
                if is_own {
                    break;
                }
            }
        }
        Some(count)
    }
}

/// All quotas of a rule, each with whether it is the rule's own.
fn each<'q>(
    own: Option<&'q PlacedQuota>,
    overrides: &'q [PlacedQuota],
) -> impl Iterator<Item = (&'q PlacedQuota, bool)> {
    own.map(|own| (own, true)).into_iter().chain(overrides.iter().map(|one| (one, false)))
}

/// A mistake between `hot_keys` and a quota: an override is marked itself, since it may stand far
/// from both.
fn at(node: &Node, placed: &PlacedQuota, is_own: bool, message: String) -> Mistake {
    if is_own {
        return Mistake::new(node.span.clone(), message);
    }
    Mistake::new(placed.span.clone(), message).also(node.span.clone(), "it is served like this")
}

/// The smallest burst of which slices would be leased at the rate of `quota`.
fn burst_min(quota: &Quota) -> u128 {
    let rate = quota.rate();
    let units = u128::from(rate.units()) * LeaseTerms::TTL_MIN.as_micros();
    units.div_ceil(rate.period().as_micros()) * u128::from(LeaseTerms::BURST_MIN)
}
