//! Every interleaving of callers, of drivers and of those who go away, by the model checker loom.
//!
//! Loom knows its own locks and atomics only. Here they are the locks of the lanes and of the seats,
//! that of a server which counts what it is sent, and the clock; so a test touches one of them wherever
//! the order of what it does matters to others. A caller that is never told anything shows as a
//! deadlock.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{LazyLock, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use loom::future::block_on;
use loom::sync::MutexGuard;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use tokio::runtime;
use tokio::time::Instant;
use tollgate_core::{
    Allow, Charge, Cost, Decision, Decisions, Quota, StoreError, StoreErrorKind, Timestamp,
};

use super::batch::Batch;
use super::lanes::{Coalescer, Place, WAITING_MAX};
use super::seats::Waiter;
use super::turn::{Server, Turn};
use super::waiting::{FEW_CHECKS_MAX, Told};
use super::watch::Watch;
use crate::key::HashSlot;

const TIMEOUT: Duration = Duration::from_millis(10);

/// A mutex of the model checker with the interface of `parking_lot`'s. It is made when it is first
/// locked, since other tests make stores outside of a model, which they do not ask.
#[derive(Debug, Default)]
pub(super) struct Mutex<T>(OnceLock<loom::sync::Mutex<T>>);

impl<T: Default> Mutex<T> {
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .get_or_init(loom::sync::Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store whose server is a list of what it was sent.
struct Model {
    coalescer: Coalescer,
    epoch: Instant,
    clock_ms: AtomicU64,
    server: Mutex<Calls>,
    /// Whether calls are answered by an error.
    fails: bool,
    /// Whether the runtime has ended: its tasks are dropped where they wait, and new ones at once.
    has_ended: AtomicBool,
    drivers: std::sync::Mutex<Vec<thread::JoinHandle<()>>>,
    watches: std::sync::Mutex<Vec<Watch<Self>>>,
}

/// The runtime of all callers.
static RUNTIME: LazyLock<runtime::Runtime> =
    LazyLock::new(|| runtime::Builder::new_current_thread().build().unwrap());

#[derive(Debug, Default)]
struct Calls {
    under_way: usize,
    /// The keys of the checks that were sent, in the order in which they were decided.
    sent: Vec<String>,
}

/// What a caller is told: how many were decided before it, or why it was not.
type Heard = Result<usize, &'static str>;

type Shared = std::sync::Arc<Model>;

impl Server for Model {
    fn coalescer(&self) -> &Coalescer {
        &self.coalescer
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.clock_ms.load(Ordering::SeqCst))
    }

    async fn call(&self, _: HashSlot, batch: Batch, _: Instant) {
        let keys = batch.steps.iter().flat_map(|step| {
            let key = step.charges[0].charge().key.to_owned();
            std::iter::repeat_n(key, step.checks.len())
        });
        let first = self.send(keys);
        if self.has_ended.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        if self.fails {
            return batch.fail(&StoreError::new(StoreErrorKind::Unavailable, "it is gone"));
        }
        let checks = batch.steps.iter().flat_map(|step| &step.checks);
        batch.seats.tell(|telling| {
            for (number, check) in (first..).zip(checks) {
                telling.tell(*check, Told::Decided(Decisions::from_iter([decided(number)])));
            }
        });
    }

    fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        if self.has_ended.load(Ordering::SeqCst) {
            return;
        }
        // A call here waits for nothing but the end of the runtime.
        let driver = thread::spawn(move || {
            let _ = pin!(driver).poll(&mut Context::from_waker(Waker::noop()));
        });
        self.drivers.lock().unwrap().push(driver);
    }

    fn runtime(&self) -> Option<runtime::Id> {
        Some(RUNTIME.handle().id())
    }

    fn spawn_watch(&self, watch: Watch<Self>) {
        if !self.has_ended.load(Ordering::SeqCst) {
            self.watches.lock().unwrap().push(watch);
        }
    }
}

fn decided(number: usize) -> Decision {
    let (limit, remaining) = (100, u32::try_from(number).unwrap());
    Decision::Allow(Allow { limit, remaining, reset_after: TIMEOUT, delay: Duration::ZERO })
}

impl Model {
    fn new(fails: bool) -> Shared {
        Shared::new(Self {
            coalescer: Coalescer::default(),
            epoch: Instant::now(),
            clock_ms: AtomicU64::new(0),
            server: Mutex::default(),
            fails,
            has_ended: AtomicBool::new(false),
            drivers: std::sync::Mutex::default(),
            watches: std::sync::Mutex::default(),
        })
    }

