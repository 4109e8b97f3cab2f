//! What a connection is doing, and since when.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, mem};

use axum::body::HttpBody;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::heads::Heads;
use super::requests::Requests;

/// What the client of one connection was last heard of.
#[derive(Debug)]
pub(super) struct Pulse {
    state: Mutex<State>,
    /// Of all connections of the listener.
    requests: Arc<Requests>,
    heads: Arc<Heads>,
    way: Notify,
}

#[derive(Debug)]
struct State {
    in_flight: usize,
    /// Whether a request in flight may wait for what others give back.
    awaits_others: bool,
    gives_way: bool,
    /// Whether a request has begun to arrive.
    has_head: bool,
    /// How much was heard since nothing is in flight.
    head_bytes: usize,
    has_asked: bool,
    answers: Answers,
    /// `None` until the first bytes tell.
    is_http2: Option<bool>,
    /// Since when it does that.
    since: Instant,
}

/// Why a connection has lasted for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The head of a request takes too long.
    Head,
    /// It asks nothing.
    Idle,
    /// It asks nothing, and another has no place.
    Way,
    /// Its client does not take an answer.
    Untaken,
}

/// How long an answer may wait for its client to take it, and at most twice that, while requests of
/// others are refused for lack of places.
const TAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many times longer otherwise.
const TAKE_PATIENCE: u32 = 5;

/// The answers that are there and that the client has not taken.
#[derive(Debug, Default)]
struct Answers {
    /// Counts the looks.
    look: u32,
    /// How many were there at the last look, and how many have come since.
    old: u32,
    new: u32,
}

impl Answers {
    /// Adds an answer, and returns when.
    const fn add(&mut self) -> u32 {
        self.new += 1;
        self.look
    }

    /// Removes an answer that was added then.
    const fn remove(&mut self, added: u32) {
        if added == self.look {
            self.new -= 1;
        } else {
            self.old -= 1;
        }
    }

    /// Tells whether an answer was there at the last look and still is.
    const fn look(&mut self) -> bool {
        let is_untaken = self.old > 0;
        self.old += self.new;
        self.new = 0;
        self.look = self.look.wrapping_add(1);
        is_untaken
    }
}

impl Pulse {
    pub(super) fn new(now: Instant, requests: Arc<Requests>, heads: Arc<Heads>) -> Self {
        let state = State {
            in_flight: 0,
            awaits_others: false,
            gives_way: false,
            has_head: false,
            head_bytes: 0,
            has_asked: false,
            answers: Answers::default(),
            is_http2: None,
            since: now,
        };
        Self { state: Mutex::new(state), requests, heads, way: Notify::new() }
    }

