//! One entry of `rules`.

use std::ops::Range;

use tollgate_core::{DOMAIN_DEFAULT, FailurePolicy, Fraction, LocalShare, Missing, Rule, key};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::{Mistake, quoted};
use crate::tree::{Node, Value};

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
        "on_store_failure",
        "local_share",
        "missing",
        "shadow",
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
        ("failure_policy", "on_store_failure"),
        ("on_failure", "on_store_failure"),
        ("fail_open", "on_store_failure"),
        ("dry_run", "shadow"),
        ("shadow_mode", "shadow"),
    ],
};

const ALGORITHMS: &[&str] = &[
    "token_bucket",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "leaky_bucket",
    "concurrency",
];

/// The domain and the name of a rule, and where the name stands.
pub(super) type Identity = (String, String, Range<usize>);

impl Decoder<'_> {
    /// Decodes a rule. It has an identity as soon as its domain and name are valid.
    pub(super) fn rule(&mut self, node: &Node) -> (Option<Rule>, Option<Identity>) {
        let Some(fields) = Fields::of(node, &RULE, self) else {
            return (None, None);
        };
        let name_example = self.format.assign_text("name", "login-per-ip");
        let name_node = fields.required("name", &name_example, self);
        let name = name_node.and_then(|node| self.name(node, "name", "a rule"));
        let domain = match fields.value("domain", self) {
            Some(node) => self.name(node, "domain", "a domain"),
            None => Some(DOMAIN_DEFAULT.to_owned()),
        };
        let identity = match (&domain, &name, name_node) {
            (Some(domain), Some(name), Some(node)) => {
                Some((domain.clone(), name.clone(), node.span.clone()))
            }
            _ => None,
        };

        let matches = fields.value("match", self).and_then(|node| self.matches(node));
        let key = fields.value("key", self).and_then(|node| self.key(node));
        let quota = self.quota(&fields);
        self.algorithm(&fields);
        self.hot_keys(&fields);
        let policy = self.failure_policy(&fields);
        let share = self.local_share(&fields, policy);
        let missing = fields.value("missing", self).and_then(|node| {
            let word = self.word(node, "missing", &["skip", "share"], &[("ignore", "skip")])?;
            Some(if word == "share" { Missing::Share } else { Missing::Skip })
        });
        let shadow = fields.value("shadow", self).and_then(|node| self.boolean(node, "shadow"));

        let (Some(name), Some(domain), Some(quota)) = (name, domain, quota) else {
            return (None, identity);
        };
        let mut rule = Rule::new(name, quota)
            .with_domain(domain)
            .with_key(key.unwrap_or_default())
            .with_missing(missing.unwrap_or_default())
            .with_shadow(shadow.unwrap_or_default())
            .with_failure_policy(policy.unwrap_or_default())
            .with_local_share(share.unwrap_or_default());
        for (attribute, patterns) in matches.unwrap_or_default() {
            rule = rule.with_match(attribute, patterns);
        }
        (Some(rule), identity)
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

    fn algorithm(&mut self, fields: &Fields<'_>) {
        let Some(node) = fields.value("algorithm", self) else {
            return;
        };
        let synonyms = &[("gcra", "token_bucket"), ("sliding", "sliding_window")];
        let name = self.word(node, "algorithm", ALGORITHMS, synonyms);
        if let Some(name) = name.filter(|name| *name != "token_bucket") {
            let message = format!("the algorithm `{name}` is not in this version");
            let help = "this version has `token_bucket` only: remove the line to use it";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
    }

    fn hot_keys(&mut self, fields: &Fields<'_>) {
        let Some(node) = fields.value("hot_keys", self) else {
            return;
        };
        let kind = match &node.value {
            Value::Mapping(entries) if entries.iter().any(|entry| entry.name == "shards") => {
                Some("shards")
            }
            _ => self.word(node, "hot_keys", &["exact", "lease", "shards"], &[("leases", "lease")]),
        };
        if let Some(kind) = kind.filter(|kind| *kind != "exact") {
            let message = format!("`{kind}` for hot keys is not in this version");
            let help = "this version has `exact` only: remove the line to use it";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
    }

    fn failure_policy(&mut self, fields: &Fields<'_>) -> Option<FailurePolicy> {
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

    fn local_share(
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
}
