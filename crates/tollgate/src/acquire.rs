//! Waiting until a request may go on.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollgate_core::{Algorithm, Attributes, Cost, Operation, StoreError, StoreErrorKind};

use crate::charged::AllCharged;
use crate::error::CheckError;
use crate::hold::draw_ticket;
use crate::limiter::Limiter;
use crate::permit::{Permit, Spent, Taken};
use crate::verdict::Verdict;

/// How soon a waiter for a slot looks again if nothing in this process wakes it: another process
/// may have released one.
const SLOT_POLL: Duration = Duration::from_millis(25);

/// What [`Limiter::acquire`] or [`Limiter::enter`] came to.
#[derive(Debug)]
#[must_use = "dropping an acquisition releases its slots"]
pub struct Acquisition {
    verdict: Verdict,
    permit: Option<Permit>,
    granted: bool,
}

impl Acquisition {
    const fn refused(verdict: Verdict) -> Self {
        Self { verdict, permit: None, granted: false }
    }

    /// Tells whether the request may go on. If not, nothing was spent.
    pub const fn is_granted(&self) -> bool {
        self.granted
    }

    /// Returns the last verdict. Of a request that was refused because it would have had to wait
    /// too long, it tells how long.
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Returns the time until the same request can go on without a wait, if it was refused and can
    /// ever go on. Zero means that others came before it.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.granted {
            return None;
        }
        // Where the rules allow it, only the delay was too long, or the line.
        if self.verdict.is_allowed() {
            return Some(self.verdict.delay());
        }
        self.verdict.retry_after()
    }

    /// Takes the slots, if a concurrency rule applies. They are released when it is dropped.
    pub fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    /// Takes the verdict and the slots apart.
    pub fn into_parts(self) -> (Verdict, Option<Permit>) {
        (self.verdict, self.permit)
    }
}

