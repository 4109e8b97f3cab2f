//! Spending that is settled when its real cost is known.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Applied, Attributes, Cost, CostRule, Operation};

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::hold::{Hold, HoldKind, draw_ticket};
use crate::limiter::Limiter;
use crate::permit::Taken;
use crate::verdict::Verdict;

/// What [`Limiter::reserve`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a reservation that is not settled stays spent"]
pub struct Reservation {
    verdict: Verdict,
    hold: Option<Hold>,
}

impl Reservation {
    /// Returns what the rules said to the estimate.
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Takes what is to be settled, or `None` if the reservation was denied, no rule applies or
    /// nothing was asked for.
    pub fn into_hold(self) -> Option<Hold> {
        self.hold
    }
}

impl Limiter {
    /// Spends an estimated cost, to be settled within `ttl` when the real cost is known: by
    /// [`commit`](Self::commit), or by [`cancel`](Self::cancel).
    ///
    /// A reservation that is never settled ends by itself after `ttl`: the estimate stays spent,
    /// as if it had been the real cost.
    ///
    /// # Errors
    ///
    /// As for [`check_n`](Self::check_n). While the store cannot answer, the rules' policies decide
    /// on the estimate, and there may be nothing to settle later.
    ///
    /// # Cancel safety
    ///
    /// As for [`check`](Self::check).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Attributes, Cost, Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tokens = Rule::new("llm-tokens", Quota::new("1000/day".parse()?, 1_000)?);
    /// let limiter = Limiter::builder().rule(tokens).build()?;
    /// let request = Attributes::new();
    ///
    /// let estimate = Cost::new(500);
    /// let reserved = limiter.reserve(&request, estimate, Duration::from_secs(60)).await?;
    /// assert_eq!(reserved.verdict().remaining(), Some(500));
    ///
    /// if let Some(hold) = reserved.into_hold() {
    ///     let settled = limiter.commit(&hold, Cost::new(120)).await?;
    ///     assert_eq!(settled.remaining(), Some(880));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(
        &self,
        attributes: &Attributes,
        estimate: Cost,
        ttl: Duration,
    ) -> Result<Reservation, CheckError> {
        let charged: AllCharged = self
            .charged(attributes, estimate)?
            .into_iter()
            .filter(|one| !one.counts_slots())
            .collect();
        let ticket = draw_ticket();
        let verdict = self.decide(Operation::Reserve { ttl }, &charged, Some(ticket)).await?;
        let held: AllCharged = charged
            .iter()
            .zip(verdict.rules())
            .filter(|(one, _)| !one.cost.is_zero())
            .map(|(one, said)| one.where_decided(said))
            .collect();
        let is_held = verdict.is_allowed() && !held.is_empty();
        let hold = is_held.then(|| Hold::new(HoldKind::Units, ticket, attributes, &held));
        Ok(Reservation { verdict, hold })
    }

    /// Settles a reservation at its real cost: gives back what was reserved too much, as far as it
    /// still counts, or takes what was reserved too little, as far as it is there.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_not_held`] if the reservation was settled or has ended, or if its rule is
    /// gone; nothing changes then. [`CheckError::is_store_failure`] if the store could not answer.
    ///
    /// The verdict is an allowance of the rules that held something.
    pub async fn commit(&self, hold: &Hold, cost: Cost) -> Result<Verdict, CheckError> {
        self.settle(hold, self.held(hold, cost)).await
    }

    /// Settles a reservation as [`commit`](Self::commit) does, where a rule takes its cost from an
    /// attribute: by what that attribute is in `attributes`, if it is there.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit), and [`CheckError::is_invalid`] if such an attribute is not a
    /// cost.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Attributes, Cost, CostRule, Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let traffic = Rule::new("traffic", Quota::new("1000/day".parse()?, 1_000)?)
    ///     .with_cost(CostRule::Attribute("bytes".to_owned()));
    /// let limiter = Limiter::builder().rule(traffic).build()?;
    /// let estimate = Attributes::from([("bytes", "400")]);
    ///
    /// let reserved = limiter.reserve(&estimate, Cost::ONE, Duration::from_secs(60)).await?;
    /// if let Some(hold) = reserved.into_hold() {
    ///     let real = Attributes::from([("bytes", "150")]);
    ///     let settled = limiter.commit_with(&hold, &real, Cost::ONE).await?;
    ///     assert_eq!(settled.remaining(), Some(850));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit_with(
        &self,
        hold: &Hold,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Verdict, CheckError> {
        let mut charged = self.held(hold, cost);
        for one in &mut charged {
            if let CostRule::Attribute(name) = one.rule.cost()
                && attributes.value(name).is_some()
            {
                let real = one.rule.cost().cost(attributes, cost);
                one.cost = real.map_err(CheckError::cost)?;
            }
        }
        self.settle(hold, charged).await
    }

    async fn settle(&self, hold: &Hold, charged: AllCharged) -> Result<Verdict, CheckError> {
        if hold.is_slots() {
            return Err(CheckError::not_held());
        }
        let settled = self.apply_exactly(Operation::Settle, &charged, Some(hold.ticket)).await?;
        let held: SmallVec<[_; 2]> =
            settled.rules().iter().filter(|rule| rule.decision().is_allow()).cloned().collect();
        if held.is_empty() {
            return Err(CheckError::not_held());
        }
        Ok(Verdict::new(held, None).with_asked(settled.asked_store()))
    }

    /// Gives back all that a reservation holds.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    pub async fn cancel(&self, hold: &Hold) -> Result<Verdict, CheckError> {
        self.commit(hold, Cost::ZERO).await
    }

    /// Extends the leases of slots to their whole length from now.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_not_held`] if they were released or have ended, or if their rule is gone;
    /// [`CheckError::is_store_failure`] if the store could not answer.
    pub async fn renew(&self, hold: &Hold) -> Result<(), CheckError> {
        let taken = self.taken(hold, false);
        if !hold.is_slots() || taken.charged.is_empty() {
            return Err(CheckError::not_held());
        }
        // Where this node's own buckets hold something, it was taken from them and nowhere else.
        if !self.store().answers_at_once() && self.taken(hold, true).renew().await.is_ok() {
            return Ok(());
        }
        taken.renew().await
    }

    /// Releases slots. It is not an error if they were released or have ended.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_not_held`] if the hold is a reservation's;
    /// [`CheckError::is_store_failure`] if the store could not answer; the slots then come back
    /// when their lease ends.
    pub async fn release(&self, hold: &Hold) -> Result<(), CheckError> {
        if !hold.is_slots() {
            return Err(CheckError::not_held());
        }
        if !self.store().answers_at_once() {
            let local = self.taken(hold, true);
            // What this node's own buckets hold was taken from them, and nowhere else.
            if !local.charged.is_empty() && local.renew().await.is_ok() {
                return local.release().await;
            }
        }
        self.taken(hold, false).release().await
    }

    fn taken(&self, hold: &Hold, locally: bool) -> Taken {
        Taken {
            limiter: self.clone(),
            request: hold.request.clone(),
            charged: self.held(hold, Cost::ZERO),
            ticket: hold.ticket,
            locally,
        }
    }

    /// What the rules in force charge for a hold.
    fn held(&self, hold: &Hold, cost: Cost) -> AllCharged {
        let rules = self.rules();
        let held = hold.rules.iter().filter_map(|held| {
            let applied = rules.charge_by(&held.name, &hold.request)?;
            let Applied { rule, key, quota: Some(quota), exception } = applied else { return None };
            let charged = self.kept(Charged {
                rule,
                key,
                quota: Some(quota),
                exception,
                cost: Cost::new(cost.units().saturating_mul(held.factor)),
                factor: held.factor,
                sharded: None,
                lease: None,
            });
            charged.at(held.shard)
        });
        held.filter(|one| one.counts_slots() == hold.is_slots()).collect()
    }
}
