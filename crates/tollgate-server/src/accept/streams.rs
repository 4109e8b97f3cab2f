//! The requests of one HTTP/2 connection, answered by the task of the connection.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;

/// Takes in the requests of a connection, for its [`Driver`] to answer them.
///
/// A task for each of them would cost more than most answers: it has to be scheduled, perhaps on
/// another thread, which then competes for the connection, and each wakes the connection to write.
#[derive(Clone, Default)]
pub(super) struct Streams(Arc<Mutex<Vec<Stream>>>);

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(stream));
    }
}

/// A connection together with the answers to its requests, which end with it.
pub(super) struct Driver<C> {
    connection: Pin<Box<C>>,
    arriving: Streams,
    /// Empty between polls.
    arrived: Vec<Stream>,
    waiting: FuturesUnordered<Stream>,
}

impl<C> Driver<C> {
    /// Drives `connection`, whose executor is `streams`.
    pub(super) fn new(connection: C, streams: Streams) -> Self {
        Self {
            connection: Box::pin(connection),
            arriving: streams,
            arrived: Vec::new(),
            waiting: FuturesUnordered::new(),
        }
    }

    pub(super) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future> Future for Driver<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let Self { connection, arriving, arrived, waiting } = &mut *self;
        // It takes in all that has arrived before it returns. Answers that are made below wake it, and so
        // are written together.
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        mem::swap(&mut *arriving.0.lock().unwrap_or_else(PoisonError::into_inner), arrived);
        for mut stream in arrived.drain(..) {
            // Most are done at once. What is not is polled again below, and then with a waker.
            if stream.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                waiting.push(stream);
            }
        }
        while ready!(waiting.poll_next_unpin(cx)).is_some() {}
        Poll::Pending
    }
}
