//! Buckets that are kept in shards: which of them are asked, and what their answers say together.
//!
//! A check asks one shard, drawn at random among those that can hold its cost, and if that denies one
//! other. What asks for the state of a bucket asks all of its shards.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tollgate_core::{
    Allow, Charge, Cost, Decision, Deny, Operation, Quota, ShardTerms, Ticket, Timestamp, key,
};

use crate::charged::{AllCharged, Charged};
use crate::decide::Unanswered;
use crate::limiter::Limiter;
use crate::verdict::{Mode, RuleDecision, Verdict};

/// How a bucket is kept in shards, and which of them is asked.
#[derive(Clone)]
pub(crate) struct Sharded {
    terms: ShardTerms,
    asked: Option<Shard>,
}

/// One shard of a bucket.
#[derive(Clone)]
struct Shard {
    number: u8,
    key: String,
}

impl Sharded {
    pub(crate) const fn new(terms: ShardTerms) -> Self {
        Self { terms, asked: None }
    }

    pub(crate) const fn terms(&self) -> &ShardTerms {
        &self.terms
    }

    /// The number of the shard that is asked.
    pub(crate) fn number(&self) -> Option<u8> {
        self.asked.as_ref().map(|shard| shard.number)
    }

    /// The key and the quota of the shard that is asked.
    pub(crate) fn bucket(&self) -> Option<(&str, &Quota)> {
        let Shard { number, key } = self.asked.as_ref()?;
        Some((key, self.terms.quota(usize::from(*number))))
    }
}

impl Charged {
    /// Charges the shard of that number, or `None` if there is none.
    pub(crate) fn on_shard(mut self, number: usize) -> Option<Self> {
        let key = key::shard(&self.key, number);
        let sharded = self.sharded.as_mut()?;
        if number >= sharded.terms.count() {
            return None;
        }
        sharded.asked = Some(Shard { number: u8::try_from(number).ok()?, key });
        Some(self)
    }

    /// Charges the bucket where something was taken before, or `None` if there is no such place any
    /// more.
    pub(crate) fn at(self, shard: Option<u8>) -> Option<Self> {
        match shard {
            Some(number) => self.on_shard(number.into()),
            None if self.sharded.is_some() => None,
            None => Some(self),
        }
    }

    /// Charges the bucket that has decided.
    pub(crate) fn where_decided(&self, said: &RuleDecision) -> Self {
        self.clone().at(said.shard).unwrap_or_else(|| self.clone())
    }

    /// The keys under which the store keeps the bucket.
    pub(crate) fn keys_in_store(&self) -> SmallVec<[String; 1]> {
        match &self.sharded {
            None => SmallVec::from_iter([self.key.clone()]),
            Some(sharded) => {
                (0..sharded.terms.count()).map(|number| key::shard(&self.key, number)).collect()
            }
        }
    }

    /// The shards, if none of them was chosen yet.
    fn undecided(&self) -> Option<&ShardTerms> {
        self.sharded.as_ref().filter(|one| one.asked.is_none()).map(|one| &one.terms)
    }

    /// The same charge to each of the shards.
    fn on_all_shards(&self) -> impl Iterator<Item = Self> {
        let count = self.sharded.as_ref().map_or(0, |one| one.terms.count());
        (0..count).filter_map(|number| self.clone().on_shard(number))
    }
}

/// Draws the numbers by which shards are chosen.
#[derive(Debug)]
pub(crate) struct Chooser {
    seed: u64,
    drawn: AtomicU64,
}

impl Chooser {
    /// Without a seed every chooser draws other numbers.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Self { seed, drawn: AtomicU64::new(0) }
    }

    fn draw(&self) -> u32 {
        // Ordering: a counter that guards no other memory.
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        // The finalizer of splitmix64: numbers in a row become bits that look random.
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 32) as u32
    }
}