    /// Sends checks in one call, and returns how many were decided before.
    fn send(&self, keys: impl Iterator<Item = String>) -> usize {
        self.server.lock().under_way += 1;
        let mut calls = self.server.lock();
        assert!(calls.under_way <= FEW_CHECKS_MAX, "{} calls", calls.under_way);
        calls.under_way -= 1;
        let first = calls.sent.len();
        calls.sent.extend(keys);
        first
    }

    fn place(self: &Shared, key: &str, now: u64, cx: &Context<'_>) -> Place<Self> {
        let quota = Quota::new("1/s".parse().unwrap(), 100).unwrap();
        let charges = [Charge::new(key, &quota, Cost::ONE)];
        let deadline = self.now() + TIMEOUT;
        let now = Timestamp::from_micros(now);
        Coalescer::place(self, HashSlot::ANY, &charges, now, deadline, cx.waker())
    }

    /// Asks as the store does.
    fn check(self: &Shared, key: &str) -> Heard {
        block_on(async {
            match poll_fn(|cx| Poll::Ready(self.place(key, 0, cx))).await {
                Place::First(turn) => {
                    let number = self.send([key.to_owned()].into_iter());
                    drop(turn);
                    Ok(number)
                }
                Place::Behind(waiter) => understood(waiter.await),
                Place::Full => Err("full"),
                Place::Unwatched => panic!("there is a runtime"),
            }
        })
    }

    /// Takes all turns that there are.
    fn turns(self: &Shared) -> [Turn<Self>; FEW_CHECKS_MAX] {
        std::array::from_fn(|_| match self.place("first", 0, &Context::from_waker(Waker::noop())) {
            Place::First(turn) => turn,
            _ => panic!("no turn is left"),
        })
    }

    fn wait(self: &Shared, key: &str, now: u64) -> Waiter {
        block_on(poll_fn(|cx| match self.place(key, now, cx) {
            Place::Behind(mut waiter) => {
                assert!(Pin::new(&mut waiter).poll(cx).is_pending());
                Poll::Ready(waiter)
            }
            _ => panic!("{key} does not wait"),
        }))
    }

    /// Has the watches see to the deadlines, and returns how many of them go on.
    fn watch(self: &Shared) -> usize {
        let mut watches = std::mem::take(&mut *self.watches.lock().unwrap());
        watches.retain_mut(|watch| watch.look().is_some());
        let mut all = self.watches.lock().unwrap();
        all.extend(watches);
        all.len()
    }

    /// Waits for the drivers, and returns how often a check of each key was sent.
    fn end(self: &Shared) -> impl Fn(&str) -> usize {
        loop {
            let driver = self.drivers.lock().unwrap().pop();
            match driver {
                Some(driver) => driver.join().unwrap(),
                None => break,
            }
        }
        assert_eq!(self.coalescer.count(), (0, vec![]), "who waits, and the turns of each lane");
        let sent = self.server.lock().sent.clone();
        move |key| sent.iter().filter(|one| *one == key).count()
    }
}

fn heard(waiter: Waiter) -> Heard {
    understood(block_on(waiter))
}

fn understood(told: Told) -> Heard {
    match told {
        Told::Decided(decisions) => Ok(decisions[0].remaining() as usize),
        Told::GoesAlone => panic!("nothing goes alone here"),
        Told::Failed(_) => Err("failed"),
        Told::Late { was_sent: true } => Err("no answer"),
        Told::Late { was_sent: false } => Err("no turn"),
        Told::Interrupted => Err("interrupted"),
    }
}

/// Runs a test under every schedule in which threads are preempted at most so often.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(model.preemption_bound.unwrap_or(3));
    model.check(test);
}

/// Runs `one` beside the caller.
fn beside<T: 'static>(
    model: &Shared,
    one: impl FnOnce(&Shared) -> T + 'static,
) -> thread::JoinHandle<T> {
    let model = Shared::clone(model);
    thread::spawn(move || one(&model))
}

