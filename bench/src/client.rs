//! Clients that cost little beside what they ask.
//!
//! They keep so many requests in flight and send the next one as soon as an answer is there. What they
//! read of an answer is just enough to tell whether the request was allowed.

mod grpc;
mod http;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::{Error, Random};

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
            Transport::Http => http::ask(stream, keys, &is_over).await,
            Transport::Grpc { streams } => grpc::ask(stream, streams, keys, &is_over).await,
        }
    }
}
