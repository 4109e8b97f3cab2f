//! Slots and units that are given back when they are no longer needed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tollgate_core::{Algorithm, Applied, Attributes, Cost, Operation, Quota, Ticket};

use crate::charged::{AllCharged, Charged};
use crate::error::CheckError;
use crate::hold::{Hold, HoldKind};
use crate::limiter::Limiter;
use crate::verdict::RuleDecision;

/// The slots of a concurrency limit that a request holds. Dropping it releases them.
///
/// Made by [`Limiter::acquire`] and [`Limiter::enter`]. A holder that works for longer than the
/// rule's lease [renews](Self::renew) the permit, or has it [renewed](Self::renewing); without that
/// its slots come back by themselves when the lease ends.
///
/// The release on drop runs in the background on the current tokio runtime if the store is a
/// remote one. Without a runtime, or if the store does not answer, the slots come back when the
/// lease ends. A process that ends waits for [`Limiter::given_back`] first.
#[must_use = "dropping a permit releases its slots"]
pub struct Permit {
    taken: Taken,
    held: bool,
    renewals: Option<AbortHandle>,
}

impl Permit {
    const fn new(taken: Taken) -> Self {
        Self { taken, held: true, renewals: None }
    }

    /// Returns how long the slots are held from now on if the permit is renewed now: the shortest
    /// lease of the rules whose slots they are.
    pub fn lease(&self) -> Duration {
        self.taken.lease().unwrap_or(Algorithm::LEASE_TTL_DEFAULT)
    }

    /// Extends the lease to its whole length from now.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_not_held`] if the lease has ended, [`CheckError::is_store_failure`] if the
    /// store could not answer.
    pub async fn renew(&self) -> Result<(), CheckError> {
        self.taken.renew().await
    }

    /// Renews the lease in the background, each time that a third of it has passed, for as long as
    /// the permit is held. A renewal that fails is tried again after another third, so the slots
    /// outlast a store that does not answer for a third of the lease.
    ///
    /// Without a tokio runtime nothing is renewed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Attributes, Cost, Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = Quota::concurrency(1, Duration::from_millis(30))?;
    /// let limiter = Limiter::builder().rule(Rule::new("exports", exports)).build()?;
    /// let request = Attributes::new();
    ///
    /// let held = limiter.enter(&request, Cost::ONE).await?.into_permit().map(|one| one.renewing());
    /// tokio::time::sleep(Duration::from_millis(100)).await;
    /// assert_eq!(limiter.peek(&request).await?.remaining(), Some(0));
    ///
    /// drop(held);
    /// assert_eq!(limiter.peek(&request).await?.remaining(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn renewing(mut self) -> Self {
        let (taken, third) = (self.taken.clone(), self.lease() / 3);
        let renewals = async move {
            loop {
                sleep(third).await;
                if taken.renew().await.is_err_and(|error| error.is_not_held()) {
                    tracing::warn!("a lease ended before it was renewed, its slots are free");
                    return;
                }
            }
        };
        let spawned = Handle::try_current().map(|runtime| runtime.spawn(renewals).abort_handle());
        self.stop_renewals();
        self.renewals = spawned.ok();
        self
    }

    /// Releases the slots and waits until that is done.
    ///
    /// # Errors
    ///
    /// [`CheckError::is_store_failure`] if the store could not answer; the slots then come back
    /// when the lease ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the slots may be released or come back when the lease ends.
    pub async fn release(mut self) -> Result<(), CheckError> {
        self.held = false;
        self.stop_renewals();
        self.taken.release().await
    }

    /// Turns the permit into a [`Hold`], which can be handed to another process and releases
    /// nothing when it is dropped.
    pub fn into_hold(mut self) -> Hold {
        self.held = false;
        let Taken { ticket, request, charged, .. } = &self.taken;
        Hold::new(HoldKind::Slots, *ticket, request, charged)
    }

    fn stop_renewals(&mut self) {
        if let Some(renewals) = self.renewals.take() {
            renewals.abort();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.stop_renewals();
        if !self.held {
            return;
        }
        let taken = self.taken.clone();
        self.taken.limiter.background().run(async move {
            // What is not released comes back when the lease ends.
            let _ = taken.release().await;
        });
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("ticket", &self.taken.ticket).finish_non_exhaustive()
    }
}

/// What is held under one ticket, and where.
#[derive(Clone)]
pub(crate) struct Taken {
    pub(crate) limiter: Limiter,
    pub(crate) request: Attributes,
    pub(crate) charged: AllCharged,
    pub(crate) ticket: Ticket,
    /// Whether it was taken from this node's own buckets, since the store could not answer.
    pub(crate) locally: bool,
}

impl Taken {
    /// The shortest lease of the slots.
    fn lease(&self) -> Option<Duration> {
        let lease = |one: &Charged| match one.quota.as_ref().map(Quota::algorithm) {
            Some(Algorithm::Concurrency { lease_ttl }) => Some(lease_ttl),
            _ => None,
        };
        self.charged.iter().filter_map(lease).min()
    }

    pub(crate) async fn renew(&self) -> Result<(), CheckError> {
        if self.apply(Operation::Renew, Some(self.ticket)).await? {
            Ok(())
        } else {
            Err(CheckError::not_held())
        }
    }

