//! Clients that cost little beside what they ask.
//!
//! What they read of an answer is just enough to tell whether the request was allowed. [`Client`] keeps
//! so many requests in flight and sends the next one as soon as an answer is there; [`Schedule`] sends
//! each when it is due.

mod grpc;
mod http;
mod schedule;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub use self::schedule::{Latencies, Schedule};
use crate::{Error, Random};

/// The most bytes that are read at a time.
const READ_LEN: usize = 1 << 16;

/// What is said on one connection, apart from sending and receiving it.
trait Protocol {
    /// Whether one more request may be in flight.
    fn has_room(&self) -> bool;

    /// Whether nothing more is to come.
    fn is_idle(&self) -> bool;

    /// Writes a request, and returns its number.
    fn ask(&mut self, key: usize, out: &mut Vec<u8>) -> Result<u64, Error>;

    /// Reads whole answers, tells the number of each and whether it passed, and returns how many bytes
    /// they had.
    fn hear(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answered: impl FnMut(u64, bool),
    ) -> Result<usize, Error>;
}

/// What is asked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `POST /v1/check`, one request at a time on each connection.
    Http,
    /// `ShouldRateLimit`, so many requests at a time on each connection.
    Grpc {
        /// The requests in flight on one connection.
        streams: usize,
    },
}

/// A load that is as high as the service carries.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// What is asked, and how.
    pub transport: Transport,
    /// The port of the service on this machine.
    pub port: u16,
    /// How many connections there are.
    pub connections: usize,
    /// How many keys are asked for, at random.
    pub keys: usize,
}

/// What a load came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// The time from the first request to the last answer.
    pub elapsed: Duration,
}

impl Answers {
    /// Returns how many requests were answered.
    pub const fn count(&self) -> u64 {
        self.allowed + self.denied
    }

    /// Returns how many requests were answered a second.
    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.elapsed.as_secs_f64()
    }

    const fn note(&mut self, is_allowed: bool) {
        if is_allowed {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
    }
}

impl Client {
    /// Puts the load on the service for so long.
    ///
    /// # Errors
    ///
    /// The first request that is answered by neither a pass nor a denial ends it.
    pub async fn run(self, duration: Duration) -> Result<Answers, Error> {
        let (start, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let tasks: Vec<_> = (0..self.connections)
            .map(|connection| tokio::spawn(self.ask(connection as u64, Arc::clone(&is_over))))
            .collect();
        tokio::time::sleep(duration).await;
        is_over.store(true, Ordering::Relaxed);
        let mut all = Answers::default();
        for task in tasks {
            let answers = task.await??;
            all.allowed += answers.allowed;
            all.denied += answers.denied;
        }
        all.elapsed = start.elapsed();
        Ok(all)
    }

    async fn ask(self, connection: u64, is_over: Arc<AtomicBool>) -> Result<Answers, Error> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let mut random = Random::new((connection + 1) << 20 | 7);
        let keys = move || random.below(self.keys);
        match self.transport {
            Transport::Http => ask(stream, http::Http::default(), keys, &is_over).await,
            Transport::Grpc { streams } => {
                ask(stream, grpc::Grpc::new(streams), keys, &is_over).await
            }
        }
    }
}

async fn ask(
    mut stream: TcpStream,
    mut protocol: impl Protocol,
    mut keys: impl FnMut() -> usize,
    is_over: &AtomicBool,
) -> Result<Answers, Error> {
    let (mut answers, mut out) = (Answers::default(), Vec::new());
    // What is read at a time is what it has room for, which then stays.
    let mut input = Vec::with_capacity(READ_LEN);
    loop {
        while protocol.has_room() && !is_over.load(Ordering::Relaxed) {
            protocol.ask(keys(), &mut out)?;
        }
        if protocol.is_idle() {
            return Ok(answers);
        }
        stream.write_all(&out).await?;
        out.clear();
        if stream.read_buf(&mut input).await? == 0 {
            return Err("the connection was closed".into());
        }
        let read = protocol.hear(&input, &mut out, |_, is_allowed| answers.note(is_allowed))?;
        input.drain(..read);
    }
}
