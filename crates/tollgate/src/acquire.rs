//! Waiting until a request may go on.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Algorithm, Attributes, Cost, Operation};

use crate::charged::AllCharged;
use crate::error::CheckError;
use crate::hold::draw_ticket;
use crate::limiter::Limiter;
use crate::permit::{Permit, Spent};
use crate::verdict::Verdict;

/// How soon a waiter for a slot looks again if nothing in this process wakes it: another process
/// may have released one.
const SLOT_POLL: Duration = Duration::from_millis(25);

/// What [`Limiter::acquire`] came to.
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

    /// Takes the slots, if a concurrency rule applies. They are released when it is dropped.
    pub fn into_permit(self) -> Option<Permit> {
        self.permit
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
        let now = Instant::now();
        let deadline = now.checked_add(max_wait).unwrap_or(now + Duration::from_secs(86_400 * 365));
        let key = finest.key.clone();
        let place = self.lines().join(&key, finest.cost.units());
        if place.ahead > 0 {
            let look = self.decide(Operation::Look, &charged, None).await?;
            if shortest_wait(&charged, &look, place.ahead) > max_wait {
                return Ok(Acquisition::refused(look));
            }
        }
        let Ok(turn) = timeout_at(deadline, place.line.turn.lock()).await else {
            return Ok(Acquisition::refused(self.decide(Operation::Look, &charged, None).await?));
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = self.decide(Operation::Look, &charged, None).await?;
            if look.is_allowed() && look.delay() > left {
                return Ok(Acquisition::refused(look));
            }
            let (verdict, spent) = self.spend_cancellable(&charged).await?;
            if verdict.is_allowed() {
                if verdict.delay() > left {
                    return Ok(Acquisition::refused(verdict));
                }
                // The next in line may be told its own, longer delay while this one waits.
                drop(turn);
                sleep(verdict.delay()).await;
                let permit = spent.and_then(Spent::keep);
                return Ok(Acquisition { verdict, permit, granted: true });
            }
            let Some(wait) = verdict.retry_after() else {
                return Ok(Acquisition::refused(verdict));
            };
            if charged.iter().any(|one| one.counts_slots()) {
                if left.is_zero() {
                    return Ok(Acquisition::refused(verdict));
                }
                let wake = place.line.given_back.notified();
                let _ = timeout_at(Instant::now() + wait.min(SLOT_POLL).min(left), wake).await;
            } else if wait > left {
                return Ok(Acquisition::refused(verdict));
            } else {
                sleep(wait).await;
            }
        }
    }

    /// Spends, and gives a guard that refunds unless it is kept. The call runs to its end even if
    /// the caller goes away meanwhile, since only then it is known whether it spent.
    async fn spend_cancellable(
        &self,
        charged: &AllCharged,
    ) -> Result<(Verdict, Option<Spent>), CheckError> {
        let ticket = draw_ticket();
        let (limiter, charged) = (self.clone(), charged.clone());
        let spend = async move {
            let verdict = limiter.decide(Operation::Spend, &charged, Some(ticket)).await?;
            let spent = verdict.is_allowed().then(|| Spent::new(limiter, charged, ticket));
            Ok((verdict, spent))
        };
        if self.store().answers_at_once() {
            return spend.await;
        }
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            // Nobody there to hear the answer: dropping it refunds what was spent.
            let _ = answer.send(spend.await);
        });
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(CheckError::not_held()),
        }
    }
}

/// The shortest wait for a request behind `ahead` units, if those are served before it.
///
/// For the two buckets it follows from the time until the bucket is full, up to the rounding to
/// whole ticks. Where units come back in windows only the request's own wait is known.
fn shortest_wait(charged: &AllCharged, look: &Verdict, ahead: u64) -> Duration {
    let own = look.retry_after().unwrap_or_default();
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