    /// Gives the units back. It is called once, so it needs no record under the ticket.
    async fn refund(&self) -> Result<(), CheckError> {
        self.apply(Operation::Refund, None).await.map(drop)
    }

    /// Gives the units of a reservation back, as far as they still count.
    async fn cancel(&self) -> Result<(), CheckError> {
        let nothing = |one: &Charged| Charged { cost: Cost::ZERO, ..one.clone() };
        let cancelled =
            Self { charged: self.charged.iter().map(nothing).collect(), ..self.clone() };
        cancelled.apply(Operation::Settle, Some(self.ticket)).await.map(drop)
    }

    pub(crate) async fn release(&self) -> Result<(), CheckError> {
        let released = self.apply(Operation::Release, Some(self.ticket)).await;
        self.charged.iter().for_each(|one| self.limiter.lines().wake(&one.key));
        released.map(drop)
    }

    /// Applies an operation where the slots and units are held, and tells whether every enforced
    /// rule allowed it; if there is none, whether every shadow rule did.
    async fn apply(
        &self,
        operation: Operation,
        ticket: Option<Ticket>,
    ) -> Result<bool, CheckError> {
        let (limiter, charged) = (&self.limiter, self.charged_now());
        if self.locally {
            return limiter.apply_locally(operation, &charged, ticket);
        }
        let verdict = limiter.apply_exactly(operation, &charged, ticket).await?;
        let has_enforced = verdict.rules().iter().any(|rule| !rule.rule().is_shadow());
        let counts = |rule: &&RuleDecision| !has_enforced || !rule.rule().is_shadow();
        Ok(verdict.rules().iter().filter(counts).all(|rule| rule.decision().is_allow()))
    }

    /// What was charged, under the quotas that are now in force: an old one would judge what others
    /// wrote under the new.
    fn charged_now(&self) -> AllCharged {
        let rules = self.limiter.rules();
        let now = |one: &Charged| {
            let mut one = one.clone();
            let shard = one.sharded.as_ref().and_then(|sharded| sharded.number());
            let is_in_force = rules.iter().any(|rule| Arc::ptr_eq(rule, &one.rule));
            if !is_in_force
                && let Some(applied) = rules.charge_by(one.rule.name(), &self.request)
                && let Applied { rule, key, quota: Some(quota), exception } = applied
                && key == one.key
            {
                (one.rule, one.quota, one.exception) = (rule, Some(quota), exception);
                // Where the bucket has other shards now, there may be nothing to give back to.
                return self.limiter.kept(one).at(shard);
            }
            Some(one)
        };
        self.charged.iter().filter_map(now).collect()
    }

    /// Releases slots, if there are any, without a caller who waits for it.
    pub(crate) fn release_unwaited(self) {
        if self.charged.is_empty() {
            return;
        }
        let limiter = self.limiter.clone();
        limiter.background().run(async move {
            // What is not released comes back when the lease ends.
            let _ = self.release().await;
        });
    }
}

/// Gives back what was spent for a caller who did not wait to the end.
pub(crate) struct Spent {
    taken: Taken,
    /// Whether it can be settled, so that only what still counts is given back.
    reserved: bool,
    kept: bool,
}

impl Spent {
    pub(crate) const fn new(taken: Taken, reserved: bool) -> Self {
        Self { taken, reserved, kept: false }
    }

    /// Leaves everything spent; of what was charged, the slots are returned as a permit.
    pub(crate) fn keep(mut self) -> Option<Permit> {
        self.kept = true;
        let slots = self.slots();
        (!slots.is_empty()).then(|| Permit::new(Taken { charged: slots, ..self.taken.clone() }))
    }

    /// The slots that are held among what was charged.
    fn slots(&self) -> AllCharged {
        let is_slots = |one: &&Charged| one.counts_slots() && !one.cost.is_zero();
        self.taken.charged.iter().filter(is_slots).cloned().collect()
    }

    /// Waits, and keeps the leases of what is held, which then last their whole length. Tells
    /// whether they could be kept: a lease that has ended let another in.
    pub(crate) async fn wait(&self, wait: Duration) -> Result<bool, CheckError> {
        let held = Taken { charged: self.slots(), ..self.taken.clone() };
        let Some(lease) = held.lease() else {
            sleep(wait).await;
            return Ok(true);
        };
        let ends = Instant::now() + wait;
        let mut renewed = Instant::now();
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            sleep(left.min(lease / 3)).await;
            match held.renew().await {
                Ok(()) => renewed = Instant::now(),
                Err(error) if error.is_not_held() => return Ok(false),
                // The slots outlast a store that does not answer for a part of the lease.
                Err(_) if renewed.elapsed() < lease => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= ends {
                return Ok(true);
            }
        }
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (taken, reserved) = (self.taken.clone(), self.reserved);
        self.taken.limiter.background().run(async move {
            // A store that does not answer leaves the units spent, so nothing is over-admitted.
            let _ = if reserved { taken.cancel().await } else { taken.refund().await };
            let _ = taken.release().await;
        });
    }
}
