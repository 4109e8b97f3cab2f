//! Checks that arrive while calls are in flight go together in the next one.
//!
//! A check that finds nothing in flight goes at once and alone, and so does one beside others where calls
//! are few. Those that come meanwhile wait for an answer, and then go in one call, in the order of their
//! arrival; checks of the same bucket and cost are one step of it. So a key that thousands wait for costs the server one step per call,
//! and a call costs it less per check than calls of their own.
//!
//! The script spends for one after the other, and replies what was there before each. From that,
//! core decides here what each is told: exactly what calls of their own would have been told in
//! that order (G6, G8).

mod batch;
mod lanes;
#[cfg(test)]
mod model;
mod pace;
mod seats;
mod turn;
mod waiting;
mod watch;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::Instant;
use tollgate_core::{Algorithm, Charge, Decisions, Operation, StoreError, Timestamp};

use self::batch::Batch;
pub(crate) use self::lanes::Coalescer;
use self::lanes::{Place, WAITING_MAX};
use self::turn::Server;
use self::waiting::Told;
use self::watch::Watch;
use crate::error;
use crate::key::HashSlot;
use crate::store::Inner;

impl Coalescer {
    /// Tells whether such charges can wait for others.
    pub(crate) fn takes(operation: Operation, charges: &[Charge<'_>]) -> bool {
        operation == Operation::Spend
            && charges.iter().all(|charge| {
                let algorithm = charge.quota.algorithm();
                matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
                    && !charge.cost.is_zero()
                    && charge.quota.admits(charge.cost)
            })
    }
}

impl Server for Inner {
    fn coalescer(&self) -> &Coalescer {
        &self.coalescer
    }

    fn timeout(&self) -> Duration {
        self.transport.timeout
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    async fn call(&self, slot: HashSlot, batch: Batch, deadline: Instant) {
        let command = |form| batch.command(self, form);
        match self.transport.send(slot, command, deadline).await {
            Ok(reply) => {
                let told = batch.tell(&reply, self.max_clock_skew);
                if let Err(unheard) = told {
                    unheard.fail(&error::unintelligible(&self.transport.target.name()));
                }
            }
            Err(failed) => batch.fail(&failed.into_store_error(|_| None)),
        }
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        // Whoever waits has a runtime; if it ends now, nobody waits any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(driver);
        }
    }

    fn runtime(&self) -> Option<runtime::Id> {
        Handle::try_current().ok().map(|runtime| runtime.id())
    }

    fn spawn_watch(&self, watch: Watch<Self>) {
        self.spawn(watch.keep());
    }
}

impl Inner {
    /// Spends with others that come at the same time.
    pub(crate) async fn spend_coalesced(
        self: &Arc<Self>,
        slot: HashSlot,
        charges: &[Charge<'_>],
        now: Timestamp,
    ) -> Result<Decisions, StoreError> {
        let deadline = self.transport.deadline();
        let now_of_lane = match self.time_source {
            crate::TimeSource::Server => Timestamp::EPOCH,
            crate::TimeSource::Client => now,
        };
        let place = poll_fn(|cx| {
            let waker = cx.waker();
            Poll::Ready(Coalescer::place(self, slot, charges, now_of_lane, deadline, waker))
        });
        let told = match place.await {
            Place::First(turn) => {
                let alone = self.decide_alone(Operation::Spend, slot, charges, now, deadline);
                let decided = Box::pin(alone).await;
                drop(turn);
                return decided;
            }
            Place::Behind(waiter) => waiter.await,
            Place::Full => return Err(error::too_many_waiting(WAITING_MAX)),
            Place::Unwatched => Told::GoesAlone,
        };
        let (name, timeout) = (|| self.transport.target.name(), self.transport.timeout);
        match told {
            Told::Decided(decisions) => Ok(decisions),
            Told::GoesAlone => {
                let alone = self.decide_alone(Operation::Spend, slot, charges, now, deadline);
                Box::pin(alone).await
            }
            Told::Failed(error) => Err(error),
            Told::Late { was_sent: false } => Err(error::no_turn(&name(), timeout)),
            Told::Late { was_sent: true } => Err(error::no_answer(&name(), timeout)),
            Told::Interrupted => Err(error::interrupted()),
        }
    }
}
