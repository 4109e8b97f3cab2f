//! One entry of `rules`.

use std::ops::Range;

use tollgate_core::{Algorithm, DOMAIN_DEFAULT, Exception, Missing, Rule, key};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::decode::quota::{PlacedQuota, QuotaFields};
use crate::mistake::{Mistake, quoted};
use crate::tree::Node;

pub(super) const RULE: Shape = Shape {
    what: "a rule",
    fields: &[
        "name",
        "domain",
        "match",
        "key",
        "limit",
        "burst",
        "algorithm",
        "cells",
        "lease",
        "cost",
        "overrides",
        "unlimited",
        "blocked",
        "on_store_failure",
        "local_share",
        "missing",
        "shadow",
        "shadow_limit",
        "shadow_burst",
        "hot_keys",
    ],
    synonyms: &[
        ("id", "name"),
        ("namespace", "domain"),
        ("conditions", "match"),
        ("matches", "match"),
        ("path", "match"),
        ("paths", "match"),
        ("method", "match"),
        ("methods", "match"),
        ("keys", "key"),
        ("by", "key"),
        ("key_by", "key"),
        ("descriptors", "key"),
        ("variables", "key"),
        ("rate", "limit"),
        ("quota", "limit"),
        ("period", "limit"),
        ("window", "limit"),
        ("seconds", "limit"),
        ("max_value", "limit"),
        ("requests_per_unit", "limit"),
        ("capacity", "burst"),
        ("burst_size", "burst"),
        ("max_in_flight", "limit"),
        ("max_concurrency", "limit"),
        ("concurrency", "algorithm"),
        ("type", "algorithm"),
        ("ttl", "lease"),
        ("lease_ttl", "lease"),
        ("weight", "cost"),
        ("hits", "cost"),
        ("hits_addend", "cost"),
        ("exceptions", "overrides"),
        ("override", "overrides"),
        ("allowlist", "unlimited"),
        ("whitelist", "unlimited"),
        ("exempt", "unlimited"),
        ("skip", "unlimited"),
        ("denylist", "blocked"),
        ("blacklist", "blocked"),
        ("blocklist", "blocked"),
        ("block", "blocked"),
        ("failure_policy", "on_store_failure"),
        ("on_failure", "on_store_failure"),
        ("fail_open", "on_store_failure"),
        ("dry_run", "shadow"),
        ("shadow_mode", "shadow"),
    ],
};

/// The name under which the core counts the shadow limit of the rule `name`.
pub(super) fn shadow_name(name: &str) -> String {
    format!("{name}.shadow")
}

/// What no other rule may have.
pub(super) struct Identity {
    pub(super) domain: String,
    pub(super) name: String,
    /// Where the name stands.
    pub(super) span: Range<usize>,
    /// Where the shadow limit stands, which is counted under a name of its own.
    pub(super) shadow: Option<Range<usize>>,
}

