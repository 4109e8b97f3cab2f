//! `blocked`, `unlimited` and `overrides`: the requests that a rule treats in another way.

use std::collections::HashMap;
use std::ops::Range;

use tollgate_core::{Algorithm, Exception, Treatment};

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::decode::matching::{Conditions, matcher};
use crate::decode::quota::{PlacedQuota, QuotaFields};
use crate::mistake::{Mistake, listed};
use crate::tree::{Entry, Node, Value};

pub(super) const OVERRIDE: Shape = Shape {
    what: "an override",
    fields: &["match", "limit", "burst", "unlimited", "blocked"],
    synonyms: &[
        ("conditions", "match"),
        ("matches", "match"),
        ("rate", "limit"),
        ("quota", "limit"),
        ("capacity", "burst"),
        ("allow", "unlimited"),
        ("exempt", "unlimited"),
        ("block", "blocked"),
        ("deny", "blocked"),
    ],
};

/// The fields of an override of which it has one.
const TREATMENTS: [&str; 3] = ["limit", "unlimited", "blocked"];

/// The exceptions of a rule in the order in which they are tried, and the quotas among them.
#[derive(Default)]
pub(super) struct Exceptions {
    pub(super) listed: Vec<Exception>,
    pub(super) quotas: Vec<PlacedQuota>,
    /// Whether a quota is missing among them, which has been reported.
    pub(super) lacks_quota: bool,
    seen: HashMap<Conditions, Range<usize>>,
}

impl Decoder<'_> {
    /// Reads the exceptions of the rule whose fields are `rule`.
    pub(super) fn exceptions(
        &mut self,
        rule: &Fields<'_>,
        algorithm: Option<Algorithm>,
    ) -> Exceptions {
        let mut exceptions = Exceptions::default();
        for (field, treatment, attribute, value) in [
            ("blocked", Treatment::Blocked, "ip", "192.0.2.1"),
            ("unlimited", Treatment::Unlimited, "account", "internal"),
        ] {
            let Some(node) = rule.value(field, self) else {
                continue;
            };
            let example = format!("[{}]", self.format.mapping(attribute, value));
            let example = self.format.assign(field, &example);
            for item in self.list(node) {
                if let Some(conditions) = self.short_exception(item, field, &example) {
                    self.add(&mut exceptions, conditions, treatment, &item.span);
                }
            }
        }
        if let Some(node) = rule.value("overrides", self) {
            for item in self.list(node) {
                self.add_override(&mut exceptions, item, algorithm);
            }
        }
        exceptions
    }

    /// Reads an entry of `blocked` or `unlimited`.
    fn short_exception(&mut self, item: &Node, field: &str, example: &str) -> Option<Conditions> {
        if let Value::Mapping(entries) = &item.value
            && let Some(entry) = entries.iter().find(|entry| {
                entry.name == "match" && matches!(entry.value.value, Value::Mapping(_))
            })
        {
            let message = format!("an entry of `{field}` has its attributes without `match`");
            let help = format!("for example `{example}`");
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
            return None;
        }
        self.narrow_conditions(item, &format!("an entry of `{field}`"), example)
    }

    fn add_override(
        &mut self,
        exceptions: &mut Exceptions,
        item: &Node,
        algorithm: Option<Algorithm>,
    ) {
        let Some(fields) = Fields::of(item, &OVERRIDE, self) else {
            return;
        };
        let example = self.format.assign("match", &self.format.mapping("account", "acme"));
        let node = fields.required("match", &example, self);
        let conditions = node.and_then(|node| self.narrow_conditions(node, "`match`", &example));
        let treatment = match self.treatment_field(&fields, item) {
            Some("limit") => {
                let placed = self.quota(&fields, QuotaFields::ENFORCED, algorithm);
                let quota = placed.as_ref().map(|placed| Treatment::Quota(placed.quota));
                exceptions.lacks_quota |= placed.is_none();
                exceptions.quotas.extend(placed);
                quota
            }
            Some("unlimited") => self.flag(&fields, "unlimited").then_some(Treatment::Unlimited),
            Some(_) => self.flag(&fields, "blocked").then_some(Treatment::Blocked),
            None => None,
        };
        if let (Some(node), Some(conditions), Some(treatment)) = (node, conditions, treatment) {
            self.add(exceptions, conditions, treatment, &node.span);
        }
    }

    /// Returns which one of [`TREATMENTS`] an override has.
    fn treatment_field(&mut self, fields: &Fields<'_>, item: &Node) -> Option<&'static str> {
        let mut given: Vec<(&'static str, &Entry)> = TREATMENTS
            .into_iter()
            .filter_map(|name| fields.entry(name).map(|entry| (name, entry)))
            .collect();
        given.sort_by_key(|(_, entry)| entry.name_span.start);
        match *given.as_slice() {
            [] => {
                let limit = self.format.assign_text("limit", "1000/s");
                let unlimited = self.format.assign("unlimited", "true");
                let blocked = self.format.assign("blocked", "true");
                let message = format!("an override has none of {}", listed(&TREATMENTS));
                self.error(
                    Mistake::new(item.span.clone(), message)
                        .help(format!("add `{limit}`, `{unlimited}` or `{blocked}`")),
                );
                None
            }
            [(name, _)] => {
                if name != "limit"
                    && let Some(burst) = fields.entry("burst")
                {
                    let message = format!("`burst` has no meaning beside `{name}`");
                    self.error(
                        Mistake::new(burst.name_span.clone(), message).help("remove one of them"),
                    );
                    return None;
                }
                Some(name)
            }
            [(first, entry), (second, another), ..] => {
                let message = format!("an override has both `{first}` and `{second}`");
                self.error(
                    Mistake::new(another.name_span.clone(), message)
                        .also(entry.name_span.clone(), format!("`{first}` is given here"))
                        .help("remove one of them"),
                );
                None
            }
        }
    }

    /// Reads a field that can only be true.
    fn flag(&mut self, fields: &Fields<'_>, name: &str) -> bool {
        let Some(node) = fields.value(name, self) else {
            return false;
        };
        let flag = self.boolean(node, name);
        if flag == Some(false) {
            let message =
                format!("an override cannot have `{}`", self.format.assign(name, "false"));
            let help = "remove the override, so that the rule's own limit holds";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        flag == Some(true)
    }

    fn add(
        &mut self,
        exceptions: &mut Exceptions,
        conditions: Conditions,
        treatment: Treatment,
        span: &Range<usize>,
    ) {
        let help = "remove one of the two; `blocked` is tried first, then `unlimited`, then \
                    `overrides`";
        let seen = &mut exceptions.seen;
        self.doubt_repetition(seen, &conditions, span, "this exception", help);
        exceptions.listed.push(Exception { matcher: matcher(conditions), treatment });
    }
}
