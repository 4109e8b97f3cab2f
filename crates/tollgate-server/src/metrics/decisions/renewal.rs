//! The counters of rules that come and go.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::{Rule, RuleSet};

use super::{Decisions, add};

/// Which rules have counters for having been in force.
#[derive(Debug, Default)]
pub(in crate::metrics) struct Renewal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rules: Arc<RuleSet>,
    /// The rules that limits for Envoy are counted as.
    limits: Arc<[Arc<Rule>]>,
    /// Those that are in force no more, the first to have gone first.
    gone: VecDeque<Name>,
}

/// Domain and name of a rule.
type Name = (String, String);

/// How many rules that are in force no more keep their counters, so that what they last counted is
/// still collected. Beyond that, names that change with every version would fill the memory.
const GONE_MAX: usize = 1_000;

impl Renewal {
    /// Lets the counters of new rules stand at 0, and forgets those of rules that have long gone.
    pub(in crate::metrics) fn follow(
        &self,
        rules: &Arc<RuleSet>,
        limits: &Arc<[Arc<Rule>]>,
        decisions: &Decisions,
    ) {
        // No code that holds the lock can leave the state half changed.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&state.rules, rules) && Arc::ptr_eq(&state.limits, limits) {
            return;
        }
        let (before, now) = (names(&state.rules, &state.limits), names(rules, limits));
        (state.rules, state.limits) = (Arc::clone(rules), Arc::clone(limits));
        state.gone.retain(|name| !now.contains(name));
        state.gone.extend(before.difference(&now).cloned());
        let forgotten = state.gone.len().saturating_sub(GONE_MAX);
        let forgotten: Vec<_> = state.gone.drain(..forgotten).collect();
        drop(state);

        let mut domains = decisions.domains.write().unwrap_or_else(PoisonError::into_inner);
        for rule in rules.iter().chain(limits.iter()) {
            add(&mut domains, rule);
        }
        for (domain, name) in forgotten {
            if let Some(rules) = domains.get_mut(&domain) {
                rules.remove(&name);
                if rules.is_empty() {
                    domains.remove(&domain);
                }
            }
        }
    }
}

fn names(rules: &RuleSet, limits: &[Arc<Rule>]) -> BTreeSet<Name> {
    let all = rules.iter().chain(limits);
    all.map(|rule| (rule.domain().to_owned(), rule.name().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use tollgate::Quota;

    use super::*;

    fn rules(names: impl IntoIterator<Item = String>) -> Arc<RuleSet> {
        let quota = Quota::from_rate("1/s".parse().unwrap()).unwrap();
        Arc::new(RuleSet::new(names.into_iter().map(|name| Rule::new(name, quota))).unwrap())
    }

    fn counted(decisions: &Decisions) -> usize {
        decisions.read().values().map(|rules| rules.len()).sum()
    }

    fn limits(names: impl IntoIterator<Item = String>) -> Arc<[Arc<Rule>]> {
        rules(names).iter().cloned().collect()
    }

    #[test]
    fn the_last_thousand_rules_that_have_gone_keep_their_counters() {
        let (renewal, decisions) = (Renewal::default(), Decisions::default());
        let none = limits([]);
        for version in 0..700 {
            let names = (0..2).map(|number| format!("rule-{version}-{number}"));
            renewal.follow(&rules(names.chain(["stays".to_owned()])), &none, &decisions);
        }
        assert_eq!(counted(&decisions), 1_000 + 3);
        let back = rules(["rule-0-0".to_owned(), "stays".to_owned()]);
        renewal.follow(&back, &none, &decisions);
        assert_eq!(counted(&decisions), 1_000 + 2);
        assert!(decisions.read()["default"].contains_key("rule-0-0"));
    }

    #[test]
    fn limits_for_envoy_come_and_go_like_rules() {
        let (renewal, decisions) = (Renewal::default(), Decisions::default());
        let rules = rules(["rule".to_owned()]);
        for version in 0..1_200 {
            renewal.follow(&rules, &limits([format!("limit-{version}")]), &decisions);
        }
        assert_eq!(counted(&decisions), 1_000 + 2);
    }
}
