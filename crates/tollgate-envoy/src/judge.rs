//! From a plan to what every part of it said.

use std::time::{Duration, Instant};

use tollgate::{CheckError, Limiter, Part, RuleDecision, Verdict};
use tollgate_core::{Cost, Decision};

use crate::observer::Observer;
use crate::plan::{Group, Plan};

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Judged {
    /// What the parts said, by group and in their order.
    pub(crate) decided: [Vec<RuleDecision>; Group::COUNT],
    pub(crate) is_denied: bool,
}

/// Judges plans.
pub(crate) struct Judge<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) observer: &'a dyn Observer,
    /// Whether each descriptor spends even if another denies, or itself.
    pub(crate) spend_on_denial: bool,
    /// How long the store may take.
    pub(crate) patience: Option<Duration>,
}

impl Judge<'_> {
    /// Looks, spends and gives back as the plan says. A denied request changes nothing, unless
    /// denials spend.
    pub(crate) async fn judge(&self, plan: &Plan) -> Result<Judged, CheckError> {
        let [probes, spends, refunds] = &plan.parts;
        let mut judged = Judged { decided: Default::default(), is_denied: false };
        let looked = self.look(probes).await?;
        judged.put(Group::Probe, looked);
        judged.is_denied = is_denied(plan, &judged);
        let may_change = self.spend_on_denial || !judged.is_denied;

        let spent = if !may_change {
            self.look(spends).await?
        } else if spends.is_empty() && !plan.is_empty() {
            None
        } else {
            Some(self.spend(spends).await?)
        };
        let failed = spent.as_ref().is_some_and(|verdict| verdict.store_failure().is_some());
        judged.put(Group::Spend, spent);
        judged.is_denied = is_denied(plan, &judged);
        if may_change && !failed {
            if self.spend_on_denial {
                self.take_the_rest(spends, &mut judged).await;
            } else if judged.is_denied {
                self.give_back(plan, &mut judged).await;
            }
        }

        let given_back = if judged.is_denied && !self.spend_on_denial {
            self.look(&without_cost(refunds)).await?
        } else {
            self.refund(refunds).await?
        };
        judged.put(Group::Refund, given_back);
        Ok(judged)
    }

    async fn look(&self, parts: &[Part]) -> Result<Option<Verdict>, CheckError> {
        if parts.is_empty() {
            return Ok(None);
        }
        let looked = self.limiter.peek_parts(parts, self.patience).await;
        self.observer.told(looked.as_ref());
        looked.map(Some)
    }

    async fn spend(&self, parts: &[Part]) -> Result<Verdict, CheckError> {
        let start = Instant::now();
        let spent = self.limiter.check_parts(parts, self.patience).await;
        self.observer.decided(spent.as_ref(), start.elapsed());
        let denies =
            |verdict: &&Verdict| verdict.rules().iter().any(|one| one.decision().is_deny());
        if let Some(denied) = spent.as_ref().ok().filter(denies) {
            self.observer.denied(parts, denied);
        }
        spent
    }

    /// Gives hits back. Where the store cannot take them they are lost, which limits too much
    /// rather than too little, and never denies a request.
    async fn refund(&self, parts: &[Part]) -> Result<Option<Verdict>, CheckError> {
        if parts.is_empty() {
            return Ok(None);
        }
        let refunded = self.limiter.refund_parts(parts).await;
        self.observer.told(refunded.as_ref());
        match refunded {
            Err(error) if error.is_store_failure() => self.look(&without_cost(parts)).await,
            refunded => refunded.map(Some),
        }
    }

    /// Spends what is left where a cost did not fit.
    async fn take_the_rest(&self, spends: &[Part], judged: &mut Judged) {
        let decided = &mut judged.decided[Group::Spend as usize];
        let short: Vec<usize> = (0..decided.len())
            .filter(|index| {
                let decision = decided[*index].decision();
                decision.is_deny() && decision.remaining() > 0
            })
            .collect();
        if short.is_empty() {
            return;
        }
        let rest: Vec<Part> = short
            .iter()
            .map(|index| {
                let left = decided[*index].decision().remaining();
                spends[*index].clone().with_cost(left.into()).alone()
            })
            .collect();
        let taken = self.limiter.check_parts(&rest, self.patience).await;
        self.observer.told(taken.as_ref());
        // What stands in the answer is how things are now.
        let asked: Vec<Part> = short.iter().map(|index| spends[*index].clone()).collect();
        let looked = self.limiter.peek_parts(&asked, self.patience).await;
        self.observer.told(looked.as_ref());
        for (index, now) in short.iter().zip(looked.iter().flat_map(|verdict| verdict.rules())) {
            // It may have been refilled since, but this request was denied.
            if now.decision().is_deny() {
                decided[*index] = now.clone();
            }
        }
    }

    /// Gives back what parts spent that do not wait for the others, once the request is denied.
    async fn give_back(&self, plan: &Plan, judged: &mut Judged) {
        let (spends, traits) =
            (&plan.parts[Group::Spend as usize], &plan.traits[Group::Spend as usize]);
        let decided = &mut judged.decided[Group::Spend as usize];
        let is_enforced = |index: usize| !spends[index].rule().is_shadow();
        // Where no wait helps, nobody has spent anything.
        let is_hopeless = |index: usize| {
            let decided = &decided[index];
            decided.decision().is_deny() && decided.retry_after().is_none()
        };
        let mut ordinary = (0..spends.len()).filter(|i| is_enforced(*i) && !traits[*i].quota_mode);
        if ordinary.any(is_hopeless) {
            return;
        }
        // If nothing but the parts in quota mode denies, all others have spent.
        let all_spent = (0..spends.len())
            .filter(|index| is_enforced(*index) && !traits[*index].quota_mode)
            .all(|index| decided[index].decision().is_allow());
        let spent: Vec<usize> = (0..spends.len())
            .filter(|index| is_enforced(*index) && decided[*index].decision().is_allow())
            .filter(|index| all_spent || traits[*index].quota_mode)
            .collect();
        if spent.is_empty() {
            return;
        }
        let parts: Vec<Part> = spent.iter().map(|index| spends[*index].clone()).collect();
        let refunded = self.limiter.refund_parts(&parts).await;
        self.observer.told(refunded.as_ref());
        for (index, now) in spent.iter().zip(refunded.iter().flat_map(|verdict| verdict.rules())) {
            decided[*index] = now.clone();
        }
    }
}

