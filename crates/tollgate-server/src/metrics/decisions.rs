//! `tollgate_decisions_total`.

mod renewal;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tollgate::{CheckError, Mode, Rule, RuleDecision, RuleSet, Verdict};

use crate::denials::too_late;

pub(super) use self::renewal::Renewal;

/// What every rule decided, by outcome and mode.
///
/// A counter that is there is found and raised without an allocation.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// By domain, then by rule.
    domains: RwLock<Domains>,
    /// Rules that have counters only because they decided, the first to do so first.
    strays: Mutex<VecDeque<Name>>,
    unlimited: AtomicU64,
}

type Domains = BTreeMap<String, BTreeMap<String, RuleCounters>>;

/// Domain and name of a rule.
type Name = (String, String);

/// How many rules that are in force no more keep their counters. Beyond that, names that change with
/// every version would fill the memory.
const GONE_MAX: usize = 1_000;

#[derive(Debug, Default)]
struct RuleCounters {
    counts: [[AtomicU64; Outcome::ALL.len()]; MODES.len()],
    is_shadow: bool,
}

/// The modes that a rule decides in.
const MODES: [Mode; 5] = [Mode::Exact, Mode::Lease, Mode::Local, Mode::Open, Mode::Closed];

#[derive(Clone, Copy)]
enum Outcome {
    Allow,
    Deny,
    ShadowDeny,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Allow, Self::Deny, Self::ShadowDeny];

    fn of(decided: &RuleDecision) -> Self {
        match (decided.decision().is_allow(), decided.rule().is_shadow()) {
            (true, _) => Self::Allow,
            (false, false) => Self::Deny,
            (false, true) => Self::ShadowDeny,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::ShadowDeny => "shadow_deny",
        }
    }
}

impl Decisions {
    pub(super) fn new(rules: &RuleSet) -> Self {
        let mut domains = Domains::new();
        for rule in rules.iter() {
            add(&mut domains, rule);
        }
        Self { domains: RwLock::new(domains), ..Self::default() }
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        for decided in verdict.rules() {
            self.raise(decided.rule(), decided.mode(), Outcome::of(decided));
        }
        if verdict.mode() == Mode::Unlimited {
            self.unlimited.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the refusal of a request that would have had to wait for too long, as a denial of
    /// what it would have waited for.
    pub(super) fn count_refusal(&self, verdict: &Verdict) {
        let refusing = too_late(verdict);
        for decided in verdict.rules() {
            let refuses = refusing.is_some_and(|refusing| std::ptr::eq(refusing, decided));
            let outcome = if refuses { Outcome::Deny } else { Outcome::of(decided) };
            self.raise(decided.rule(), decided.mode(), outcome);
        }
    }

    /// Counts the refusal of a rule that is closed while the store does not answer. A cost that can
    /// never succeed is not a decision.
    pub(super) fn count_error(&self, error: &CheckError) {
        if error.is_store_failure()
            && let Some(rule) = error.rule()
        {
            self.raise(rule, Mode::Closed, Outcome::Deny);
        }
    }

    fn raise(&self, rule: &Rule, mode: Mode, outcome: Outcome) {
        let index = MODES.iter().position(|known| *known == mode);
        debug_assert!(index.is_some(), "{mode:?} is a mode that a rule decides in");
        let Some(mode) = index else { return };
        let raise = |domains: &Domains| {
            let counters = domains.get(rule.domain()).and_then(|rules| rules.get(rule.name()));
            counters.map(|found| {
                found.counts[mode][outcome as usize].fetch_add(1, Ordering::Relaxed);
            })
        };
        if raise(&self.read()).is_some() {
            return;
        }
        // The rules were replaced since: the new one gets its counters now.
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        add(&mut domains, rule);
        raise(&domains);
        self.note_stray(rule, &mut domains);
    }

    /// Remembers a rule that nobody announced, and forgets the counters of the first of too many.
    fn note_stray(&self, rule: &Rule, domains: &mut Domains) {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (rule.domain().to_owned(), rule.name().to_owned());
        if strays.contains(&name) {
            return;
        }
        strays.push_back(name);
        if strays.len() > GONE_MAX
            && let Some(first) = strays.pop_front()
        {
            remove(domains, &first);
        }
    }

    /// Returns how much a rule has decided.
    fn count_of(&self, (domain, name): &Name) -> u64 {
        let domains = self.read();
        let counters = domains.get(domain).and_then(|rules| rules.get(name));
        let counts = counters.iter().flat_map(|counters| counters.counts.iter().flatten());
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the rules that have decided unannounced since the last time.
    fn take_strays(&self) -> VecDeque<Name> {
        std::mem::take(&mut self.strays.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self) -> RwLockReadGuard<'_, Domains> {
        // No code that holds the lock can leave the map half changed.
        self.domains.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(domains: &mut Domains, rule: &Rule) {
    let rules = domains.entry(rule.domain().to_owned()).or_default();
    let counters = rules.entry(rule.name().to_owned()).or_default();
    counters.is_shadow = rule.is_shadow();
}

fn remove(domains: &mut Domains, (domain, name): &Name) {
    if let Some(rules) = domains.get_mut(domain) {
        rules.remove(name);
        if rules.is_empty() {
            domains.remove(domain);
        }
    }
}

impl RuleCounters {
    /// Returns what is to be shown: all that was counted, and the usual outcomes even at 0.
    fn shown(&self) -> impl Iterator<Item = (Mode, Outcome, u64)> {
        let modes = MODES.into_iter().zip(&self.counts);
        let all = modes.flat_map(|(mode, counts)| {
            let outcomes = Outcome::ALL.into_iter().zip(counts);
            outcomes.map(move |(outcome, count)| (mode, outcome, count.load(Ordering::Relaxed)))
        });
        all.filter(|(mode, outcome, count)| {
            let is_usual = *mode == Mode::Exact
                && match outcome {
                    Outcome::Allow => true,
                    Outcome::Deny => !self.is_shadow,
                    Outcome::ShadowDeny => self.is_shadow,
                };
            *count > 0 || is_usual
        })
    }
}

impl Collector for Decisions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "decisions",
            "Decisions on checked requests, one for each rule that applied.",
            None,
            MetricType::Counter,
        )?;
        for (domain, rules) in &*self.read() {
            for (rule, counters) in rules {
                for (mode, outcome, count) in counters.shown() {
                    let labels = [
                        ("domain", domain.as_str()),
                        ("rule", rule.as_str()),
                        ("outcome", outcome.as_str()),
                        ("mode", mode.as_str()),
                    ];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let labels = [
            ("domain", ""),
            ("rule", ""),
            ("outcome", Outcome::Allow.as_str()),
            ("mode", Mode::Unlimited.as_str()),
        ];
        let unlimited = self.unlimited.load(Ordering::Relaxed);
        ConstCounter::new(unlimited).encode(family.encode_family(&labels)?)
    }
}
