//! What a limiter does on its own: it asks a store that has failed whether it is back, charges what
//! was spent meanwhile, and announces itself.

use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate_core::{Charge, Cost, Operation, Quota, StoreError, StoreErrorKind};

use crate::debts::{Owed, in_shards, still_counts};
use crate::limiter::{Limiter, Shared};
use crate::nodes::{ANNOUNCE_FIRST, ANNOUNCE_INTERVAL};
use crate::store_parts::StoreParts;

/// How many buckets are charged in one call of the store.
const BATCH: usize = 32;

/// After how many batches that failed the charging is given up for now.
const BATCHES_FAILED_MAX: usize = 3;

/// How long the charging may hold up the return to exact decisions.
const CHARGE_FIRST: Duration = Duration::from_secs(1);

/// How soon debts that could not be charged are tried again.
const CHARGE_PAUSE: Duration = Duration::from_secs(1);

/// Among how many names one is found that is in a certain part of the store.
const PROBES_MAX: u32 = 4_096;

/// The key of a bucket that is probed. No rule's key begins like this.
fn probe_key(number: u32) -> String {
    format!("!probe:{number}")
}

/// Which work goes on in the background, each at most once.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    probing: AtomicBool,
    charging: AtomicBool,
    announcing: AtomicBool,
    pub(crate) sweeping: AtomicBool,
}

/// Clears the mark of a task when it ends, also with its runtime: the next request then starts it
/// anew.
struct Ends<F: Fn(&Tasks) -> &AtomicBool>(Weak<Shared>, F);

impl<F: Fn(&Tasks) -> &AtomicBool> Drop for Ends<F> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            self.1(&shared.tasks).store(false, Ordering::Release);
        }
    }
}

impl Limiter {
    /// Starts to probe a store that is not asked, unless that goes on. Tells whether it goes on now:
    /// without a runtime it cannot, and only requests find out when the store is back.
    pub(crate) fn keep_probing(&self) -> bool {
        self.start(
            |tasks| &tasks.probing,
            async |limiter| {
                loop {
                    let luck = RandomState::new().hash_one(0);
                    let pause = limiter.upgrade()?.health().settings().pause(luck);
                    sleep(pause).await;
                    let limiter = limiter.upgrade()?;
                    let open = limiter.health().open();
                    let back = limiter.probe(open).await;
                    if !back.is_empty() {
                        limiter.resume(back, open - back).await;
                    }
                    if limiter.health().open().is_empty() {
                        return None;
                    }
                }
            },
        )
    }

    /// Has parts of the store asked again that are back, while others are not.
    async fn resume(&self, back: StoreParts, away: StoreParts) {
        // What was spent meanwhile comes first, so that it is not admitted twice; but a flood of
        // keys must not hold up exact decisions.
        let charging = pin!(self.charge_all(away));
        let charged = timeout(CHARGE_FIRST, charging).await;
        let lost_again = matches!(charged, Ok(Err(_))) && self.store().is_atomic();
        if !lost_again {
            self.health().close(back);
            self.charge_debts();
        }
    }

    /// Asks parts of the store for a write, as a check would, and returns those that answered.
    async fn probe(&self, parts: StoreParts) -> StoreParts {
        let mut probes = JoinSet::new();
        for part in parts.iter().map(StoreParts::one) {
            let limiter = self.clone();
            probes.spawn(async move { limiter.probe_one(part).await.map(|()| part) });
        }
        let answered: StoreParts = probes.join_all().await.into_iter().flatten().collect();
        if !answered.is_empty() {
            self.health().note_sign_of_life();
        }
        answered
    }

    async fn probe_one(&self, part: StoreParts) -> Result<(), StoreError> {
        // Without a connection this begins to make one, rather than after a pause. Of a cluster all
        // nodes would have to answer.
        #[cfg(feature = "redis")]
        if let Some(redis) = self.store().as_redis().filter(|redis| !redis.is_cluster()) {
            redis.ping().await?;
        }
        let quota = Quota::from_rate(tollgate_core::Rate::per_second(1_000).map_err(refused)?);
        let quota = quota.map_err(refused)?;
        let keys = (0..PROBES_MAX).map(probe_key);
        let Some(key) = keys.into_iter().find(|key| self.store().part_of(key) == part) else {
            return Ok(());
        };
        let charge = [Charge::new(&key, &quota, Cost::ONE)];
        let probed = self.store().apply(Operation::Spend, &charge, self.now(), self.deadline());
        match probed.await {
            // Somebody else has put something there. The part of the store answers, and a write of
            // what is ours shows whether it accepts them.
            Err(error) if error.is_corrupt() => {
                tracing::warn!(%error, "the key that is probed is not ours: remove it");
                Ok(())
            }
            probed => probed.map(drop),
        }
    }

    /// Starts to charge what was spent on this node's own account, unless that goes on.
    pub(crate) fn charge_debts(&self) {
        if !self.debts().is_any() {
            return;
        }
        self.start(
            |tasks| &tasks.charging,
            async |limiter| {
                // Whether requests come or not: a node that serves no more has its debts too.
                loop {
                    {
                        let limiter = limiter.upgrade()?;
                        // A process that ends waits for this.
                        let _running = limiter.background().begin();
                        let away = limiter.health().open();
                        let charged = limiter.charge_all(away).await;
                        if charged.is_ok() && !limiter.debts().is_any() {
                            return None;
                        }
                    }
                    sleep(CHARGE_PAUSE).await;
                }
            },
        );
    }

