//! A call in flight, or several after each other.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::time::Instant;

use super::batch::Batch;
use super::lanes::Coalescer;
use super::watch::Watch;
use crate::key::HashSlot;

/// What turns need of a store.
pub(super) trait Server: Send + Sync + Sized + 'static {
    fn coalescer(&self) -> &Coalescer;

    /// How long a call may take.
    fn timeout(&self) -> Duration;

    fn now(&self) -> Instant;

    /// Sends a batch, and tells those in it what became of them.
    fn call(
        &self,
        slot: HashSlot,
        batch: Batch,
        deadline: Instant,
    ) -> impl Future<Output = ()> + Send;

    /// Has a driver run beside its caller. Where that cannot be, it is dropped.
    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static);

    /// The runtime of the caller.
    fn runtime(&self) -> Option<runtime::Id>;

    /// Has a watch kept in the runtime of the caller.
    fn spawn_watch(&self, watch: Watch<Self>);
}

/// The right to send. When a first caller's ends, a driver goes on with those who waited meanwhile.
pub(super) struct Turn<S: Server> {
    server: Arc<S>,
    slot: HashSlot,
    turn: u64,
    is_driven: bool,
}

impl<S: Server> Turn<S> {
    /// The turn of a first caller.
    pub(super) const fn new(server: Arc<S>, slot: HashSlot, turn: u64) -> Self {
        Self { server, slot, turn, is_driven: false }
    }

    fn next(&self) -> Option<(Batch, Instant)> {
        let now = self.server.now();
        let deadline = now + self.server.timeout();
        let batch = self.server.coalescer().next(self.slot, self.turn, now, deadline)?;
        Some((batch, deadline))
    }

    /// Sends batches until nobody waits.
    async fn go_on(self, (mut batch, mut deadline): (Batch, Instant)) {
        loop {
            self.server.call(self.slot, batch, deadline).await;
            match self.next() {
                Some(next) => (batch, deadline) = next,
                None => return,
            }
        }
    }
}

impl<S: Server> Drop for Turn<S> {
    fn drop(&mut self) {
        if self.is_driven {
            // The runtime ends, and with it those who wait. Another driver would be dropped in here,
            // and so on, as deep as there are batches.
            while self.next().is_some() {}
        } else if let Some(next) = self.next() {
            let Self { slot, turn, .. } = *self;
            let driver = Self { server: Arc::clone(&self.server), slot, turn, is_driven: true };
            self.server.spawn(driver.go_on(next));
        }
    }
}
