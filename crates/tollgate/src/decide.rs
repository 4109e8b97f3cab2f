//! From what a request is charged to, to what the rules said.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{
    Charge, Cost, Decision, Decisions, Deny, Operation, Quota, StoreError, Ticket, Timestamp,
};

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::lease::leased;
use crate::limiter::Limiter;
use crate::store_parts::StoreParts;
use crate::verdict::{Mode, Verdict};

impl Limiter {
    /// Decides a check: by the store, or by the rules' policies if it cannot answer.
    pub(crate) async fn decide(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
    ) -> Result<Verdict, CheckError> {
        if charged.is_empty() {
            return Ok(Verdict::new(SmallVec::new(), None));
        }
        let enforced = || charged.iter().filter(|one| !one.rule.is_shadow());
        // A request that a rule blocks spends nothing anywhere (G7).
        let blocked = enforced().any(Charged::is_blocked);
        if !blocked && let Some(one) = enforced().find(|one| !one.is_possible()) {
            return Err(CheckError::impossible(one));
        }
        if blocked {
            return Box::pin(self.decide_blocked(charged, ticket)).await;
        }
        if is_check(operation, ticket)
            && let Some(said) = self.take_slices(charged)
        {
            return match leased(charged, &said) {
                Some(verdict) => Ok(verdict),
                // It is rare, and would make the future of every check larger.
                None => Box::pin(self.decide_beside_slices(charged, said)).await,
            };
        }
        self.decide_in_store(operation, charged, ticket).await
    }

    /// Decides a check that a rule blocks. What nobody waits for asks one shard, and not all of them.
    async fn decide_blocked(
        &self,
        charged: &AllCharged,
        ticket: Option<Ticket>,
    ) -> Result<Verdict, CheckError> {
        self.decide_in_store(Operation::Look, &self.on_some_shards(charged), ticket).await
    }

    /// Decides by the store, or by the rules' policies if it cannot answer.
    pub(crate) async fn decide_in_store(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
    ) -> Result<Verdict, CheckError> {
        let now = self.now();
        let verdict = match is_whole(charged) {
            true => self.ask(operation, charged, ticket, now).await,
            false => Box::pin(self.ask_shards(operation, charged, ticket, now)).await,
        };
        if let Ok(said) = &verdict
            && is_check(operation, ticket)
            && !said.is_allowed()
            && !said.asked_store()
        {
            self.denials().note_hit();
        }
        verdict.or_else(|unanswered| {
            self.decide_unanswered(operation, charged, ticket, now, unanswered)
        })
    }

    /// Decides what the store has not answered, unless it was asked for what cannot be.
    pub(crate) fn decide_unanswered(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
        now: Timestamp,
        Unanswered { error, asked }: Unanswered,
    ) -> Result<Verdict, CheckError> {
        if error.is_invalid() {
            return Err(CheckError::store(None, error));
        }
        let verdict = self.decide_by_policy(operation, charged, ticket, now, error)?;
        Ok(verdict.with_asked(asked))
    }

    /// Gives a cost back to one bucket.
    pub(crate) async fn refund_to(
        &self,
        key: &str,
        quota: &Quota,
        cost: Cost,
    ) -> Result<(), StoreError> {
        let charges = [Charge::new(key, quota, cost)];
        let refunded =
            self.store().apply(Operation::Refund, &charges, self.now(), self.deadline()).await;
        self.denials().forget(key);
        refunded.map(drop)
    }

    /// Applies an operation that no policy can answer for the store.
    pub(crate) async fn apply_exactly(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
    ) -> Result<Verdict, CheckError> {
        let now = self.now();
        let verdict = match is_whole(charged) {
            true => self.ask(operation, charged, ticket, now).await,
            false => Box::pin(self.ask_shards(operation, charged, ticket, now)).await,
        };
        verdict.map_err(|unanswered| CheckError::store(None, unanswered.error))
    }