    /// Charges every bucket that is in debt now, in batches, but for those in parts of the store that
    /// are away.
    async fn charge_all(&self, away: StoreParts) -> Result<(), StoreError> {
        // Where a batch can fail in part, what it has charged would be charged again with the rest.
        let size = if self.store().is_atomic() { BATCH } else { 1 };
        let now = self.now();
        let owed = self.debts().take().into_iter();
        let owed = owed.flat_map(|one| in_shards(self.local_store(), one, now)).collect();
        let mut owed = PutBack { limiter: self, owed };
        let mut failed = PutBack { limiter: self, owed: Vec::new() };
        let mut outcome = Ok(());
        let is_away = |(key, _): &mut Owed| !(self.store().part_of(key) & away).is_empty();
        failed.owed.extend(owed.owed.extract_if(.., is_away));
        let failures_max = failed.owed.len() + size * BATCHES_FAILED_MAX;
        while !owed.owed.is_empty() {
            let start = owed.owed.len().saturating_sub(size);
            let charged = self.charge(&owed.owed[start..]).await;
            let batch = owed.owed.drain(start..);
            match charged {
                Ok(()) => drop(batch),
                // That concerns one of them, and nothing was charged.
                Err(error) if error.is_corrupt() || error.is_invalid() => {
                    let batch: Vec<Owed> = batch.collect();
                    for one in batch.iter().filter(|_| size > 1) {
                        match self.charge(std::slice::from_ref(one)).await {
                            Err(error) if !error.is_corrupt() && !error.is_invalid() => {
                                failed.owed.push(one.clone());
                                outcome = Err(error);
                            }
                            // A bucket that cannot be charged cannot admit anything either.
                            _ => {}
                        }
                    }
                }
                Err(error) => {
                    failed.owed.extend(batch);
                    outcome = Err(error);
                    if failed.owed.len() >= failures_max {
                        break;
                    }
                }
            }
        }
        outcome
    }

    /// Charges debts to the store, as far as they still count.
    async fn charge(&self, owed: &[Owed]) -> Result<(), StoreError> {
        let now = self.now();
        let counting = |one| (one, still_counts(self.local_store(), one, now));
        let owed: SmallVec<[(&Owed, u64); 8]> =
            owed.iter().map(counting).filter(|(_, units)| *units > 0).collect();
        let charges: SmallVec<[Charge<'_>; 8]> = owed
            .iter()
            .map(|((key, debt), units)| {
                Charge::new(key, &debt.quota, Cost::new(*units)).with_shadow(debt.shadow)
            })
            .collect();
        if charges.is_empty() {
            return Ok(());
        }
        let taken = self.store().apply(Operation::Take, &charges, now, self.deadline());
        taken.await?;
        self.debts().note_charged(owed.iter().map(|(_, units)| units).sum());
        Ok(())
    }

    /// Starts to announce this node, unless that goes on or the store counts no nodes.
    pub(crate) fn keep_announcing(&self) {
        if !self.store().counts_nodes() {
            return;
        }
        self.start(
            |tasks| &tasks.announcing,
            async |limiter| {
                sleep(ANNOUNCE_FIRST).await;
                loop {
                    limiter.upgrade()?.announce().await;
                    sleep(ANNOUNCE_INTERVAL).await;
                }
            },
        );
    }

    async fn announce(&self) {
        if !self.health().open().is_empty() && self.store().parts_count() == 1 {
            self.nodes().lost();
            return;
        }
        let Some(told) = self.store().announce(self.id(), self.now()).await else { return };
        match told {
            Ok(count) => {
                self.health().note_sign_of_life();
                self.nodes().note_refusal(false);
                if let Some(nodes) = self.nodes().observe(count, Instant::now()) {
                    self.health().note_nodes(nodes);
                }
            }
            Err(error) => {
                let refused = self.health().failure().is_none();
                if self.nodes().note_refusal(refused) {
                    tracing::warn!(%error, "this node cannot announce itself, so the nodes may \
                        share a quota among too few while the store does not answer");
                }
                self.nodes().lost();
            }
        }
    }

    /// Runs one task of a kind on the current runtime, if there is one, and tells whether it runs.
    pub(crate) fn start<Task>(
        &self,
        mark: impl Fn(&Tasks) -> &AtomicBool + Send + Clone + 'static,
        task: impl FnOnce(WeakLimiter) -> Task + Send + 'static,
    ) -> bool
    where
        Task: Future<Output = Option<()>> + Send + 'static,
    {
        // Ordering: the mark guards the task's existence only.
        if mark(self.tasks()).load(Ordering::Relaxed) {
            return true;
        }
        let Ok(runtime) = Handle::try_current() else { return false };
        if mark(self.tasks()).swap(true, Ordering::AcqRel) {
            return true;
        }
        let weak = self.downgrade();
        let ends = Ends(weak.0.clone(), mark);
        runtime.spawn(async move {
            task(weak).await;
            drop(ends);
        });
        true
    }
}

/// A limiter that its tasks do not keep alive.
#[derive(Clone)]
pub(crate) struct WeakLimiter(pub(crate) Weak<Shared>);

impl WeakLimiter {
    pub(crate) fn upgrade(&self) -> Option<Limiter> {
        self.0.upgrade().map(Limiter::of)
    }
}

/// Puts debts back that were not charged, also if the charging is given up.
struct PutBack<'a> {
    limiter: &'a Limiter,
    owed: Vec<Owed>,
}

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        self.limiter.debts().put_back(self.owed.drain(..));
    }
}

fn refused(error: tollgate_core::QuotaError) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, error.to_string())
}
