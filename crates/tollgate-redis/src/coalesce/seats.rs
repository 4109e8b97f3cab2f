//! Those who wait for the answer to one call, and how each is woken.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[cfg(not(test))]
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;

#[cfg(test)]
use super::model::Mutex;
use super::waiting::Told;

/// One seat for each who waits, in the order of their arrival.
///
/// Whoever waits has no timer and no channel of its own: a seat is a part of what all share who go in
/// one call.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Rows>);

#[derive(Debug, Default)]
struct Rows {
    seats: Vec<Seat>,
    /// Whether their call was made.
    are_sent: bool,
}

#[derive(Debug)]
enum Seat {
    Waits(Waits),
    Told(Told),
    /// Nobody is there any more.
    Empty,
}

/// Who sits there.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) deadline: Instant,
    pub(super) waker: Waker,
    /// Whose watch sees to the deadline.
    pub(super) runtime: runtime::Id,
}

/// The future of one who waits. Dropping it leaves the seat.
#[derive(Debug)]
pub(super) struct Waiter {
    seats: Arc<Seats>,
    number: usize,
    /// Whether its first poll is to come. That follows at once, with the waker that the seat has.
    is_new: bool,
    has_heard: bool,
}

/// Tells some of those who wait. Their wakers may do anything, so they are called when the lock of
/// the seats is free.
pub(super) struct Telling<'a> {
    rows: &'a mut Rows,
    wakers: Vec<Waker>,
}

/// The seats as their batch has them: if it goes away, nobody is left waiting.
#[derive(Debug, Default)]
pub(super) struct Seated(Arc<Seats>);

impl Seats {
    /// Tells those whose deadline has passed so, and returns the next deadline.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut next = None;
        self.tell(|telling| next = telling.tell_late(now));
        next
    }

    /// Tells those of a runtime that it has ended.
    pub(super) fn interrupt(&self, runtime: runtime::Id) {
        self.tell(|telling| telling.interrupt(|waits| waits.runtime == runtime));
    }

    fn tell(&self, work: impl FnOnce(&mut Telling<'_>)) {
        let mut rows = self.0.lock();
        let mut telling = Telling { rows: &mut rows, wakers: Vec::new() };
        work(&mut telling);
        let Telling { wakers, .. } = telling;
        drop(rows);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn replace(&self, number: usize, with: Seat) -> Option<Seat> {
        self.0.lock().seats.get_mut(number).map(|seat| mem::replace(seat, with))
    }
}

impl Telling<'_> {
    /// Has room for the wakers of so many.
    pub(super) fn reserve(&mut self, count: usize) {
        self.wakers.reserve(count);
    }

    /// Whether somebody waits at a seat.
    pub(super) fn is_wanted(&self, number: usize) -> bool {
        matches!(self.rows.seats.get(number), Some(Seat::Waits(_)))
    }

    /// Tells one who waits. Whoever has gone away meanwhile has spent, as with a call of its own.
    pub(super) fn tell(&mut self, number: usize, told: Told) {
        if let Some(seat @ Seat::Waits(_)) = self.rows.seats.get_mut(number)
            && let Seat::Waits(waits) = mem::replace(seat, Seat::Told(told))
        {
            self.wakers.push(waits.waker);
        }
    }

    /// Tells those who are late so, up to the first who is not; returns its deadline.
    fn tell_late(&mut self, now: Instant) -> Option<Instant> {
        let was_sent = self.rows.are_sent;
        for number in 0..self.rows.seats.len() {
            match &self.rows.seats[number] {
                Seat::Waits(waits) if waits.deadline > now => return Some(waits.deadline),
                Seat::Waits(_) => self.tell(number, Told::Late { was_sent }),
                Seat::Told(_) | Seat::Empty => {}
            }
        }
        None
    }

    fn interrupt(&mut self, which: impl Fn(&Waits) -> bool) {
        for number in 0..self.rows.seats.len() {
            if matches!(&self.rows.seats[number], Seat::Waits(waits) if which(waits)) {
                self.tell(number, Told::Interrupted);
            }
        }
    }
}

impl Seated {
    /// The same seats, for whoever watches the time.
    pub(super) const fn seats(&self) -> &Arc<Seats> {
        &self.0
    }

    /// Has somebody sit down, and returns the number of the seat.
    pub(super) fn sit_down(&self, waits: Waits) -> (usize, Waiter) {
        let mut rows = self.0.0.lock();
        let number = rows.seats.len();
        rows.seats.push(Seat::Waits(waits));
        drop(rows);
        let waiter = Waiter { seats: Arc::clone(&self.0), number, is_new: true, has_heard: false };
        (number, waiter)
    }

    /// Turns away those who are late, and has the others sent who are still there: `retain` is to
    /// ask who that is.
    pub(super) fn send(&self, now: Instant, retain: impl FnOnce(&Telling<'_>)) {
        self.0.tell(|telling| {
            let _ = telling.tell_late(now);
            telling.rows.are_sent = true;
            retain(telling);
        });
    }

    /// Tells those who wait what became of them.
    pub(super) fn tell(&self, work: impl FnOnce(&mut Telling<'_>)) {
        self.0.tell(work);
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.tell(|telling| telling.interrupt(|_| true));
    }
}

impl Future for Waiter {
    type Output = Told;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Told> {
        if mem::take(&mut self.is_new) {
            return Poll::Pending;
        }
        let mut rows = self.seats.0.lock();
        let Some(seat) = rows.seats.get_mut(self.number) else {
            return Poll::Ready(Told::Interrupted);
        };
        if let Seat::Waits(waits) = seat {
            let same = waits.waker.will_wake(cx.waker());
            let waker = (!same).then(|| mem::replace(&mut waits.waker, cx.waker().clone()));
            drop(rows);
            // What a waker takes along with it may leave other seats.
            drop(waker);
            return Poll::Pending;
        }
        let seat = mem::replace(seat, Seat::Empty);
        drop(rows);
        self.has_heard = true;
        match seat {
            Seat::Told(told) => Poll::Ready(told),
            Seat::Waits(_) | Seat::Empty => Poll::Ready(Told::Interrupted),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.has_heard {
            drop(self.seats.replace(self.number, Seat::Empty));
        }
    }
}
