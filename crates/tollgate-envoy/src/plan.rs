//! What a request is charged to: from descriptors to buckets.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::{CheckError, Part};
use tollgate_core::{Attributes, Cost, DOMAIN_DEFAULT, Rule, RuleSet};

use crate::key;
use crate::limits::{Amount, Found, Limit, Limits, applied, rule};
use crate::mistake::Mistake;
use crate::name;
use crate::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::unit::{CurrentLimit, Override, Reported};

/// What is done to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// Looked at, for descriptors without hits: they ask whether one more would pass.
    Probe,
    /// Spent in.
    Spend,
    /// Given back to.
    Refund,
}

impl Group {
    pub(crate) const COUNT: usize = 3;
}

/// All buckets that a request is charged to.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// By [`Group`].
    pub(crate) parts: [Vec<Part>; Group::COUNT],
    /// In the order of the parts.
    pub(crate) traits: [SmallVec<[Traits; 8]>; Group::COUNT],
    /// In the order of the request.
    pub(crate) descriptors: Vec<Planned>,
}

/// What the adapter knows of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// The request is denied only if all such parts deny.
    pub(crate) quota_mode: bool,
    /// The part stands in the answer though it is in shadow.
    pub(crate) reported_in_shadow: bool,
}

/// What one descriptor is charged to.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    pub(crate) uses: SmallVec<[Use; 1]>,
    /// Whether a limit says that everything passes.
    pub(crate) unlimited: bool,
    pub(crate) limit: Option<Arc<Limit>>,
}

/// A part, as one descriptor uses it.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) group: Group,
    pub(crate) index: usize,
    /// What is reported in place of the quota of the part.
    reported: Option<CurrentLimit>,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().all(Vec::is_empty)
    }

    /// Returns the first part of a rule.
    pub(crate) fn part_of(&self, rule: &Rule) -> Option<&Part> {
        self.parts.iter().flatten().find(|part| part.rule().name() == rule.name())
    }

    /// Returns the part of a use.
    pub(crate) fn part(&self, used: &Use) -> &Part {
        &self.parts[used.group as usize][used.index]
    }

    /// Returns the limit that is reported for a use.
    pub(crate) fn reported<'p>(&'p self, used: &'p Use) -> Reported<'p> {
        let by_rule = |part: &'p Part| Reported::of(part.quota(), part.rule().name());
        used.reported.as_ref().map_or_else(|| by_rule(self.part(used)), CurrentLimit::reported)
    }
}

/// Puts plans together for the requests of a domain.
pub(crate) struct Planner<'a> {
    /// Nothing if the domain has none.
    rules: Option<&'a RuleSet>,
    limits: Option<&'a Limits>,
    /// Whether every part spends on its own.
    alone: bool,
}

impl std::fmt::Debug for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limit").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where buckets were planned before, once there are so many that looking through them takes longer.
#[derive(Default)]
struct Seen(HashMap<(Group, String), usize>);

/// Up to so many buckets are looked through.
const SEARCHED_MAX: usize = 16;

impl Seen {
    /// Finds a bucket among the parts of its group.
    fn find(&self, group: Group, parts: &[Part], key: &str) -> Option<usize> {
        if parts.len() <= SEARCHED_MAX {
            return parts.iter().position(|known| known.key() == key);
        }
        self.0.get(&(group, key.to_owned())).copied()
    }

    /// Remembers the last of the parts of a group.
    fn remember(&mut self, group: Group, parts: &[Part]) {
        if parts.len() <= SEARCHED_MAX {
            return;
        }
        let new = if parts.len() == SEARCHED_MAX + 1 { 0 } else { parts.len() - 1 };
        for (index, part) in parts.iter().enumerate().skip(new) {
            self.0.insert((group, part.key().to_owned()), index);
        }
    }
}

