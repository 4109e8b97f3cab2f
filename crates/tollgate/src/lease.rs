//! Checks that are decided by slices of this node, and how those come and go.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep};
use tollgate_core::{Cost, Decision, Operation};

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::limiter::Limiter;
use crate::slices::{Leftover, Parts};
use crate::verdict::{Mode, RuleDecision, Verdict};

/// How often slices are looked through for what is not spent in time.
const SWEEP: Duration = Duration::from_millis(20);

/// What slices said to each charge, and what was taken, if they had enough.
pub(crate) type Said = SmallVec<[Option<(Decision, Parts)>; 2]>;

/// The verdict of a check that slices have decided alone.
pub(crate) fn leased(charged: &AllCharged, said: &Said) -> Option<Verdict> {
    let decided = charged
        .iter()
        .zip(said)
        .map(|(one, said)| said.as_ref().map(|(decision, _)| one.decided(*decision, Mode::Lease)));
    Some(Verdict::new(decided.collect::<Option<_>>()?, None))
}

impl Limiter {
    /// Takes what slices have of what a check is charged to; `None` if they have nothing.
    pub(crate) fn take_slices(&self, charged: &AllCharged) -> Option<Said> {
        if self.store().answers_at_once() || charged.iter().all(|one| one.lease.is_none()) {
            return None;
        }
        let now = Instant::now();
        let said: Said = charged.iter().map(|one| self.take_slice(one, now)).collect();
        said.iter().any(Option::is_some).then_some(said)
    }

    /// Decides a check of which slices have said a part: the rest is asked of the store, and if that
    /// denies, nothing is spent here either (G7).
    pub(crate) async fn decide_beside_slices(
        &self,
        charged: &AllCharged,
        said: Said,
    ) -> Result<Verdict, CheckError> {
        let rest: AllCharged = charged
            .iter()
            .zip(&said)
            .filter(|(_, said)| said.is_none())
            .map(|(one, _)| one.clone())
            .collect();
        let mut taken = PutBack { limiter: self, charged, said, keeps: false };
        let asked = self.decide_in_store(Operation::Spend, &rest, None).await?;
        taken.keeps = asked.is_allowed();
        let mut asked_rules = asked.rules().iter();
        let rules: SmallVec<[RuleDecision; 2]> = charged
            .iter()
            .zip(&taken.said)
            .filter_map(|(one, said)| match said {
                Some((decision, _)) => Some(one.decided(*decision, Mode::Lease)),
                None => asked_rules.next().cloned(),
            })
            .collect();
        Ok(Verdict::new(rules, asked.store_failure()).with_asked(asked.asked_store()))
    }

    fn take_slice(&self, one: &Charged, now: Instant) -> Option<(Decision, Parts)> {
        let terms = one.lease.as_ref().filter(|_| !one.rule.is_shadow())?;
        if one.cost.is_zero() {
            return None;
        }
        let taken = self.slices().take(&one.key, terms, one.cost, now);
        if let Some(units) = taken.debit {
            self.debit(one.clone(), units);
        }
        taken.allow.map(|(allow, parts)| (Decision::Allow(allow), parts))
    }

    /// Debits a slice in the background.
    pub(crate) fn debit(&self, one: Charged, units: u64) {
        // Before the debit, so that it ends here before its time is over in the store.
        let since = Instant::now();
        let one = Charged { cost: Cost::new(units), ..one };
        // A debit whose answer was lost may have been made; the bucket refills.
        let answer = Err(Duration::from_secs(1));
        let mut debit = Debit { limiter: self.clone(), key: one.key.clone(), units, since, answer };
        self.background().run(async move {
            let charged = AllCharged::from_iter([one]);
            let limiter = debit.limiter.clone();
            let answer = limiter.apply_exactly(Operation::Spend, &charged, None).await;
            match answer.ok().and_then(|verdict| verdict.decision().copied()) {
                Some(Decision::Allow(allow)) => debit.answer = Ok(u64::from(allow.remaining)),
                Some(Decision::Deny(deny)) => debit.answer = Err(deny.retry_after),
                None => {}
            }
            drop(debit);
            limiter.keep_sweeping();
        });
    }

    /// Looks after slices for as long as there are some.
    fn keep_sweeping(&self) {
        self.start(
            |tasks| &tasks.sweeping,
            |weak| async move {
                loop {
                    sleep(SWEEP).await;
                    let limiter = weak.upgrade()?;
                    let (leftovers, is_watched) =
                        limiter.slices().leftovers(Some(SWEEP), Instant::now());
                    limiter.give_slices_back(leftovers).await;
                    if !is_watched {
                        return None;
                    }
                }
            },
        );
    }

    /// Gives back all slices.
    pub(crate) async fn return_slices(&self) {
        let leftovers = self.slices().drain(Instant::now());
        self.give_slices_back(leftovers).await;
    }

    async fn give_slices_back(&self, leftovers: Vec<Leftover>) {
        for Leftover { key, quota, cost } in leftovers {
            // What the store does not hear of refills in time.
            let _ = self.refund_to(&key, &quota, cost).await;
        }
    }
}

/// Puts what was taken from slices back unless the request goes on, also if it is given up.
struct PutBack<'a> {
    limiter: &'a Limiter,
    charged: &'a AllCharged,
    said: Said,
    keeps: bool,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        if self.keeps {
            return;
        }
        for (one, said) in self.charged.iter().zip(std::mem::take(&mut self.said)) {
            if let Some((_, parts)) = said {
                self.limiter.slices().put_back(&one.key, parts);
            }
        }
    }
}

/// A debit under way. It ends too if the runtime drops it, so that another one can begin.
struct Debit {
    limiter: Limiter,
    key: String,
    units: u64,
    since: Instant,
    /// What the bucket held after it, or for how long nothing is to be had.
    answer: Result<u64, Duration>,
}

impl Drop for Debit {
    fn drop(&mut self) {
        self.limiter.slices().debited(&self.key, self.units, self.answer, self.since);
    }
}
