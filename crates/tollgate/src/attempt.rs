//! One try to let a request in, and what has to be waited for if it fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::{Algorithm, Attributes, Cost, Operation, RuleSet, StoreError, StoreErrorKind};

use crate::acquire::Acquisition;
use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::hold::draw_ticket;
use crate::limiter::Limiter;
use crate::line::{PAUSE_MIN, Place};
use crate::permit::{Spent, Taken};
use crate::store_calls::inherited;
use crate::verdict::{RuleDecision, Verdict};

/// For how long after its delay what a request spent can be given back.
const SETTLE_MARGIN: Duration = Duration::from_secs(5);

/// A request on its way in.
pub(crate) struct Request<'a> {
    limiter: &'a Limiter,
    attributes: &'a Attributes,
    cost: Cost,
    /// By which it is charged.
    rules: Arc<RuleSet>,
    charged: AllCharged,
    /// What the shadow rules said that are charged by the first attempt alone.
    shadows: Option<Vec<RuleDecision>>,
}

/// What one attempt came to.
#[expect(clippy::large_enum_variant, reason = "it lives for one match")]
pub(crate) enum Attempt {
    Passed(Verdict, Option<Spent>),
    /// It cannot go on in time.
    Refused(Verdict),
    Waits(Wait),
}

/// What a request waits for.
pub(crate) struct Wait {
    /// The bucket that is in the way.
    pub(crate) key: String,
    /// When it is worth to try again, unless something is given back before.
    pub(crate) until: Instant,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        limiter: &'a Limiter,
        attributes: &'a Attributes,
        cost: Cost,
    ) -> Result<Self, CheckError> {
        let rules = limiter.rules();
        let charged = limiter.charged(attributes, cost)?;
        Ok(Self { limiter, attributes, cost, rules, charged, shadows: None })
    }

    pub(crate) const fn charged(&self) -> &AllCharged {
        &self.charged
    }

    /// Tells whether no rule applies, or nothing is asked for.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.charged.iter().all(|one| one.cost.is_zero())
    }

    /// Grants a request that takes nothing, unless a rule blocks it.
    pub(crate) async fn looked(&self) -> Result<Acquisition, CheckError> {
        self.look().await.map(Acquisition::decided)
    }

    pub(crate) async fn look(&self) -> Result<Verdict, CheckError> {
        self.limiter.decide(Operation::Look, &self.charged, None).await
    }

    /// Returns a bucket that others wait for, if there is one that could deny.
    pub(crate) fn waited_for(&self) -> Option<String> {
        let mut enforced = self.charged.iter().filter(|one| !one.rule.is_shadow());
        let lines = self.limiter.lines();
        enforced.find(|one| lines.is_waited_for(&one.key)).map(|one| one.key.clone())
    }

    /// The units that are wanted of a bucket.
    pub(crate) fn units(&self, key: &str) -> u64 {
        let one = self.charged.iter().find(|one| one.key == key);
        one.map_or(0, |one| one.cost.units())
    }

    /// Spends if the request may go on before `deadline`, by the rules that are now in force. In a
    /// line, what a slot is waited for is the pause of the line.
    pub(crate) async fn attempt(
        &mut self,
        deadline: Instant,
        place: Option<&Place<'_>>,
    ) -> Result<Attempt, CheckError> {
        self.follow_rules()?;
        let left = deadline.saturating_duration_since(Instant::now());
        // Where a delay may be too long it is looked up first, so that no place in the queue is
        // taken and given back.
        if self.charged.iter().any(|one| one.delay_max() > left) {
            let look = self.look().await?;
            if look.is_allowed() && look.delay() > left {
                return Ok(Attempt::Refused(look));
            }
        }
        let (verdict, spent) = match &self.shadows {
            None => self.spend(&self.charged).await?,
            Some(shadows) => {
                let again = self.charged.iter().filter(|one| !is_charged_once(one)).cloned();
                let (verdict, spent) = self.spend(&again.collect()).await?;
                (self.whole(&verdict, shadows), spent)
            }
        };
        if self.shadows.is_none() {
            let said = self.charged.iter().zip(verdict.rules());
            let shadows = said.filter(|(one, _)| is_charged_once(one));
            self.shadows = Some(shadows.map(|(_, said)| said.clone()).collect());
        }
        if verdict.is_allowed() && verdict.delay() <= left {
            return Ok(Attempt::Passed(verdict, spent));
        }
        Ok(match self.wait_for(&verdict, left, place) {
            Some(wait) => Attempt::Waits(wait),
            None => Attempt::Refused(verdict),
        })
    }

    /// Charges by the rules in force, if they have changed.
    fn follow_rules(&mut self) -> Result<(), CheckError> {
        let rules = self.limiter.rules();
        if !Arc::ptr_eq(&rules, &self.rules) {
            self.charged = self.limiter.charged(self.attributes, self.cost)?;
            (self.rules, self.shadows) = (rules, None);
        }
        Ok(())
    }

    /// A verdict with what the shadow rules said before.
    fn whole(&self, verdict: &Verdict, shadows: &[RuleDecision]) -> Verdict {
        let (mut said, mut before) = (verdict.rules().iter(), shadows.iter());
        let next = |one: &Charged| match is_charged_once(one) {
            true => before.next().cloned(),
            false => said.next().cloned(),
        };
        let rules = self.charged.iter().filter_map(next).collect();
        Verdict::new(rules, verdict.store_failure()).with_asked(verdict.asked_store())
    }

    /// What a denied request waits for, if that can come in time.
    fn wait_for(
        &self,
        verdict: &Verdict,
        left: Duration,
        place: Option<&Place<'_>>,
    ) -> Option<Wait> {
        verdict.retry_after()?;
        let denied = || {
            let said = self.charged.iter().zip(verdict.rules());
            said.filter(|(one, said)| !one.rule.is_shadow() && said.decision().is_deny())
                .filter_map(|(one, said)| Some((one, said.retry_after()?)))
        };
        // Nothing but the time brings units; a slot may be released at any time.
        let units = denied().filter(|(one, _)| !one.counts_slots()).max_by_key(|(_, wait)| *wait);
        let slots = denied().filter(|(one, _)| one.counts_slots()).max_by_key(|(_, wait)| *wait);
        let units_wait = units.map_or(Duration::ZERO, |(_, wait)| wait);
        let pause = |one: &Charged| match place {
            Some(place) if place.key() == one.key => place.pause(),
            _ => PAUSE_MIN,
        };
        let slots_wait = slots.map_or(Duration::ZERO, |(one, wait)| wait.min(pause(one)));
        if units_wait > left || left.is_zero() {
            return None;
        }
        let (one, _) = if units_wait >= slots_wait { units.or(slots) } else { slots }?;
        let until = Instant::now() + units_wait.max(slots_wait).min(left);
        Some(Wait { key: one.key.clone(), until })
    }

    /// The shortest wait of a request in a line, if those ahead are served before it.
    ///
    /// For the two buckets it follows from the time until the bucket is full, up to the rounding to
    /// whole ticks. Where units come back in windows only the request's own wait is known, and slots
    /// may be released at any time.
    pub(crate) fn shortest_wait(&self, look: &Verdict, place: &Place<'_>) -> Duration {
        if !look.is_allowed() && look.retry_after().is_none() {
            return Duration::MAX;
        }
        let said = || self.charged.iter().zip(look.rules());
        let units = said().filter(|(one, _)| !one.rule.is_shadow() && !one.counts_slots());
        let own = units.filter_map(|(_, said)| said.retry_after()).max().unwrap_or_default();
        let Some((one, said)) = said().find(|(one, _)| one.key == place.key()) else { return own };
        let Some(quota) = &one.quota else { return own };
        if one.sharded.is_some() {
            // What all shards have gained by then may be in others than those that are asked.
            return own;
        }
        let until_full = said.decision().reset_after();
        let wait = match quota.algorithm() {
            Algorithm::TokenBucket => {
                let wanted = place.ahead.saturating_add(one.cost.units());
                let burst = u64::from(quota.burst());
                let beyond = quota.time_to_gain(wanted.saturating_sub(burst));
                let unwanted = quota.time_to_gain(burst.saturating_sub(wanted));
                (until_full + beyond).saturating_sub(unwanted)
            }
            // A leaky bucket lets a request out when all before it has drained.
            Algorithm::LeakyBucket => until_full + quota.time_to_gain(place.ahead),
            _ => return own,
        };
        let rounding = 2 * Duration::from_micros(quota.tick_us().into());
        own.max(wait.saturating_sub(rounding))
    }

    /// Spends, and gives a guard that gives back unless it is kept. The call runs to its end even if
    /// the caller goes away meanwhile, since only then it is known whether it spent.
    pub(crate) async fn spend(
        &self,
        charged: &AllCharged,
    ) -> Result<(Verdict, Option<Spent>), CheckError> {
        let spend = spend(self.limiter.clone(), self.attributes.clone(), charged.clone());
        if self.limiter.store().answers_at_once() {
            return spend.await;
        }
        let spend = inherited(spend);
        let (answer, answered) = oneshot::channel();
        let running = self.limiter.background().begin();
        tokio::spawn(async move {
            // Nobody there to hear the answer: dropping it gives back what was spent.
            let _ = answer.send(spend.await);
            drop(running);
        });
        match answered.await {
            Ok(answer) => answer,
            Err(_) => {
                let text = "the runtime stopped before the store answered";
                Err(CheckError::store(None, StoreError::new(StoreErrorKind::Unavailable, text)))
            }
        }
    }
}

