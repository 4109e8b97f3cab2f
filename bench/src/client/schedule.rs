//! An open loop by one thread that never sleeps.
//!
//! Requests are due at even distances, and a latency counts from the instant at which the request was
//! due: one that cannot be sent since all connections are busy is late, and so are those behind it.
//! The thread asks all the time whether something has come, so it needs a processor that it shares with
//! nobody, and nothing that it measures is its own waiting for one.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::grpc::Grpc;
use super::http::Http;
use super::{Protocol, Transport};
use crate::{Error, Random};

/// Requests at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// What is asked, and how.
    pub transport: Transport,
    /// The port of the service on this machine.
    pub port: u16,
    /// How many connections there are.
    pub connections: usize,
    /// How many keys are asked for, at random.
    pub keys: usize,
    /// How many requests are due in a second.
    pub rate_per_second: u64,
    /// For how long requests are due.
    pub duration: Duration,
}

/// How long each request took, from when it was due.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// When each was due, and how long it took.
    taken: Vec<(Duration, Duration)>,
}

/// Long enough for a percentile, and so short that most of them pass without the machine standing still.
const WINDOW: Duration = Duration::from_millis(50);

impl Latencies {
    /// Returns how long it took those at most that were faster than all but so many of a million.
    pub fn but_for(&self, parts_per_million: usize) -> Duration {
        but_for(parts_per_million, self.taken.iter().map(|(_, taken)| *taken).collect())
    }

    /// Returns the same for each of the windows of 50 ms in which requests were due, of which it is the one
    /// in the middle: what the machine adds when it stands still for milliseconds is only in some.
    pub fn in_a_window_but_for(&self, parts_per_million: usize) -> Duration {
        let mut windows: HashMap<u128, Vec<Duration>> = HashMap::new();
        for (due, taken) in &self.taken {
            windows.entry(due.as_nanos() / WINDOW.as_nanos()).or_default().push(*taken);
        }
        let windows = windows.into_values().map(|taken| but_for(parts_per_million, taken));
        but_for(500_000, windows.collect())
    }
}

fn but_for(parts_per_million: usize, mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let slower = times.len() * parts_per_million / 1_000_000;
    let place = times.len().saturating_sub(slower + 1);
    times.get(place).copied().unwrap_or_default()
}

impl Schedule {
    /// Sends the requests, waits for all answers and returns how long each took.
    ///
    /// # Errors
    ///
    /// A request is answered by neither a pass nor a denial, or not within a second after the last was
    /// due.
    pub fn run(self) -> Result<Latencies, Error> {
        match self.transport {
            Transport::Http => self.run_by(Http::default),
            Transport::Grpc { streams } => self.run_by(|| Grpc::new(streams)),
        }
    }

    fn run_by<P: Protocol>(self, protocol: impl Fn() -> P) -> Result<Latencies, Error> {
        let lines = (0..self.connections).map(|_| Line::connect(self.port, protocol()));
        let mut lines: Vec<Line<P>> = lines.collect::<Result<_, _>>()?;
        let mut random = Random::new(7);
        let distance = Duration::from_secs(1).div_f64(self.rate_per_second as f64);
        let count = (self.duration.as_secs_f64() * self.rate_per_second as f64) as usize;
        let (mut due, mut waiting) = (0..count, VecDeque::new());
        let mut next = due.next();
        let mut taken = Vec::with_capacity(count);
        let (mut turn, start) = (0, Instant::now());
        while taken.len() < count {
            let now = start.elapsed();
            while let Some(number) = next.filter(|number| distance.mul_f64(*number as f64) <= now) {
                waiting.push_back(distance.mul_f64(number as f64));
                next = due.next();
            }
            for _ in 0..lines.len() {
                let Some(due) = waiting.front() else { break };
                let line = &mut lines[turn];
                turn = (turn + 1) % self.connections;
                if line.protocol.has_room() {
                    line.ask(random.below(self.keys), *due)?;
                    waiting.pop_front();
                }
            }
            for line in &mut lines {
                line.hear(|due| taken.push((due, start.elapsed().saturating_sub(due))))?;
            }
            if now > self.duration + Duration::from_secs(1) {
                return Err(format!("{} of {count} had no answer", count - taken.len()).into());
            }
        }
        Ok(Latencies { taken })
    }
}

/// A connection with the requests in flight on it.
#[derive(Debug)]
struct Line<P> {
    stream: TcpStream,
    protocol: P,
    /// When each request was due.
    asked: HashMap<u64, Duration>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<P: Protocol> Line<P> {
    fn connect(port: u16, protocol: P) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (input, output) = (Vec::new(), Vec::new());
        Ok(Self { stream, protocol, asked: HashMap::new(), input, output })
    }

    fn ask(&mut self, key: usize, due: Duration) -> Result<(), Error> {
        let number = self.protocol.ask(key, &mut self.output)?;
        self.asked.insert(number, due);
        self.send()
    }

    fn send(&mut self) -> Result<(), Error> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Tells for each answer when its request was due.
    fn hear(&mut self, mut answered: impl FnMut(Duration)) -> Result<(), Error> {
        if self.asked.is_empty() {
            return Ok(());
        }
        let mut buffer = [0; 16_384];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err("the connection was closed".into()),
            Ok(read) => self.input.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let Self { protocol, asked, input, output, .. } = self;
        let read = protocol.hear(input, output, |number, _| {
            if let Some(due) = asked.remove(&number) {
                answered(due);
            }
        })?;
        input.drain(..read);
        self.send()
    }
}
