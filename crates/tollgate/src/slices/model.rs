//! Every interleaving of those who take from slices, of debits, of the sweep and of resets, by the
//! model checker loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;
use tokio::time::Instant;
use tollgate_core::{Cost, LeaseTerms, Quota};

use super::{Lock, Parts, Shard, Slices, Taken};

const LEFT: u64 = 500;

impl Lock for Mutex<Shard> {
    fn with<T>(&self, act: impl FnOnce(&mut Shard) -> T) -> T {
        act(&mut self.lock().unwrap())
    }
}

/// One node and the store, in which nothing refills.
struct Node {
    slices: Slices<Mutex<Shard>>,
    store: Mutex<Store>,
    start: Instant,
    debits: AtomicUsize,
}

#[derive(Debug, Default)]
struct Store {
    debited: u64,
    debited_since_reset: u64,
    given_back: u64,
}

fn terms(rate: &str) -> LeaseTerms {
    // Slices of at most 100; those of 1000/s for 100 ms.
    LeaseTerms::of(&Quota::new(rate.parse().unwrap(), 1_000).unwrap()).unwrap()
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slices: Slices::default(),
            store: Mutex::default(),
            start: Instant::now(),
            debits: AtomicUsize::new(0),
        })
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// Asks until a slice is to be debited, and returns its size.
    fn heat(&self) -> u64 {
        let wanted = (0..9).find_map(|_| self.ask(1, 0).debit);
        wanted.unwrap()
    }

    fn ask(&self, cost: u64, ms: u64) -> Taken {
        self.ask_on(&terms("1000/s"), cost, ms)
    }

    fn ask_on(&self, terms: &LeaseTerms, cost: u64, ms: u64) -> Taken {
        let taken = self.slices.take("a", terms, Cost::new(cost), self.at(ms));
        if taken.debit.is_some() {
            assert_eq!(self.debits.fetch_add(1, Ordering::SeqCst), 0, "debits under way");
        }
        taken
    }

    /// Takes so much, and debits what is then wanted.
    fn take(&self, cost: u64, ms: u64) -> Option<Parts> {
        let taken = self.ask(cost, ms);
        if let Some(units) = taken.debit {
            self.debit(units, ms);
        }
        taken.allow.map(|(_, parts)| parts)
    }

    fn debit(&self, units: u64, ms: u64) {
        let left = {
            let mut store = self.store.lock().unwrap();
            store.debited += units;
            store.debited_since_reset += units;
            LEFT - store.debited
        };
        self.debits.fetch_sub(1, Ordering::SeqCst);
        self.slices.debited("a", units, Ok(left), self.at(ms));
    }

    fn give_all_back(&self, ms: u64) {
        let back = self.slices.drain(self.at(ms));
        let units: u64 = back.iter().map(|one| one.cost.units()).sum();
        self.store.lock().unwrap().given_back += units;
    }

    fn reset(&self) {
        self.slices.forget("a");
        self.store.lock().unwrap().debited_since_reset = 0;
        self.slices.forget("a");
    }

    /// What was debited and neither given back nor is held.
    fn spent(&self) -> u64 {
        let store = self.store.lock().unwrap();
        store.debited - store.given_back - self.slices.units()
    }
}

/// Runs `one` beside the caller.
fn beside<T: 'static>(
    node: &Arc<Node>,
    one: impl FnOnce(&Node) -> T + 'static,
) -> thread::JoinHandle<T> {
    let node = Arc::clone(node);
    thread::spawn(move || one(&node))
}

#[test]
fn g6_no_unit_of_a_slice_is_spent_twice_and_one_debit_is_under_way_at_a_time() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        let take = |node: &Node| (0..2).filter_map(|_| node.take(2, 1)).count();
        let debit = beside(&node, move |node| node.debit(units, 0));
        let other = beside(&node, take);
        let taken = take(&node) + other.join().unwrap();
        debit.join().unwrap();
        assert_eq!(node.spent(), 2 * taken as u64);
    });
}

#[test]
fn g3_what_is_put_back_or_given_back_is_neither_lost_nor_doubled() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        node.debit(units, 0);
        let sweep = beside(&node, |node| node.give_all_back(1));
        let denied = beside(&node, |node| {
            if let Some(parts) = node.take(3, 1) {
                node.slices.put_back("a", parts);
            }
        });
        let taken = node.take(2, 1).map_or(0, |_| 2);
        sweep.join().unwrap();
        denied.join().unwrap();
        assert_eq!(node.spent(), taken);
        node.give_all_back(1);
        assert_eq!((node.spent(), node.slices.units()), (taken, 0));
    });
}

#[test]
fn a_slice_that_was_debited_before_a_reset_is_not_spent_from_after_it() {
    loom::model(|| {
        let node = Node::new();
        let first = node.heat();
        node.debit(first, 0);
        // Now one is held, and another under way.
        let units = node.heat();
        let debit = beside(&node, move |node| node.debit(units, 0));
        let other = beside(&node, |node| {
            let _ = node.take(1, 1);
        });
        node.reset();
        let spent = (0..2).filter_map(|_| node.take(1, 1)).count() as u64;
        other.join().unwrap();
        debit.join().unwrap();
        let since = node.store.lock().unwrap().debited_since_reset;
        let held = node.slices.units();
        assert!(spent + held <= since, "{spent} spent and {held} held of {since}");
    });
}

#[test]
fn a_reset_that_others_hurry_to_refill_lets_one_debit_be_under_way() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        let debit = beside(&node, move |node| node.debit(units, 0));
        let hurry = beside(&node, |node| (0..9).for_each(|_| drop(node.take(1, 1))));
        node.slices.forget("a");
        hurry.join().unwrap();
        debit.join().unwrap();
        assert_eq!(node.debits.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn what_was_taken_before_a_reset_is_not_put_back_after_it() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        node.debit(units, 0);
        let parts = node.ask(2, 1).allow.unwrap().1;
        let denied = beside(&node, move |node| node.slices.put_back("a", parts));
        node.reset();
        let _ = node.slices.take("a", &terms("1000/s"), Cost::ONE, node.at(1));
        denied.join().unwrap();
        assert_eq!(node.slices.units(), 0);
    });
}

#[test]
fn nothing_is_taken_after_the_end_of_a_slice_whatever_is_put_back() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        node.debit(units, 0);
        let parts = node.ask(units, 99).allow.unwrap().1;
        let denied = beside(&node, move |node| node.slices.put_back("a", parts));
        assert!(node.ask(1, 100).allow.is_none());
        denied.join().unwrap();
        assert!(node.ask(1, 100).allow.is_none());
    });
}

#[test]
fn g11_a_slice_that_was_debited_on_other_terms_is_not_spent_from() {
    loom::model(|| {
        let node = Node::new();
        let units = node.heat();
        let debit = beside(&node, move |node| node.debit(units, 0));
        let others = (0..9).find_map(|_| {
            let taken = node.ask_on(&terms("500/s"), 1, 1);
            assert!(taken.allow.is_none());
            taken.debit
        });
        debit.join().unwrap();
        assert_eq!(node.slices.units(), 0);
        assert_eq!(node.debits.load(Ordering::SeqCst), usize::from(others.is_some()));
    });
}