#[test]
fn g6_those_who_come_at_once_are_each_sent_once_and_told_once() {
    explore(|| {
        let model = Model::new(false);
        let others = ["b", "c"].map(|key| beside(&model, move |model| model.check(key)));
        let mut all = vec![model.check("a").unwrap()];
        all.extend(others.map(|other| other.join().unwrap().unwrap()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        let sent = model.end();
        assert_eq!(["a", "b", "c"].map(sent), [1; 3]);
    });
}

#[test]
fn g6_those_who_wait_go_in_the_order_of_their_arrival_whoever_comes_meanwhile() {
    explore(|| {
        let model = Model::new(false);
        let [ends, held] = model.turns();
        // Those of different instants go in different calls, each of enough charges.
        let waiting = [("a", 1), ("b", 1), ("a", 2), ("b", 2)];
        let waiting = waiting.map(|(key, now)| model.wait(key, now));
        let late = beside(&model, |model| model.check("a"));
        drop(ends);
        assert_eq!(waiting.map(heard), [Ok(0), Ok(1), Ok(2), Ok(3)]);
        drop(held);
        assert_eq!(late.join().unwrap(), Ok(4));
        assert_eq!(model.end()("a"), 3);
    });
}

#[test]
fn a_few_wait_for_the_call_in_flight_and_enough_of_them_go_beside_it() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let first = model.wait("a", 0);
        drop(one);
        assert_eq!(model.coalescer.count(), (1, vec![1]), "one is too few");
        // With the second they are enough.
        let second = model.wait("b", 0);
        assert_eq!((heard(first), heard(second)), (Ok(0), Ok(1)));
        drop(other);
        let sent = model.end();
        assert_eq!((sent("a"), sent("b")), (1, 1));
    });
}

#[test]
fn a_check_goes_beside_another_only_where_calls_are_few() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        drop((one, other));
        let is_first = |place| matches!(place, Place::First(_));
        let cx = &mut Context::from_waker(Waker::noop());
        // Nothing is in flight.
        let alone = model.place("a", 0, cx);
        let behind = model.wait("b", 0);
        drop(alone);
        assert_eq!(heard(behind), Ok(0));
        let _ = model.end();
        model.clock_ms.store(30, Ordering::SeqCst);
        let (one, other) = (model.place("a", 0, cx), model.place("b", 0, cx));
        assert!(is_first(one) && is_first(other));
        assert_eq!(model.end()("b"), 1);
    });
}

#[test]
fn g3_who_goes_away_before_its_turn_is_not_sent() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let (gone, stays) = (model.wait("gone", 0), model.wait("stays", 0));
        drop(gone);
        let one = beside(&model, move |_| drop(one));
        drop(other);
        assert_eq!(heard(stays), Ok(0));
        one.join().unwrap();
        let sent = model.end();
        assert_eq!((sent("gone"), sent("stays")), (0, 1));
    });
}

#[test]
fn who_goes_away_while_a_turn_ends_leaves_nobody_waiting() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let (gone, stays) = (model.wait("gone", 1), model.wait("stays", 2));
        let goes = beside(&model, move |model| {
            drop(gone);
            let _ = model.coalescer.count();
        });
        drop(one);
        drop(other);
        assert!(heard(stays).is_ok());
        goes.join().unwrap();
        let sent = model.end();
        assert!(sent("gone") <= 1);
        assert_eq!(sent("stays"), 1);
    });
}

#[test]
fn turns_that_take_too_long_pass_to_others_and_end_nothing_when_they_end_late() {
    explore(|| {
        let model = Model::new(false);
        let [late, later] = model.turns();
        model.clock_ms.store(5, Ordering::SeqCst);
        let waits = model.wait("waits", 0);
        model.clock_ms.store(10, Ordering::SeqCst);
        let late = beside(&model, move |_| drop(late));
        assert!(model.check("comes").is_ok());
        assert!(heard(waits).is_ok());
        late.join().unwrap();
        drop(later);
        let sent = model.end();
        assert_eq!((sent("waits"), sent("comes")), (1, 1));
    });
}

#[test]
fn turns_that_end_late_end_those_of_nobody_else() {
    explore(|| {
        let model = Model::new(false);
        let [late, later] = model.turns();
        model.clock_ms.store(10, Ordering::SeqCst);
        let in_time = model.turns();
        let late = beside(&model, move |_| drop(late));
        drop(later);
        late.join().unwrap();
        assert_eq!(model.coalescer.count(), (0, vec![FEW_CHECKS_MAX]));
        drop(in_time);
        let _ = model.end();
    });
}

#[test]
fn who_finds_no_room_has_those_sent_who_wait_behind_turns_that_take_too_long() {
    explore(|| {
        let model = Model::new(false);
        let unpolled = model.turns();
        model.clock_ms.store(5, Ordering::SeqCst);
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| model.wait("waits", 0)).collect();
        assert_eq!(model.check("early"), Err("full"));
        model.clock_ms.store(10, Ordering::SeqCst);
        let comes = beside(&model, |model| model.check("comes"));
        let also = model.check("comes");
        let waiting: Vec<_> = waiting.into_iter().map(heard).collect();
        assert!(waiting.iter().all(Result::is_ok) && waiting.is_sorted(), "{waiting:?}");
        let comes = comes.join().unwrap();
        assert!(comes == Err("full") || also == Err("full"), "{comes:?} {also:?}");
        drop(unpolled);
        let sent = model.end();
        assert_eq!(sent("waits"), WAITING_MAX);
        assert_eq!(sent("comes"), [comes, also].iter().filter(|one| one.is_ok()).count());
    });
}