impl<'a> Planner<'a> {
    pub(crate) fn new(domain: &str, rules: &'a RuleSet, limits: &'a Limits, alone: bool) -> Self {
        let rules = rules.has_domain(domain).then_some(rules);
        let limits = limits.has_domain(domain).then_some(limits);
        Planner { rules, limits, alone }
    }

    /// Plans a request, whose entries are taken out of it where rules read them.
    pub(crate) fn plan(&self, request: &mut RateLimitRequest) -> Result<Plan, Mistake> {
        let count = request.descriptors.len();
        let mut plan = Plan { descriptors: Vec::with_capacity(count), ..Plan::default() };
        if !self.knows_domain() {
            plan.descriptors.resize_with(count, Planned::default);
            return Ok(plan);
        }
        let mut found = self.find(request).into_iter();
        let mut seen = Seen::default();
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        for (index, descriptor) in descriptors.iter_mut().enumerate() {
            let found = found.next().flatten();
            let charge = Hits::of(descriptor, *hits_addend);
            let parts = &mut plan.parts[charge.group as usize];
            if parts.is_empty() {
                parts.reserve_exact(count);
            }
            let mut planned = Planned::default();
            match &descriptor.limit {
                Some(limit) => {
                    let limit = Override::read(limit).ok_or_else(|| Mistake::no_unit(index))?;
                    self.plan_override(domain, descriptor, limit, charge, &mut plan, &mut seen)
                        .map_err(|error| Mistake::of(&error))
                        .map(|one| planned.uses.push(one))?;
                }
                None => {
                    if let Some(found) = found {
                        self.plan_limit(found, charge, &mut plan, &mut seen, &mut planned)
                            .map_err(|error| Mistake::of(&error))?;
                    }
                    self.plan_rules(domain, descriptor, charge, &mut plan, &mut seen, &mut planned)
                        .map_err(|error| Mistake::of(&error))?;
                }
            }
            plan.descriptors.push(planned);
        }
        Ok(plan)
    }

    /// Tells whether the domain has rules or limits. Requests of one that has none are allowed.
    pub(crate) const fn knows_domain(&self) -> bool {
        self.rules.is_some() || self.limits.is_some()
    }

    /// Finds the configured limit of each descriptor, without those that others replace. Nothing if the domain has no limits.
    fn find(&self, request: &RateLimitRequest) -> Vec<Option<Found>> {
        let Some(limits) = self.limits else { return Vec::new() };
        let mut found: Vec<_> = request
            .descriptors
            .iter()
            .map(|one| match one.limit {
                Some(_) => None,
                None => limits.find(&request.domain, &one.entries),
            })
            .collect();
        let replaced: BTreeSet<String> =
            found.iter().flatten().flat_map(|one| one.limit.replaces.iter().cloned()).collect();
        for one in &mut found {
            let is_replaced = |found: &Found| {
                let name = found.limit.name.as_ref();
                let counts = matches!(found.limit.amount, Amount::Limited { .. });
                counts && name.is_some_and(|name| replaced.contains(name))
            };
            if one.as_ref().is_some_and(is_replaced) {
                *one = None;
            }
        }
        found
    }

    fn plan_override(
        &self,
        domain: &str,
        descriptor: &RateLimitDescriptor,
        limit: Override,
        hits: Hits,
        plan: &mut Plan,
        seen: &mut Seen,
    ) -> Result<Use, CheckError> {
        let owner = key::overriding(limit.unit);
        let mut key = key::begin(domain, owner);
        for entry in &descriptor.entries {
            key::push_entry(&mut key, &entry.key, &entry.value);
        }
        let key = key::bounded(key, domain, owner);
        let rule = Arc::new(rule(name::OVERRIDE, domain, limit.quota));
        let part = Part::new(applied(&rule, key, limit.quota), &Attributes::new(), hits.cost)?;
        let traits = Traits { quota_mode: false, reported_in_shadow: false };
        let index = self.add(part, traits, hits.group, Merge::Sum, plan, seen);
        Ok(Use { group: hits.group, index, reported: Some(limit.reported) })
    }

