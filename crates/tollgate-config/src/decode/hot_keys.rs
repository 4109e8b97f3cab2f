//! `hot_keys`: how a key with much traffic is served.

use std::num::NonZeroU8;

use tollgate_core::{HotKeys, LeaseTerms, Quota, ShardTerms};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::Mistake;
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

impl Decoder<'_> {
    /// Reads how the keys under `quotas` are served.
    pub(super) fn hot_keys(&mut self, fields: &Fields<'_>, quotas: &[Quota]) -> HotKeys {
        let Some(node) = fields.value("hot_keys", self) else {
            return HotKeys::Exact;
        };
        if matches!(node.value, Value::Mapping(_)) {
            return self.shards(node, quotas).map_or(HotKeys::Exact, HotKeys::Shards);
        }
        let words = ["exact", "lease", "shards"];
        match self.word(node, "hot_keys", &words, &[("leases", "lease"), ("shard", "shards")]) {
            Some("shards") => {
                let example = format!("{{ {} }}", self.format.assign("shards", "16"));
                let example = self.format.assign("hot_keys", &example);
                let message = "`shards` needs their number";
                self.error(
                    Mistake::new(node.span.clone(), message)
                        .help(format!("for example `{example}`")),
                );
                HotKeys::Exact
            }
            Some("lease") => {
                if let Some(quota) = quotas.iter().find(|one| LeaseTerms::of(one).is_none()) {
                    let message = format!(
                        "`lease` needs a token bucket with a burst of at least {}, not {} with {}",
                        LeaseTerms::BURST_MIN,
                        quota.algorithm(),
                        quota.burst()
                    );
                    let help = "raise the burst, or remove the line: `exact` is the default";
                    self.error(Mistake::new(node.span.clone(), message).help(help));
                }
                HotKeys::Lease
            }
            _ => HotKeys::Exact,
        }
    }

    fn shards(&mut self, node: &Node, quotas: &[Quota]) -> Option<NonZeroU8> {
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
        for quota in quotas {
            if let Err(error) = ShardTerms::of(quota, count) {
                let help = "change that, or remove `hot_keys`: `exact` is the default";
                self.error(Mistake::new(node.span.clone(), error.to_string()).help(help));
                break;
            }
        }
        Some(count)
    }
}