impl Decoder<'_> {
    /// Decodes a rule. It has an identity as soon as its domain and name are valid.
    pub(super) fn rule(&mut self, node: &Node) -> (Option<Rule>, Option<Identity>) {
        let Some(fields) = Fields::of(node, &RULE, self) else {
            return (None, None);
        };
        let identity = self.identity(&fields);
        let rule = self.identified_rule(&fields, identity.as_ref());
        (rule, identity)
    }

    fn identity(&mut self, fields: &Fields<'_>) -> Option<Identity> {
        let name_example = self.format.assign_text("name", "login-per-ip");
        let node = fields.required("name", &name_example, self);
        let name = node.and_then(|node| self.name(node, "name", "a rule"));
        let domain = match fields.value("domain", self) {
            Some(node) => self.name(node, "domain", "a domain"),
            None => Some(DOMAIN_DEFAULT.to_owned()),
        };
        let shadow = fields.entry("shadow_limit").map(|entry| entry.value.span.clone());
        Some(Identity { domain: domain?, name: name?, span: node?.span.clone(), shadow })
    }

    fn identified_rule(
        &mut self,
        fields: &Fields<'_>,
        identity: Option<&Identity>,
    ) -> Option<Rule> {
        let matches = fields.value("match", self).and_then(|node| self.matches(node));
        let key = fields.value("key", self).and_then(|node| self.key(node));
        let algorithm = self.algorithm(fields);
        let quota = self.quota(fields, QuotaFields::ENFORCED, algorithm);
        let cost = fields.value("cost", self).and_then(|node| self.cost(node));
        let exceptions = self.exceptions(fields, algorithm);
        let policy = self.failure_policy(fields);
        let share = self.local_share(fields, policy);
        let missing = fields.value("missing", self).and_then(|node| {
            let word = self.word(node, "missing", &["skip", "share"], &[("ignore", "skip")])?;
            Some(if word == "share" { Missing::Share } else { Missing::Skip })
        });
        let shadow = fields.value("shadow", self).and_then(|node| self.boolean(node, "shadow"));
        let shadow_quota = self.shadow_quota(fields, identity, algorithm, shadow);

        for quotas in [quota.as_slice(), shadow_quota.as_slice(), &exceptions.quotas] {
            self.check_local_parts(fields, share, quotas);
        }

        let hot_keys = self.hot_keys(fields, quota.as_ref(), &exceptions.quotas);
        if let (Some(cost), Some(quota), false) = (&cost, &quota, exceptions.lacks_quota) {
            self.check_cost(cost, quota, &exceptions.quotas, hot_keys);
        }

        let identity = identity?;
        let mut rule = Rule::new(&identity.name, quota?.quota)
            .with_domain(&identity.domain)
            .with_key(key.unwrap_or_default())
            .with_cost(cost.map(|cost| cost.rule).unwrap_or_default())
            .with_missing(missing.unwrap_or_default())
            .with_shadow(shadow.unwrap_or_default())
            .with_failure_policy(policy.unwrap_or_default())
            .with_local_share(share.unwrap_or_default())
            .with_hot_keys(hot_keys);
        for (attribute, patterns) in matches.unwrap_or_default() {
            rule = rule.with_match(attribute, patterns);
        }
        for Exception { matcher, treatment } in exceptions.listed {
            rule = rule.with_exception(matcher, treatment);
        }
        Some(match shadow_quota {
            Some(shadow) => rule.with_shadow_quota(shadow.quota),
            None => rule,
        })
    }

    /// Reads the second limit, which is only watched.
    fn shadow_quota(
        &mut self,
        fields: &Fields<'_>,
        identity: Option<&Identity>,
        algorithm: Option<Algorithm>,
        shadow: Option<bool>,
    ) -> Option<PlacedQuota> {
        let Some(limit) = fields.entry("shadow_limit") else {
            if let Some(burst) = fields.entry("shadow_burst") {
                let example = self.format.assign_text("shadow_limit", "10/min");
                self.error(
                    Mistake::new(
                        burst.name_span.clone(),
                        "`shadow_burst` stands without `shadow_limit`",
                    )
                    .help(format!("add `{example}`, or remove it")),
                );
            }
            return None;
        };
        if shadow == Some(true) {
            let place = fields.entry("shadow").map_or(0..0, |entry| entry.name_span.clone());
            let shadow = self.format.assign("shadow", "true");
            let message = format!("`shadow_limit` has no meaning beside `{shadow}`");
            self.error(
                Mistake::new(limit.name_span.clone(), message)
                    .also(place, "the whole rule is in shadow")
                    .help(format!("remove it, or remove `{shadow}` to enforce `limit`")),
            );
        }
        let quota = self.quota(fields, QuotaFields::SHADOW, algorithm);
        if let Some(Identity { name, span, .. }) = identity
            && !key::is_name(&shadow_name(name))
        {
            let len_max = key::NAME_LEN_MAX - shadow_name("").len();
            let message = "the name is too long for a rule with a `shadow_limit`";
            self.error(
                Mistake::new(span.clone(), message)
                    .label(format!("`{}` is added to it", shadow_name("")))
                    .help(format!("use at most {len_max} characters")),
            );
            return None;
        }
        quota
    }

    /// Reads the name of `what`, a rule or a domain.
    fn name(&mut self, node: &Node, field: &str, what: &str) -> Option<String> {
        let text = self.text(node, &format!("`{field}`"), "text")?;
        self.is_name(text, &node.span, what).then(|| text.to_owned())
    }

    /// Reports what cannot be the name of `what`.
    pub(super) fn is_name(&mut self, text: &str, span: &Range<usize>, what: &str) -> bool {
        let is_name = key::is_name(text);
        if !is_name {
            let message = format!("{} cannot be the name of {what}", quoted(text));
            let help = format!(
                "use 1 to {} letters (a-z, A-Z), digits, `_`, `-` and `.`",
                key::NAME_LEN_MAX
            );
            self.error(Mistake::new(span.clone(), message).help(help));
        }
        is_name
    }
}