    fn plan_limit(
        &self,
        found: Found,
        hits: Hits,
        plan: &mut Plan,
        seen: &mut Seen,
        planned: &mut Planned,
    ) -> Result<(), CheckError> {
        let Found { limit, key } = found;
        match &limit.amount {
            Amount::Unlimited => planned.unlimited = true,
            Amount::Limited { rule, quota, reported } => {
                let applied = applied(rule, key, *quota);
                let part = Part::new(applied, &Attributes::new(), hits.cost)?;
                let traits = Traits { quota_mode: limit.quota_mode, reported_in_shadow: true };
                let index = self.add(part, traits, hits.group, Merge::Sum, plan, seen);
                let reported = Some(reported.clone());
                planned.uses.push(Use { group: hits.group, index, reported });
            }
        }
        planned.limit = Some(limit);
        Ok(())
    }

    /// Plans what the rules charge a descriptor, whose entries are its attributes.
    fn plan_rules(
        &self,
        domain: &str,
        descriptor: &mut RateLimitDescriptor,
        hits: Hits,
        plan: &mut Plan,
        seen: &mut Seen,
        planned: &mut Planned,
    ) -> Result<(), CheckError> {
        let Some(rules) = self.rules else { return Ok(()) };
        let mut attributes = Attributes::new();
        if domain != DOMAIN_DEFAULT {
            attributes = attributes.with_domain(domain.to_owned());
        }
        for entry in descriptor.entries.iter_mut().filter(|entry| !entry.value.is_empty()) {
            attributes.insert(mem::take(&mut entry.key), mem::take(&mut entry.value));
        }
        for applied in rules.charges(&attributes) {
            let part = Part::new(applied, &attributes, hits.cost)?;
            let traits = Traits { quota_mode: false, reported_in_shadow: false };
            let index = self.add(part, traits, hits.group, Merge::Max, plan, seen);
            planned.uses.push(Use { group: hits.group, index, reported: None });
        }
        Ok(())
    }

    /// Adds a part, or its cost to the part of the same bucket.
    fn add(
        &self,
        part: Part,
        traits: Traits,
        group: Group,
        merge: Merge,
        plan: &mut Plan,
        seen: &mut Seen,
    ) -> usize {
        let parts = &mut plan.parts[group as usize];
        if let Some(index) = seen.find(group, parts, part.key()) {
            if group != Group::Probe {
                let (known, more) = (parts[index].cost().units(), part.cost().units());
                let units = match merge {
                    Merge::Sum => known.saturating_add(more),
                    Merge::Max => known.max(more),
                };
                parts[index] = parts[index].clone().with_cost(Cost::new(units));
            }
            return index;
        }
        let index = parts.len();
        parts.push(if self.alone || traits.quota_mode { part.alone() } else { part });
        seen.remember(group, parts);
        plan.traits[group as usize].push(traits);
        index
    }
}

/// What becomes of the costs of two descriptors that are charged to one bucket.
#[derive(Clone, Copy)]
enum Merge {
    /// Each counts, as in the configuration that says what each is charged to.
    Sum,
    /// The request counts once, as several descriptors may lead to one rule.
    Max,
}

/// The hits of one descriptor.
#[derive(Clone, Copy)]
struct Hits {
    group: Group,
    cost: Cost,
}

impl Hits {
    fn of(descriptor: &RateLimitDescriptor, of_request: u32) -> Self {
        let hits = descriptor.hits_addend.unwrap_or_else(|| u64::from(of_request.max(1)));
        match hits {
            hits if descriptor.is_negative_hits => {
                Self { group: Group::Refund, cost: Cost::new(hits) }
            }
            0 => Self { group: Group::Probe, cost: Cost::ONE },
            hits => Self { group: Group::Spend, cost: Cost::new(hits) },
        }
    }
}