#[test]
fn who_waits_past_its_deadline_is_not_sent() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let late = model.wait("late", 0);
        model.clock_ms.store(10, Ordering::SeqCst);
        let one = beside(&model, move |_| drop(one));
        drop(other);
        one.join().unwrap();
        assert_eq!(heard(late), Err("no turn"));
        assert_eq!(model.end()("late"), 0);
    });
}

#[test]
fn g10_who_waits_behind_turns_that_nobody_ends_is_told_by_its_deadline() {
    explore(|| {
        let model = Model::new(false);
        let unpolled = model.turns();
        let early = model.wait("waits", 0);
        model.clock_ms.store(5, Ordering::SeqCst);
        let waits = model.wait("waits", 0);
        model.clock_ms.store(10, Ordering::SeqCst);
        let comes = beside(&model, |model| model.watch());
        assert_eq!(heard(early), Err("no turn"));
        assert_eq!(comes.join().unwrap(), 1, "it goes on for the other");
        model.clock_ms.store(15, Ordering::SeqCst);
        let _ = model.watch();
        assert_eq!(heard(waits), Err("no turn"));
        drop(unpolled);
        assert_eq!(model.end()("waits"), 0);
        assert_eq!(model.watch(), 0, "nobody waits any more");
    });
}

#[test]
fn who_is_late_while_its_turn_comes_is_told_whether_it_was_sent() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let waits = model.wait("waits", 0);
        drop(one);
        let ends = beside(&model, move |_| drop(other));
        model.clock_ms.store(10, Ordering::SeqCst);
        let _ = model.watch();
        let heard = heard(waits);
        ends.join().unwrap();
        let sent = model.end()("waits");
        assert_eq!(sent, usize::from(heard != Err("no turn")), "{heard:?}");
        assert!(matches!(heard, Ok(0) | Err("no turn" | "no answer")), "{heard:?}");
    });
}

#[test]
fn who_comes_while_a_watch_ends_is_watched() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        drop(model.wait("gone", 0));
        drop((one, other));
        // Calls are few again.
        model.clock_ms.store(30, Ordering::SeqCst);
        let turns = model.turns();
        let ends = beside(&model, |model| model.watch());
        let waits = model.wait("waits", 0);
        let _ = ends.join().unwrap();
        model.clock_ms.store(40, Ordering::SeqCst);
        assert_eq!(model.watch(), 1);
        assert_eq!(heard(waits), Err("no turn"));
        drop(turns);
        let _ = model.end();
    });
}

#[test]
fn a_watch_that_ends_with_its_runtime_leaves_nobody_waiting() {
    explore(|| {
        let model = Model::new(false);
        let unpolled = model.turns();
        let waits = model.wait("waits", 0);
        let ends = beside(&model, |model| {
            let ending = std::mem::take(&mut *model.watches.lock().unwrap());
            drop(ending);
        });
        let comes = model.wait("comes", 0);
        ends.join().unwrap();
        assert_eq!(heard(waits), Err("interrupted"));
        // Whoever came after that has a watch of its own.
        model.clock_ms.store(10, Ordering::SeqCst);
        let _ = model.watch();
        assert!(matches!(heard(comes), Err("interrupted" | "no turn")));
        drop(unpolled);
        let _ = model.end();
    });
}

#[test]
fn a_call_that_fails_is_told_to_those_in_it_and_the_next_ones_go() {
    explore(|| {
        let model = Model::new(true);
        let [one, other] = model.turns();
        let waiting = [model.wait("a", 1), model.wait("a", 2)];
        let one = beside(&model, move |_| drop(one));
        drop(other);
        assert_eq!(waiting.map(heard), [Err("failed"); 2]);
        one.join().unwrap();
        assert_eq!(model.end()("a"), 2);
    });
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting_and_no_turn() {
    explore(|| {
        let model = Model::new(false);
        let [one, other] = model.turns();
        let waiting = [model.wait("a", 1), model.wait("a", 2), model.wait("a", 3)];
        let one = beside(&model, move |_| drop(one));
        model.has_ended.store(true, Ordering::SeqCst);
        drop(other);
        let heard = waiting.map(heard);
        assert!(heard.iter().all(|one| one.is_ok() || *one == Err("interrupted")), "{heard:?}");
        one.join().unwrap();
        assert!(model.end()("a") <= 3);
    });
}