impl Limiter {
    /// Applies an operation to buckets of which some are kept in shards.
    pub(crate) async fn ask_shards(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Verdict, Unanswered> {
        match operation {
            Operation::Look => self.look_at_shards(charged, now).await,
            Operation::Spend | Operation::Reserve { .. } => {
                self.spend_in_shards(operation, charged, ticket, now).await
            }
            Operation::Refund => {
                let placed = self.placed_for_refund(charged, ticket, now).await?;
                self.ask(operation, &placed, ticket, now).await
            }
            _ => self.ask(operation, &self.on_some_shards(charged), ticket, now).await,
        }
    }

    /// Chooses a shard of each bucket that has some and none of them chosen.
    pub(crate) fn on_some_shards<'c>(&self, charged: &'c AllCharged) -> Cow<'c, AllCharged> {
        if charged.iter().all(|one| one.undecided().is_none()) {
            return Cow::Borrowed(charged);
        }
        let place = |one: &Charged| {
            let terms = one.undecided()?;
            // A cost that none can hold is denied by each alike.
            let number = terms.first(one.cost, self.chooser().draw()).unwrap_or(0);
            one.clone().on_shard(number)
        };
        Cow::Owned(charged.iter().map(|one| place(one).unwrap_or_else(|| one.clone())).collect())
    }

    /// Spends in one shard of each bucket. Where that denies, and nothing else does that no other
    /// shard helps, one other is asked.
    async fn spend_in_shards(
        &self,
        operation: Operation,
        charged: &AllCharged,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<Verdict, Unanswered> {
        let start = Instant::now();
        let first = self.on_some_shards(charged);
        let said = self.ask(operation, &first, ticket, now).await?;
        // Where the rest of a denied request is given back later, that would concern what is taken
        // under the same ticket once more.
        if ticket.is_some() && first.len() > 1 && !self.store().is_atomic() {
            return Ok(said);
        }
        let Some(second) = self.asked_again(&first, &said) else { return Ok(said) };
        let places: SmallVec<[usize; 2]> = second.iter().map(|(place, _)| *place).collect();
        let second: AllCharged = second.into_iter().map(|(_, one)| one).collect();
        let left = self.store().deadline(self.deadline()).saturating_sub(start.elapsed());
        let again = within(left, self.ask(operation, &second, ticket, now)).await;
        // The denial stands if the other shard does not answer in time.
        let again = match again {
            Some(Ok(again)) => again,
            Some(Err(Unanswered { asked, .. })) => {
                let asked = said.asked_store() || asked;
                return Ok(said.with_asked(asked));
            }
            None => return Ok(said.with_asked(true)),
        };
        let mut rules: SmallVec<[RuleDecision; 2]> = said.rules().iter().cloned().collect();
        for (place, then) in places.into_iter().zip(again.rules()) {
            if let Some(before) = rules.get_mut(place) {
                let comes_sooner = |before: &RuleDecision| match (&before.decision, &then.decision)
                {
                    (Decision::Deny(one), Decision::Deny(other)) => {
                        one.retry_after <= other.retry_after
                    }
                    _ => false,
                };
                if !comes_sooner(before) {
                    *before = then.clone();
                }
            }
        }
        Ok(Verdict::new(rules, None).with_asked(said.asked_store() || again.asked_store()))
    }

    /// What is asked a second time, each with its place among all: the denied shards' buckets on
    /// other shards, and with them the rest of the request if it was denied. `None` if that cannot
    /// change anything.
    fn asked_again(
        &self,
        asked: &AllCharged,
        said: &Verdict,
    ) -> Option<SmallVec<[(usize, Charged); 2]>> {
        let elsewhere: SmallVec<[Option<Charged>; 2]> = asked
            .iter()
            .zip(said.rules())
            .map(|(one, said)| self.on_another_shard(one).filter(|_| said.decision.is_deny()))
            .collect();
        let is_stuck = |((one, said), elsewhere): ((&Charged, &RuleDecision), &Option<Charged>)| {
            !one.rule.is_shadow() && said.decision.is_deny() && elsewhere.is_none()
        };
        let stays_denied = asked.iter().zip(said.rules()).zip(&elsewhere).any(is_stuck);
        let asks_all = !said.is_allowed() && !stays_denied;
        let again: SmallVec<[(usize, Charged); 2]> = asked
            .iter()
            .zip(elsewhere)
            .enumerate()
            .filter_map(|(place, (one, elsewhere))| {
                // Shadow rules count for themselves, and once.
                let is_asked = if one.rule.is_shadow() { elsewhere.is_some() } else { asks_all };
                is_asked.then(|| (place, elsewhere.unwrap_or_else(|| one.clone())))
            })
            .collect();
        (!again.is_empty()).then_some(again)
    }

    fn on_another_shard(&self, one: &Charged) -> Option<Charged> {
        let sharded = one.sharded.as_ref()?;
        let denied = usize::from(sharded.number()?);
        let number = sharded.terms.second(denied, one.cost, self.chooser().draw())?;
        one.clone().on_shard(number)
    }

    /// Looks at all shards of each bucket, unless one of them was chosen.
    async fn look_at_shards(
        &self,
        charged: &AllCharged,
        now: Timestamp,
    ) -> Result<Verdict, Unanswered> {
        let all: Vec<Charged> = charged
            .iter()
            .flat_map(|one| {
                let alone = one.undecided().is_none().then(|| one.clone());
                let each = alone.is_none().then(|| one.on_all_shards());
                alone.into_iter().chain(each.into_iter().flatten())
            })
            .collect();
        let mut said = Vec::with_capacity(all.len());
        let mut asked = false;
        for some in all.chunks(Charge::COUNT_MAX) {
            let some: AllCharged = some.iter().cloned().collect();
            let looked = self.ask(Operation::Look, &some, None, now).await?;
            said.extend(looked.rules().iter().cloned());
            asked |= looked.asked_store();
        }
        let mut said = said.into_iter();
        let rules = charged.iter().filter_map(|one| match one.undecided() {
            None => said.next(),
            Some(terms) => {
                let shards = said.by_ref().take(terms.count()).map(|said| said.decision);
                let shards: SmallVec<[Decision; 16]> = shards.collect();
                Some(one.decided(together(&shards, terms.holding(one.cost))?, Mode::Exact))
            }
        });
        Ok(Verdict::new(rules.collect(), None).with_asked(asked))
    }

    /// Chooses the shards to which a cost is given back: under a ticket always the same ones, so that
    /// a repeated refund meets its record, otherwise those that lack the most.
    async fn placed_for_refund(
        &self,
        charged: &AllCharged,
        ticket: Option<Ticket>,
        now: Timestamp,
    ) -> Result<AllCharged, Unanswered> {
        let mut placed = AllCharged::new();
        for one in charged {
            let Some(terms) = one.undecided() else {
                placed.push(one.clone());
                continue;
            };
            let number = match ticket {
                Some(ticket) => terms.first(Cost::ZERO, (ticket.bits() >> 96) as u32),
                None => {
                    let shards: AllCharged = one.on_all_shards().collect();
                    let looked = self.ask(Operation::Look, &shards, None, now).await?;
                    let lacks = |(number, said): &(usize, &RuleDecision)| {
                        terms.quota(*number).burst().saturating_sub(said.decision.remaining())
                    };
                    let most = looked.rules().iter().enumerate().max_by_key(lacks);
                    most.map(|(number, _)| number)
                }
            };
            placed.extend(one.clone().on_shard(number.unwrap_or(0)));
        }
        Ok(placed)
    }
}

/// Waits for an answer for so long. Without a runtime nobody measures the time.
async fn within<T>(left: Duration, answer: impl Future<Output = T>) -> Option<T> {
    if Handle::try_current().is_err() {
        return Some(answer.await);
    }
    timeout(left, answer).await.ok()
}

/// What the shards of a bucket say together to a look: what is left in all of them, and whether one
/// of those from the first on that can hold the cost has it.
fn together(shards: &[Decision], holding: usize) -> Option<Decision> {
    let judging = shards.get(..holding).filter(|some| !some.is_empty()).unwrap_or(shards);
    let retry_after = judging.iter().map(|one| one.retry_after().unwrap_or_default()).min()?;
    // Each tells that of the whole.
    let limit = shards.first()?.limit();
    let remaining = shards.iter().map(Decision::remaining).sum();
    let reset_after = shards.iter().map(Decision::reset_after).max()?;
    Some(if judging.iter().all(Decision::is_deny) {
        Decision::Deny(Deny { limit, remaining, reset_after, retry_after })
    } else {
        Decision::Allow(Allow { limit, remaining, reset_after, delay: Duration::ZERO })
    })
}

#[cfg(test)]
mod tests;
