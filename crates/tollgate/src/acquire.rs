//! Waiting until a request may go on.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::{Attributes, Cost, Operation};

use crate::attempt::{Attempt, Request, Wait};
use crate::error::CheckError;
use crate::limiter::Limiter;
use crate::permit::{Permit, Spent};
use crate::verdict::Verdict;

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

    /// Of a request that neither waits nor holds anything.
    pub(crate) fn decided(verdict: Verdict) -> Self {
        let granted = verdict.is_allowed();
        Self { verdict, permit: None, granted }
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
    /// Within this process, those who wait for the same bucket are served first come, first served.
    /// A request that cannot be served in time is refused as soon as that is known, which for the
    /// buckets is at once, and a `max_wait` of zero never waits. A leaky bucket's delay is waited
    /// out here, so that callers start evenly spaced. Where a concurrency rule applies the
    /// acquisition has a [`Permit`]. A cost of 0 takes nothing and waits for nothing.
    ///
    /// A slot that is released in this process is taken at once, by whoever came first. Those of
    /// other processes are looked for: after 25 ms, and the longer none is found the more seldom, at
    /// last four times a second. The store is asked that often for each bucket, however many wait.
    ///
    /// Rules that change meanwhile hold for those who wait. A shadow rule is charged once, however
    /// often the enforced rules are asked.
    ///
    /// # Errors
    ///
    /// As for [`check_n`](Self::check_n). A refusal is not an error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, what it took is given back as far as it still counts: at once on a
    /// store in memory, else in the background. A place in the middle of a leaky bucket's queue
    /// stays empty.
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
        let mut request = Request::new(self, attributes, cost)?;
        if request.takes_nothing() {
            return request.looked().await;
        }
        let now = Instant::now();
        let deadline = now.checked_add(max_wait).unwrap_or(now + Duration::from_secs(86_400 * 365));
        let arrival = self.lines().arrive();
        // Who comes behind others may not go before them.
        let mut wait = request.waited_for().map(|key| Wait { key, until: now });
        loop {
            let Some(Wait { key, mut until }) = wait.take() else {
                match request.attempt(deadline, None).await? {
                    Attempt::Passed(verdict, spent) => return start(verdict, spent).await,
                    Attempt::Refused(verdict) => return Ok(Acquisition::refused(verdict)),
                    Attempt::Waits(next) => wait = Some(next),
                }
                continue;
            };
            let place = self.lines().join(&key, request.units(&key), arrival);
            if place.ahead > 0 {
                let look = request.look().await?;
                let left = deadline.saturating_duration_since(Instant::now());
                if request.shortest_wait(&look, &place) > left {
                    return Ok(Acquisition::refused(look));
                }
            }
            if timeout_at(deadline, place.turn()).await.is_err() {
                return Ok(Acquisition::refused(request.look().await?));
            }
            while wait.is_none() {
                let _ = timeout_at(until, place.given_back()).await;
                match request.attempt(deadline, Some(&place)).await? {
                    Attempt::Passed(verdict, spent) => {
                        // What it waits out from here on is spent, so nobody waits for it in line.
                        place.leave_served();
                        return start(verdict, spent).await;
                    }
                    Attempt::Refused(verdict) => return Ok(Acquisition::refused(verdict)),
                    Attempt::Waits(next) if next.key == place.key() => until = next.until,
                    // Another bucket is in the way: there are others here who do not need that one.
                    Attempt::Waits(next) => wait = Some(next),
                }
            }
        }
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
        let request = Request::new(self, attributes, cost)?;
        if request.takes_nothing() {
            return request.looked().await;
        }
        if request.charged().iter().all(|one| !one.counts_slots() && one.delay_max().is_zero()) {
            let verdict = self.decide(Operation::Spend, request.charged(), None).await?;
            return Ok(Acquisition::decided(verdict));
        }
        let (verdict, spent) = request.spend(request.charged()).await?;
        if verdict.is_allowed() {
            return start(verdict, spent).await;
        }
        Ok(Acquisition::refused(verdict))
    }
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
