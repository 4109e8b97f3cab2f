//! Denials in the log: one line for each rule, kind and interval, however many there are.

mod heaviest;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tollgate::{Attributes, Rule, RuleDecision, Verdict};
use tollgate_config::LoggedKeys;

use self::heaviest::Heaviest;

/// How often denials are reported.
const INTERVAL: Duration = Duration::from_secs(5);

/// What was denied since the last report. It holds rules of the configuration, and of each so many
/// buckets at most as [`Heaviest`] does.
#[derive(Debug)]
pub(crate) struct Denials {
    keys: LoggedKeys,
    /// Salted at the start of the process, so that nobody can try out what a hash stands for.
    salt: RandomState,
    /// By domain, then by rule.
    rules: Mutex<Domains>,
}

type Domains = BTreeMap<String, BTreeMap<String, [Tally; Kind::ALL.len()]>>;

#[derive(Debug, Default)]
struct Tally {
    count: u64,
    heaviest: Heaviest,
}

/// How a request was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By an enforced rule.
    Denied,
    /// It was not: the rule is in shadow.
    Shadow,
    /// Its turn would have come too late for a caller who waits.
    Wait,
    /// The store does not answer, and the rule is closed then.
    Unavailable,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Denied, Self::Shadow, Self::Wait, Self::Unavailable];

    /// Returns the kind of what a rule said, if that was a denial.
    pub(crate) fn of(decided: &RuleDecision) -> Option<Self> {
        let kind = if decided.rule().is_shadow() { Self::Shadow } else { Self::Denied };
        decided.decision().is_deny().then_some(kind)
    }
}

/// Finds what refuses a request that would have had to wait for too long although all its rules
/// allow it: the one that asks for the longest delay; without a delay, the finest, whose bucket
/// others wait for.
pub(crate) fn too_late(verdict: &Verdict) -> Option<&RuleDecision> {
    let enforced = verdict.rules().iter().filter(|decided| !decided.rule().is_shadow());
    match verdict.is_allowed() {
        true => enforced.max_by_key(|decided| decided.decision().delay()),
        false => None,
    }
}

impl Denials {
    pub(crate) fn new(keys: LoggedKeys) -> Self {
        Self { keys, salt: RandomState::new(), rules: Mutex::default() }
    }

    /// Notes what a rule denied to a request with these attributes.
    pub(crate) fn note_request(&self, kind: Kind, decided: &RuleDecision, attributes: &Attributes) {
        let rule = decided.rule();
        let quota = decided.quota().unwrap_or_else(|| *rule.quota());
        self.note(kind, rule, &rule.bucket_key(attributes, &quota));
    }

    /// Notes that the bucket `key` of `rule` denied a request.
    pub(crate) fn note(&self, kind: Kind, rule: &Rule, key: &str) {
        let hash = self.salt.hash_one(key);
        let mut domains = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let known = domains.get_mut(rule.domain()).and_then(|rules| rules.get_mut(rule.name()));
        let of_rule = match known {
            Some(known) => known,
            None => {
                let rules = domains.entry(rule.domain().to_owned()).or_default();
                rules.entry(rule.name().to_owned()).or_default()
            }
        };
        let tally = &mut of_rule[kind as usize];
        tally.count += 1;
        tally.heaviest.add(hash, || match self.keys {
            LoggedKeys::Plain => Some(of_bucket(rule, key).into()),
            _ => None,
        });
    }

    /// Writes a line for each rule that denied since the last time, and each kind.
    pub(crate) fn report(&self) {
        let domains =
            std::mem::take(&mut *self.rules.lock().unwrap_or_else(PoisonError::into_inner));
        for (domain, rules) in domains {
            for (rule, tallies) in rules {
                for (kind, tally) in Kind::ALL.into_iter().zip(&tallies) {
                    if tally.count > 0 {
                        report(kind, &domain, &rule, tally);
                    }
                }
            }
        }
    }

    /// Reports every few seconds, and never ends.
    ///
    /// # Cancel safety
    ///
    /// What is not reported yet stays for the next report.
    pub(crate) async fn report_regularly(&self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.report();
        }
    }
}

fn report(kind: Kind, domain: &str, rule: &str, Tally { count, heaviest }: &Tally) {
    match kind {
        Kind::Denied => {
            tracing::warn!(domain, rule, denied = count, %heaviest, "requests denied");
        }
        Kind::Shadow => tracing::warn!(
            domain,
            rule,
            shadow_denied = count,
            %heaviest,
            "requests that a shadow rule would deny"
        ),
        Kind::Wait => tracing::warn!(
            domain,
            rule,
            wait_refused = count,
            %heaviest,
            "requests refused that would have to wait for too long"
        ),
        Kind::Unavailable => tracing::warn!(
            domain,
            rule,
            unavailable = count,
            %heaviest,
            "requests refused while the store does not answer"
        ),
    }
}

/// The part of a bucket's key that its rule does not say already.
fn of_bucket<'k>(rule: &Rule, key: &'k str) -> &'k str {
    let own = key.strip_prefix(rule.domain()).and_then(|rest| rest.strip_prefix(':'));
    let own = own.and_then(|rest| rest.strip_prefix(rule.name()));
    own.map_or(key, |rest| rest.strip_prefix(':').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use tollgate::Quota;

    use super::*;

    fn rule(name: &str) -> Rule {
        Rule::new(name, Quota::from_rate("1/s".parse().unwrap()).unwrap())
    }

    fn of(denials: &Denials, rule: &Rule) -> (u64, String) {
        let rules = denials.rules.lock().unwrap();
        let found = &rules[rule.domain()][rule.name()][Kind::Denied as usize];
        (found.count, found.heaviest.to_string())
    }

    #[test]
    fn keys_are_hashed_unless_they_are_asked_for() {
        let (hashed, plain) = (Denials::new(LoggedKeys::Hashed), Denials::new(LoggedKeys::Plain));
        let login = rule("login");
        for denials in [&hashed, &plain] {
            for key in ["default:login:ip=1.2.3.4", "default:login:ip=1.2.3.4", "elsewhere"] {
                denials.note(Kind::Denied, &login, key);
            }
        }
        assert_eq!(of(&plain, &login), (3, "ip=1.2.3.4 (2), elsewhere (1)".to_owned()));
        let (count, shown) = of(&hashed, &login);
        assert_eq!(count, 3);
        assert!(!shown.contains("1.2.3.4"), "{shown}");
        let (first, second) = shown.split_once(", ").unwrap();
        assert!(first.starts_with('#') && first.ends_with(" (2)"), "{shown}");
        assert_eq!((first.len(), second.len()), (21, 21), "{shown}");
    }

    #[test]
    fn one_bucket_has_another_hash_in_another_process() {
        let of_one = || {
            let denials = Denials::new(LoggedKeys::Hashed);
            denials.note(Kind::Denied, &rule("a"), "default:a:ip=1.2.3.4");
            of(&denials, &rule("a")).1
        };
        assert_ne!(of_one(), of_one());
    }

    #[test]
    fn a_report_begins_anew() {
        let denials = Denials::new(LoggedKeys::Plain);
        let (one, other) = (rule("one"), rule("other"));
        denials.note(Kind::Denied, &one, "default:one");
        denials.report();
        denials.note(Kind::Denied, &other, "default:other");
        let rules = denials.rules.lock().unwrap();
        assert_eq!(rules["default"].keys().collect::<Vec<_>>(), ["other"]);
    }
}