impl Limiter {
    /// Waits until a request may go on, for at most `max_wait`, then spends its cost and takes its
    /// slots.
    ///
    /// Within this process, callers of the same bucket are served first come, first served; with
    /// several rules that is the bucket of the finest. A request that cannot be served in time is
    /// refused at once, and a `max_wait` of zero never waits. A leaky bucket's delay is waited out
    /// here, so that callers start evenly spaced. Where a concurrency rule applies the acquisition
    /// has a [`Permit`].
    ///
    /// # Errors
    ///
    /// As for [`check_n`](Self::check_n). A refusal is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what it took is given back: at once on a store in memory, else in
    /// the background.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Attributes, Cost, Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let exports = Quota::concurrency(1, Duration::from_secs(30))?;
    /// let limiter = Limiter::builder().rule(Rule::new("exports", exports)).build()?;
    /// let request = Attributes::new();
    ///
    /// let first = limiter.acquire(&request, Cost::ONE, Duration::ZERO).await?;
    /// assert!(first.is_granted());
    /// let second = limiter.acquire(&request, Cost::ONE, Duration::ZERO).await?;
    /// assert!(!second.is_granted());
    ///
    /// drop(first);
    /// assert!(limiter.acquire(&request, Cost::ONE, Duration::ZERO).await?.is_granted());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(
        &self,
        attributes: &Attributes,
        cost: Cost,
        max_wait: Duration,
    ) -> Result<Acquisition, CheckError> {
        let charged = self.charged(attributes, cost)?;
        let Some(finest) = charged.last() else {
            let verdict = self.decide(Operation::Spend, &charged, None).await?;
            return Ok(Acquisition { verdict, permit: None, granted: true });
        };
        let (key, units) = (finest.key.clone(), finest.cost.units());
        let now = Instant::now();
        let deadline = now.checked_add(max_wait).unwrap_or(now + Duration::from_secs(86_400 * 365));
        if !self.lines().is_waited_for(&key) {
            match self.attempt(attributes, &charged, deadline).await? {
                Attempt::Passed(verdict, spent) => return start(verdict, spent).await,
                Attempt::Refused(verdict) => return Ok(Acquisition::refused(verdict)),
                Attempt::Waits(_) => {}
            }
        }
        let place = self.lines().join(&key, units);
        if place.ahead > 0 {
            let look = self.decide(Operation::Look, &charged, None).await?;
            if shortest_wait(&charged, &look, place.ahead) > max_wait {
                return Ok(Acquisition::refused(look));
            }
        }
        let Ok(turn) = timeout_at(deadline, place.line.turn.lock()).await else {
            return Ok(Acquisition::refused(self.decide(Operation::Look, &charged, None).await?));
        };
        let (verdict, spent) = loop {
            match self.attempt(attributes, &charged, deadline).await? {
                Attempt::Passed(verdict, spent) => break (verdict, spent),
                Attempt::Refused(verdict) => return Ok(Acquisition::refused(verdict)),
                Attempt::Waits(wait) => {
                    let _ = timeout(wait, place.line.given_back.notified()).await;
                }
            }
        };
        // What this one waits out from here on is spent, so nobody has to wait for it in line.
        drop(turn);
        drop(place);
        start(verdict, spent).await
    }

    /// Lets a request in if it may go on now: spends its cost, takes its slots, and waits out a
    /// leaky bucket's delay, so that callers start evenly spaced.
    ///
    /// It never waits for units or slots, and does not queue up behind those who
    /// [`acquire`](Self::acquire). A delay is at most the time in which the bucket drains,
    /// burst / rate. For a service at its door: what it cannot serve now is told to come back.
    ///
    /// # Errors
    ///
    /// As for [`check_n`](Self::check_n). A refusal is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped and a rule that delays or counts slots applies, what was taken is
    /// given back as by [`acquire`](Self::acquire); otherwise as for [`check`](Self::check).
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer, if a request is delayed or the store is a remote one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tollgate::{Attributes, Cost, Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gateway = Quota::leaky_bucket("100/s".parse()?, 2)?;
    /// let limiter = Limiter::builder().rule(Rule::new("sms", gateway)).build()?;
    /// let request = Attributes::new();
    ///
    /// let start = Instant::now();
    /// assert!(limiter.enter(&request, Cost::ONE).await?.is_granted());
    /// assert!(limiter.enter(&request, Cost::ONE).await?.is_granted());
    /// assert!(start.elapsed() >= Duration::from_millis(9));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enter(
        &self,
        attributes: &Attributes,
        cost: Cost,
    ) -> Result<Acquisition, CheckError> {
        let charged = self.charged(attributes, cost)?;
        if charged.iter().all(|one| !one.counts_slots() && one.delay_max().is_zero()) {
            let verdict = self.decide(Operation::Spend, &charged, None).await?;
            let granted = verdict.is_allowed();
            return Ok(Acquisition { verdict, permit: None, granted });
        }
        let (verdict, spent) = self.spend_cancellable(attributes, &charged).await?;
        if verdict.is_allowed() {
            return start(verdict, spent).await;
        }
        Ok(Acquisition::refused(verdict))
    }

    /// Spends if the request may go on before `deadline`.
    async fn attempt(
        &self,
        request: &Attributes,
        charged: &AllCharged,
        deadline: Instant,
    ) -> Result<Attempt, CheckError> {
        let left = deadline.saturating_duration_since(Instant::now());
        // Where a delay may be too long it is looked up first, so that no place in the queue is
        // taken and given back, which would delay others.
        if charged.iter().any(|one| one.delay_max() > left) {
            let look = self.decide(Operation::Look, charged, None).await?;
            if look.is_allowed() && look.delay() > left {
                return Ok(Attempt::Refused(look));
            }
        }
        let (verdict, spent) = self.spend_cancellable(request, charged).await?;
        Ok(match longest_wait(&verdict) {
            None if verdict.is_allowed() && verdict.delay() <= left => {
                Attempt::Passed(verdict, spent)
            }
            Some(Wait { units, slots })
                if units <= left && (slots.is_zero() || !left.is_zero()) =>
            {
                // A slot may be released at any time, also by another process.
                let slots = slots.min(SLOT_POLL);
                Attempt::Waits(units.max(slots).min(left))
            }
            _ => Attempt::Refused(verdict),
        })
    }

    /// Spends, and gives a guard that refunds unless it is kept. The call runs to its end even if
    /// the caller goes away meanwhile, since only then it is known whether it spent.
    async fn spend_cancellable(
        &self,
        request: &Attributes,
        charged: &AllCharged,
    ) -> Result<(Verdict, Option<Spent>), CheckError> {
        let ticket = draw_ticket();
        let (limiter, request, charged) = (self.clone(), request.clone(), charged.clone());
        let spend = async move {
            let verdict = limiter.decide(Operation::Spend, &charged, Some(ticket)).await;
            let failure =
                verdict.as_ref().map_or_else(CheckError::store_failure, Verdict::store_failure);
            if let Some(StoreErrorKind::Timeout | StoreErrorKind::Unavailable) = failure {
                let slots: AllCharged =
                    charged.iter().filter(|one| one.counts_slots()).cloned().collect();
                if !slots.is_empty() {
                    let (limiter, request) = (limiter.clone(), request.clone());
                    let unheard =
                        Taken { limiter, request, charged: slots, ticket, locally: false };
                    unheard.release_unheard();
                }
            }
            let verdict = verdict?;
            let spent = verdict.is_allowed().then(|| {
                let locally = verdict.store_failure().is_some();
                // A shadow rule that says deny has taken nothing.
                let said = charged.into_iter().zip(verdict.rules());
                let charged = said.filter(|(_, said)| said.decision().is_allow());
                let charged = charged.map(|(one, _)| one).collect();
                Spent::new(Taken { limiter, request, charged, ticket, locally })
            });
            Ok((verdict, spent))
        };
        if self.store().answers_at_once() {
            return spend.await;
        }
        let (answer, answered) = oneshot::channel();
        let running = self.background().begin();
        tokio::spawn(async move {
            // Nobody there to hear the answer: dropping it refunds what was spent.
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

/// What one attempt came to.
#[expect(clippy::large_enum_variant, reason = "it lives for one match")]
enum Attempt {
    Passed(Verdict, Option<Spent>),
    /// It cannot go on in time.
    Refused(Verdict),
    /// It can after this wait, or when something is given back.
    Waits(Duration),
}

/// The longest waits that the denials of a verdict ask for.
struct Wait {
    /// Exact: nothing but the time brings these units.
    units: Duration,
    /// At most: a release brings slots earlier.
    slots: Duration,
}

/// What has to be waited for, or `None` if nothing has, or if no wait helps.
fn longest_wait(verdict: &Verdict) -> Option<Wait> {
    verdict.retry_after()?;
    let mut wait = Wait { units: Duration::ZERO, slots: Duration::ZERO };
    for denied in verdict.rules().iter().filter(|rule| !rule.rule().is_shadow()) {
        let of_rule = denied.retry_after().unwrap_or_default();
        let algorithm = denied.quota().map(|quota| quota.algorithm());
        let longest = match algorithm {
            Some(Algorithm::Concurrency { .. }) => &mut wait.slots,
            _ => &mut wait.units,
        };
        *longest = of_rule.max(*longest);
    }
    Some(wait)
}

/// Waits out the delay of a request that may go on. If its slots are lost meanwhile, it may not, and
/// what it spent is given back.
async fn start(verdict: Verdict, spent: Option<Spent>) -> Result<Acquisition, CheckError> {
    if !verdict.delay().is_zero() {
        match &spent {
            Some(spent) if !spent.wait(verdict.delay()).await? => {
                return Ok(Acquisition::refused(verdict));
            }
            Some(_) => {}
            None => sleep(verdict.delay()).await,
        }
    }
    Ok(Acquisition { verdict, permit: spent.and_then(Spent::keep), granted: true })
}

/// The shortest wait for a request behind `ahead` units, if those are served before it.
///
/// For the two buckets it follows from the time until the bucket is full, up to the rounding to
/// whole ticks. Where units come back in windows only the request's own wait is known, and slots
/// may be released at any time.
fn shortest_wait(charged: &AllCharged, look: &Verdict, ahead: u64) -> Duration {
    let own = match longest_wait(look) {
        Some(wait) => wait.units,
        None if look.is_allowed() => Duration::ZERO,
        None => return Duration::MAX,
    };
    let Some((one, said)) = charged.last().zip(look.rules().last()) else { return own };
    let Some(quota) = &one.quota else { return own };
    let until_full = said.decision().reset_after();
    let wait = match quota.algorithm() {
        Algorithm::TokenBucket => {
            let (wanted, burst) =
                (ahead.saturating_add(one.cost.units()), u64::from(quota.burst()));
            let beyond = quota.time_to_gain(wanted.saturating_sub(burst));
            (until_full + beyond).saturating_sub(quota.time_to_gain(burst.saturating_sub(wanted)))
        }
        // A leaky bucket lets a request out when all before it has drained.
        Algorithm::LeakyBucket => until_full + quota.time_to_gain(ahead),
        _ => return own,
    };
    let rounding = 2 * Duration::from_micros(quota.tick_us().into());
    own.max(wait.saturating_sub(rounding))
}