impl Judged {
    fn put(&mut self, group: Group, verdict: Option<Verdict>) {
        if let Some(verdict) = verdict {
            self.decided[group as usize] = verdict.rules().to_vec();
        }
    }
}

/// Tells whether a part that may deny alone does, or all that only deny together. What is not
/// decided yet does not deny.
fn is_denied(plan: &Plan, judged: &Judged) -> bool {
    let (mut quotas, mut spent_quotas) = (0_usize, 0_usize);
    for group in [Group::Probe, Group::Spend] {
        let decided = &judged.decided[group as usize];
        let parts = plan.parts[group as usize].iter().zip(&plan.traits[group as usize]);
        for (index, (part, traits)) in parts.enumerate() {
            let denies = !part.rule().is_shadow()
                && decided.get(index).is_some_and(|one| one.decision().is_deny());
            if traits.quota_mode {
                quotas += 1;
                spent_quotas += usize::from(denies);
            } else if denies {
                return true;
            }
        }
    }
    quotas > 0 && quotas == spent_quotas
}

fn without_cost(parts: &[Part]) -> Vec<Part> {
    parts.iter().cloned().map(|part| part.with_cost(Cost::ZERO)).collect()
}

/// Orders decisions from the most to the least restrictive: denials first, those that no wait helps
/// and then the longest wait first; then the fewest left, the longest time to full first.
pub(crate) fn restriction(decided: &RuleDecision) -> impl Ord + use<> {
    let decision: &Decision = decided.decision();
    (
        decision.is_allow(),
        decided.retry_after().is_some(),
        std::cmp::Reverse(decided.retry_after().unwrap_or_default()),
        decision.remaining(),
        std::cmp::Reverse(decision.reset_after()),
    )
}