    /// Asks the store for what it says to all that is charged and not blocked, where each has its
    /// bucket.
    pub(crate) async fn ask(
        &self,
        operation: Operation,
        charged: &[Charged],
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Verdict, Unanswered> {
        let mut charges: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        for one in charged {
            if let Some(charge) = one.charge(ticket) {
                charges.push(charge);
            }
        }
        if charges.is_empty() {
            return Ok(exact(charged, &[]));
        }
        let mut asked = StoreParts::one(0);
        let is_remote = !self.store().answers_at_once();
        if is_remote {
            if let Some(known) = self.known(operation, ticket, &charges, now) {
                return Ok(exact(charged, &known));
            }
            self.keep_announcing();
            asked = charges.iter().map(|charge| self.store().part_of(charge.key)).collect();
            if !self.is_asked(asked) {
                return Err(Unanswered { error: self.health().not_asked(), asked: false });
            }
        }
        // Without a runtime nobody probes, and requests find out.
        let finds_out = is_remote && !(self.health().open() & asked).is_empty();
        let answer = self.store().apply(operation, &charges, now, self.deadline()).await;
        let decisions = match answer {
            Ok(decisions) => decisions,
            Err(error) => {
                if self.health().note_failure(asked, &error) && is_remote {
                    self.keep_probing();
                }
                return Err(Unanswered { error, asked: true });
            }
        };
        if is_remote {
            if finds_out {
                self.health().close(asked);
            }
            self.health().note_answer(asked, operation, &decisions);
            self.learn(operation, ticket, &charges, &decisions, now);
            self.charge_debts();
        }
        Ok(exact(charged, &decisions).with_asked(true))
    }

    /// The parts of the store in which buckets are kept.
    pub(crate) fn parts_of(&self, charged: &[Charged]) -> StoreParts {
        let keys = charged.iter().flat_map(Charged::keys_in_store);
        keys.map(|key| self.store().part_of(&key)).collect()
    }

    /// Tells whether requests ask these parts of the store. While they do not, probes do.
    pub(crate) fn is_asked(&self, parts: StoreParts) -> bool {
        (self.health().open() & parts).is_empty() || !self.keep_probing()
    }

    /// What the store would say to a check, if it is a denial that was told not long ago.
    fn known(
        &self,
        operation: Operation,
        ticket: Option<Ticket>,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Option<Decisions> {
        is_check(operation, ticket).then(|| self.denials().find(charges, now))?
    }

    /// Keeps what the store denied, and forgets what an operation may have changed.
    fn learn(
        &self,
        operation: Operation,
        ticket: Option<Ticket>,
        charges: &[Charge<'_>],
        decisions: &Decisions,
        now: Timestamp,
    ) {
        if is_check(operation, ticket) {
            self.denials().keep(charges, decisions, now);
        } else if matches!(operation, Operation::Refund | Operation::Settle) {
            charges.iter().for_each(|charge| self.denials().forget(charge.key));
        }
    }
}

/// Why there is no verdict, and whether the store was asked at all.
pub(crate) struct Unanswered {
    pub(crate) error: StoreError,
    pub(crate) asked: bool,
}

/// Whether an operation is a check, which neither holds nor looks.
fn is_check(operation: Operation, ticket: Option<Ticket>) -> bool {
    operation == Operation::Spend && ticket.is_none()
}

/// Whether no bucket is kept in shards. What few rules need must not make every check's future larger.
fn is_whole(charged: &[Charged]) -> bool {
    charged.iter().all(|one| one.sharded.is_none())
}

fn exact(charged: &[Charged], decisions: &[Decision]) -> Verdict {
    let mut decisions = decisions.iter();
    let mut decided = SmallVec::new();
    for one in charged {
        let decision = if one.is_blocked() { None } else { decisions.next() };
        decided.push(one.decided(*decision.unwrap_or(&BLOCKED), Mode::Exact));
    }
    Verdict::new(decided, None)
}

/// What a rule says to a request that it blocks.
pub(crate) const BLOCKED: Decision = Decision::Deny(Deny {
    limit: 0,
    remaining: 0,
    reset_after: Duration::ZERO,
    retry_after: Duration::ZERO,
});
