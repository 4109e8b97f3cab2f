//! The counters of rules that come and go.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate::{Rule, RuleSet};

use super::{Decisions, GONE_MAX, Name, add, remove};

/// Which rules have counters for having been in force.
#[derive(Debug, Default)]
pub(in crate::metrics) struct Renewal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rules: Arc<RuleSet>,
    /// The rules that limits for Envoy are counted as.
    limits: Arc<[Arc<Rule>]>,
    /// Those that are in force no more, the first to have gone first.
    gone: VecDeque<Gone>,
}

/// A rule that is in force no more.
#[derive(Debug)]
struct Gone {
    name: Name,
    since: Instant,
    /// How much it had decided by then.
    count: u64,
}

/// How long rules that are in force no more and decide no more keep their counters, so that what
/// they last counted is still collected.
const KEPT: Duration = Duration::from_secs(15 * 60);

impl Renewal {
    /// Lets the counters of new rules stand at 0, and forgets those of rules that have long gone.
    pub(in crate::metrics) fn follow(
        &self,
        rules: &Arc<RuleSet>,
        limits: &Arc<[Arc<Rule>]>,
        decisions: &Decisions,
        now: Instant,
    ) {
        // No code that holds the lock can leave the state half changed.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !Arc::ptr_eq(&state.rules, rules) || !Arc::ptr_eq(&state.limits, limits);
        let strays = decisions.take_strays();
        if is_new || !strays.is_empty() {
            let in_force = names(rules, limits);
            let mut known = names(&state.rules, &state.limits);
            (state.rules, state.limits) = (Arc::clone(rules), Arc::clone(limits));
            // Rules that came and went since the last time are known by what they counted.
            known.extend(strays);
            state.gone.retain(|gone| !in_force.contains(&gone.name) && !known.contains(&gone.name));
            for name in known.difference(&in_force) {
                let count = decisions.count_of(name);
                state.gone.push_back(Gone { name: name.clone(), since: now, count });
            }
        }
        let forgotten = state.forget(decisions, now);
        drop(state);
        if !is_new && forgotten.is_empty() {
            return;
        }
        let mut domains = decisions.domains.write().unwrap_or_else(PoisonError::into_inner);
        for rule in rules.iter().chain(limits.iter()) {
            add(&mut domains, rule);
        }
        forgotten.iter().for_each(|name| remove(&mut domains, name));
    }
}

impl State {
    /// Takes out those that are to lose their counters. One that still decides, for a request that
    /// was under way or as a limit that came with a request, stays.
    fn forget(&mut self, decisions: &Decisions, now: Instant) -> Vec<Name> {
        let mut forgotten = Vec::new();
        let is_old = |gone: &Gone| now.saturating_duration_since(gone.since) >= KEPT;
        while self.gone.front().is_some_and(is_old)
            && let Some(gone) = self.gone.pop_front()
        {
            let count = decisions.count_of(&gone.name);
            if count == gone.count {
                forgotten.push(gone.name);
            } else {
                self.gone.push_back(Gone { since: now, count, ..gone });
            }
        }
        let too_many = self.gone.len().saturating_sub(GONE_MAX);
        forgotten.extend(self.gone.drain(..too_many).map(|gone| gone.name));
        forgotten
    }
}

fn names(rules: &RuleSet, limits: &[Arc<Rule>]) -> BTreeSet<Name> {
    let all = rules.iter().chain(limits);
    all.map(|rule| (rule.domain().to_owned(), rule.name().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use tollgate::{Mode, Quota};

    use super::super::Outcome;
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
    fn limits_for_envoy_come_and_go_like_rules() {
        let (renewal, decisions) = (Renewal::default(), Decisions::default());
        let now = Instant::now();
        let rules = rules(["rule".to_owned()]);
        for version in 0..1_200 {
            renewal.follow(&rules, &limits([format!("limit-{version}")]), &decisions, now);
        }
        assert_eq!(counted(&decisions), 1_000 + 2);
    }

    #[test]
    fn the_last_thousand_rules_that_have_gone_keep_their_counters() {
        let no_limits = limits([]);
        let (renewal, decisions, now) = (Renewal::default(), Decisions::default(), Instant::now());
        for version in 0..700 {
            let names = (0..2).map(|number| format!("rule-{version}-{number}"));
            renewal.follow(&rules(names.chain(["stays".to_owned()])), &no_limits, &decisions, now);
        }
        assert_eq!(counted(&decisions), 1_000 + 3);
        let back = rules(["rule-0-0".to_owned(), "stays".to_owned()]);
        renewal.follow(&back, &no_limits, &decisions, now);
        assert_eq!(counted(&decisions), 1_000 + 2);
        assert!(decisions.read()["default"].contains_key("rule-0-0"));
    }

    #[test]
    fn a_rule_keeps_its_counters_for_fifteen_minutes_after_it_has_gone() {
        let no_limits = limits([]);
        let (renewal, decisions, start) =
            (Renewal::default(), Decisions::default(), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let stays = rules(["stays".to_owned()]);
        renewal.follow(
            &rules(["stays".to_owned(), "goes".to_owned()]),
            &no_limits,
            &decisions,
            at(0),
        );
        renewal.follow(&stays, &no_limits, &decisions, at(10));
        renewal.follow(&stays, &no_limits, &decisions, at(24));
        assert_eq!(counted(&decisions), 2);
        renewal.follow(&stays, &no_limits, &decisions, at(25));
        assert_eq!(counted(&decisions), 1);
    }

    #[test]
    fn a_rule_that_is_not_announced_keeps_its_counters_while_it_decides() {
        let no_limits = limits([]);
        let (renewal, decisions, start) =
            (Renewal::default(), Decisions::default(), Instant::now());
        let (none, unannounced) = (rules([]), rules(["unannounced".to_owned()]));
        let rule = unannounced.iter().next().unwrap();
        for minutes in 0..60 {
            decisions.raise(rule, Mode::Exact, Outcome::Allow);
            renewal.follow(
                &none,
                &no_limits,
                &decisions,
                start + Duration::from_secs(60 * minutes),
            );
        }
        assert_eq!(decisions.count_of(&("default".to_owned(), "unannounced".to_owned())), 60);
        for minutes in 60..90 {
            renewal.follow(
                &none,
                &no_limits,
                &decisions,
                start + Duration::from_secs(60 * minutes),
            );
        }
        assert_eq!(counted(&decisions), 0);
    }

    #[test]
    fn g9_rules_that_come_and_go_while_nobody_looks_are_bounded_and_forgotten_too() {
        let no_limits = limits([]);
        let (renewal, decisions, start) =
            (Renewal::default(), Decisions::default(), Instant::now());
        let stays = rules(["stays".to_owned()]);
        renewal.follow(&stays, &no_limits, &decisions, start);
        for version in 0..1_500 {
            let passing = rules([format!("rule-{version}")]);
            for rule in passing.iter().chain(stays.iter()) {
                decisions.raise(rule, Mode::Exact, Outcome::Allow);
            }
        }
        assert_eq!(counted(&decisions), 1_000 + 1);
        renewal.follow(&stays, &no_limits, &decisions, start);
        assert_eq!(counted(&decisions), 1_000 + 1);
        renewal.follow(&stays, &no_limits, &decisions, start + KEPT);
        assert_eq!(counted(&decisions), 1);
        let (.., count) = decisions.read()["default"]["stays"].shown().next().unwrap();
        assert_eq!(count, 1_500);
    }
}