/// Shadow slots are held by the request, so each attempt takes them anew.
fn is_charged_once(one: &Charged) -> bool {
    one.rule.is_shadow() && !one.counts_slots()
}

async fn spend(
    limiter: Limiter,
    request: Attributes,
    charged: AllCharged,
) -> Result<(Verdict, Option<Spent>), CheckError> {
    let ticket = draw_ticket();
    let taken = |charged: AllCharged, locally| {
        let (limiter, request) = (limiter.clone(), request.clone());
        Taken { limiter, request, charged, ticket, locally }
    };
    let slots = |keeps: &dyn Fn(&Charged) -> bool| -> AllCharged {
        charged.iter().filter(|one| one.counts_slots() && keeps(one)).cloned().collect()
    };
    // Who waits out a delay may go away when some of what it spent has stopped to count.
    let delay = charged.iter().map(Charged::delay_max).max().unwrap_or_default();
    let operation = match delay.is_zero() {
        true => Operation::Spend,
        false => Operation::Reserve { ttl: delay + SETTLE_MARGIN },
    };
    let verdict = limiter.decide(operation, &charged, Some(ticket)).await;
    let failure = verdict.as_ref().map_or_else(CheckError::store_failure, Verdict::store_failure);
    if let Some(StoreErrorKind::Timeout | StoreErrorKind::Unavailable) = failure {
        // Slots may have been taken in the store although its answer was lost.
        taken(slots(&|_| true), false).release_unwaited();
    }
    let verdict = verdict?;
    let locally = verdict.store_failure().is_some();
    if !verdict.is_allowed() {
        // A shadow rule grants slots whatever the others say, but here nobody goes on to hold them.
        taken(slots(&|one| one.rule.is_shadow()), locally).release_unwaited();
        return Ok((verdict, None));
    }
    // A shadow rule that says deny has taken nothing.
    let said = charged.iter().zip(verdict.rules());
    let spent = said
        .filter(|(_, said)| said.decision().is_allow())
        .map(|(one, said)| one.where_decided(said));
    let spent = Spent::new(taken(spent.collect(), locally), operation != Operation::Spend);
    Ok((verdict, Some(spent)))
}