    /// Takes note of a request, until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>, awaits_others: bool) -> InFlight {
        let is_one_too_many = self.requests.begin(awaits_others);
        let mut state = self.state();
        state.in_flight += 1;
        state.awaits_others = awaits_others;
        state.has_head = false;
        state.has_asked = true;
        let head_bytes = mem::take(&mut state.head_bytes);
        drop(state);
        self.heads.end(head_bytes);
        InFlight { of: Arc::clone(self), is_one_too_many, awaits_others, answered: None }
    }

    /// Returns since when nothing is in flight, unless something is or the connection gives way already.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.in_flight == 0 && !state.gives_way).then_some(state.since)
    }

    /// Ends the connection for the sake of another.
    pub(super) fn make_way(&self) {
        self.state().gives_way = true;
        self.way.notify_one();
    }

    /// Tells whether the client, which sends no more, may still take an answer. One that has gone away
    /// looks the same, so it has none to what may wait for others.
    fn may_take_answer(&self) -> bool {
        let state = self.state();
        state.in_flight > 0 && state.is_http2 == Some(false) && !state.awaits_others
    }

    /// Tells whether the client is to be told before its idle connection ends: one of HTTP/2 that has
    /// asked before may ask again at that very moment.
    pub(super) fn takes_goodbye(&self) -> bool {
        let state = self.state();
        state.has_asked && state.is_http2 == Some(true)
    }

    /// Takes note of bytes, and tells whether there is room for them if they are of a head. On HTTP/2
    /// they need not be of a request, such as those of a ping.
    fn heard(&self, bytes: &[u8]) -> bool {
        let mut state = self.state();
        let is_http2 = *state.is_http2.get_or_insert_with(|| bytes.starts_with(b"PRI"));
        if !is_http2 && state.in_flight == 0 && !state.has_head {
            state.has_head = true;
            state.since = Instant::now();
        }
        if state.in_flight > 0 {
            return true;
        }
        let before = state.head_bytes;
        state.head_bytes += bytes.len();
        self.heads.grow(before, bytes.len())
    }

    /// Is done once the head of a request has taken longer than `header_timeout`, or the connection
    /// has been idle for `idle_timeout`, or gives way, or an answer is not taken.
    pub(super) async fn over(&self, header_timeout: Duration, idle_timeout: Duration) -> Over {
        let (mut look_at, mut turns) = (Instant::now() + TAKE_TIMEOUT, 0);
        let mut refused = self.requests.refused();
        loop {
            let (due, now) = (self.due(header_timeout, idle_timeout), Instant::now());
            if look_at <= now {
                let is_crowded = mem::replace(&mut refused, self.requests.refused()) != refused;
                turns = (turns + 1) % TAKE_PATIENCE;
                if (is_crowded || turns == 0) && self.state().answers.look() {
                    return Over::Untaken;
                }
                look_at = now + TAKE_TIMEOUT;
            }
            // What begins after this look cannot be over before the next.
            let mut next = (now + header_timeout.min(idle_timeout)).min(look_at);
            if let Some((at, over)) = due {
                if at <= now {
                    return over;
                }
                next = next.min(at);
            }
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.way.notified() => return Over::Way,
            }
        }
    }

    fn due(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<(Instant, Over)> {
        let state = self.state();
        match (state.in_flight, state.has_head) {
            (0, true) => Some((state.since + header_timeout, Over::Head)),
            (0, false) => Some((state.since + idle_timeout, Over::Idle)),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let head_bytes = self.state().head_bytes;
        self.heads.end(head_bytes);
    }
}

/// A request that has arrived and whose answer has not been sent.
#[derive(Debug)]
pub(super) struct InFlight {
    of: Arc<Pulse>,
    is_one_too_many: bool,
    awaits_others: bool,
    /// Since which look the answer is there, if it is.
    answered: Option<u32>,
}

impl InFlight {
    /// Tells whether the listener had as many in flight as it grants.
    pub(super) const fn is_one_too_many(&self) -> bool {
        self.is_one_too_many
    }

    /// Takes note of whether there is something for the client to take.
    fn note_answer(&mut self, is_there: bool) {
        match (self.answered, is_there) {
            (None, true) => self.answered = Some(self.of.state().answers.add()),
            (Some(added), false) => {
                self.of.state().answers.remove(added);
                self.answered = None;
            }
            _ => {}
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.of.requests.end(self.awaits_others);
        let mut state = self.of.state();
        state.in_flight -= 1;
        if let Some(added) = self.answered {
            state.answers.remove(added);
        }
        if state.in_flight == 0 {
            state.since = Instant::now();
        }
    }
}

/// A body whose request is in flight until it has been sent.
pub(super) struct Counted<B> {
    body: B,
    in_flight: InFlight,
}

impl<B> Counted<B> {
    pub(super) fn new(body: B, mut in_flight: InFlight) -> Self {
        in_flight.note_answer(true);
        Self { body, in_flight }
    }
}

impl<B: HttpBody + Unpin> HttpBody for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        // A stream that has nothing for its client may last.
        self.in_flight.note_answer(polled.is_ready());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How long the end of what a client sends is held back while it may still take an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// A stream whose incoming bytes a [`Pulse`] hears of.
///
/// A client may send a whole request and end its side at once. Hyper takes that end for that of the
/// connection, so it comes to know of it only after the answer.
pub(super) struct Heard<S> {
    stream: S,
    pulse: Arc<Pulse>,
    /// Until when the end of the stream is held back, once it was read.
    ended: Option<Pin<Box<Sleep>>>,
}

impl<S> Heard<S> {
    pub(super) const fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse, ended: None }
    }
}

impl<S> Heard<S> {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.pulse.may_take_answer() {
            return Poll::Ready(());
        }
        let ended = self.ended.get_or_insert_with(|| Box::pin(sleep(ANSWER_PATIENCE)));
        ended.as_mut().poll(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.is_some() {
            return self.poll_end(context).map(Ok);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            if !self.pulse.heard(bytes) {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
        } else if matches!(read, Poll::Ready(Ok(()))) && buffer.remaining() > 0 {
            return self.poll_end(context).map(Ok);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    // The h2 crate sends each message of 256 bytes or more by a call of its own where several slices can be
    // written at once, and copies those below 1,024 bytes together where they cannot. Answers are that short, and
    // a call to the system costs more than the copies.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
