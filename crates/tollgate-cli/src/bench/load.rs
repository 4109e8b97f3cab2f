//! The load: requests that are sent when they are due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::keys::{Keys, Spread};
use super::options::Bench;
use super::report::Report;
use super::target::Target;

/// How long answers are waited for after the last request was due.
const GRACE: Duration = Duration::from_secs(5);

/// The longest time that a request may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the line of progress is drawn.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// How many requests are sent, and when.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) url: String,
    pub(super) rate: u64,
    pub(super) duration: Duration,
    pub(super) connections: u16,
    keys: u32,
    spread: Spread,
}

/// What the callers share.
#[derive(Debug)]
struct Course {
    start: Instant,
    rate: u64,
    /// One permit for each request that is due and that nobody has taken on.
    due: Semaphore,
    taken: AtomicU64,
    answered: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
}

/// What the callers of one connection have seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) latencies_us: Histogram<u64>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    last_answer: Option<Instant>,
}

impl Plan {
    pub(super) fn new(args: &Bench) -> Result<Self, String> {
        let plan = Self {
            url: without_password(&args.url),
            rate: args.rate,
            duration: args.duration,
            connections: args.connections,
            keys: args.keys,
            spread: Spread::new(args),
        };
        if plan.count() == 0 {
            return Err("no request is due in that time: raise --rate or --duration".to_owned());
        }
        Ok(plan)
    }

    /// The number of requests.
    pub(super) fn count(&self) -> u64 {
        let count = u128::from(self.rate) * self.duration.as_micros() / 1_000_000;
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl Course {
    /// When a request is due.
    fn due_at(&self, number: u64) -> Instant {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Seen {
    pub(super) fn new() -> Result<Self, String> {
        let latencies_us = Histogram::new(3).map_err(|error| error.to_string())?;
        Ok(Self {
            latencies_us,
            allowed: 0,
            denied: 0,
            errors: 0,
            first_error: None,
            last_answer: None,
        })
    }

    fn note(&mut self, answer: Result<bool, String>, due_at: Instant) {
        let now = Instant::now();
        self.last_answer = Some(now);
        let latency = now.saturating_duration_since(due_at);
        match answer {
            Ok(is_allowed) => {
                *(if is_allowed { &mut self.allowed } else { &mut self.denied }) += 1;
                let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                // It grows with what is recorded, for which there is room up to the time of an answer.
                let _ = self.latencies_us.record(micros);
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert(error);
            }
        }
    }

    fn add(&mut self, other: &Self) -> Result<(), String> {
        self.latencies_us.add(&other.latencies_us).map_err(|error| error.to_string())?;
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        self.last_answer = self.last_answer.max(other.last_answer);
        Ok(())
    }
}

/// Returns an address without the user and the password that it may hold: reports are passed on.
fn without_password(url: &str) -> String {
    match url.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// Puts the load on the target.
pub(super) async fn run(plan: &Plan, target: &Arc<Target>) -> Result<Report, String> {
    let course = Arc::new(Course {
        start: Instant::now(),
        rate: plan.rate,
        due: Semaphore::new(0),
        taken: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        denied: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    });
    let connections: Vec<_> = (0..plan.connections)
        .map(|_| Seen::new().map(|seen| Arc::new(Mutex::new(seen))))
        .collect::<Result<_, _>>()?;
    let callers: Vec<_> = (0..connections.len() * target.streams())
        .map(|number| {
            let seen = Arc::clone(&connections[number % connections.len()]);
            let (course, target) = (Arc::clone(&course), Arc::clone(target));
            let keys = Keys::new(plan.keys, plan.spread.clone(), number as u64 + 1);
            tokio::spawn(call(course, target, number, keys, seen))
        })
        .collect();
    let pacer = {
        let (course, count) = (Arc::clone(&course), plan.count());
        thread::spawn(move || pace(&course, count))
    };
    let end = course.start + plan.duration;
    show_progress(plan, &course, end).await;
    for caller in callers {
        caller.await.map_err(|error| error.to_string())?;
    }
    let mut seen = Seen::new()?;
    for connection in &connections {
        seen.add(&connection.lock().unwrap_or_else(PoisonError::into_inner))?;
    }
    let elapsed = seen.last_answer.map_or(plan.duration, |last| last - course.start);
    pacer.join().map_err(|_| "the pacer failed".to_owned())?;
    Ok(Report::new(plan, seen, elapsed))
}

/// Lets each request go when it is due. It has a thread to itself: the runtime's timers are too
/// coarse by a millisecond, which would be counted as latency.
fn pace(course: &Course, count: u64) {
    let mut released = 0;
    while released < count && !course.due.is_closed() {
        let elapsed = course.start.elapsed().as_nanos();
        let due = elapsed * u128::from(course.rate) / 1_000_000_000 + 1;
        let due = u64::try_from(due).unwrap_or(u64::MAX).min(count);
        if due > released {
            course.due.add_permits(usize::try_from(due - released).unwrap_or(usize::MAX));
            released = due;
        }
        thread::park_timeout(course.due_at(released).saturating_duration_since(Instant::now()));
    }
}

async fn call(
    course: Arc<Course>,
    target: Arc<Target>,
    number: usize,
    mut keys: Keys,
    seen: Arc<Mutex<Seen>>,
) {
    let mut caller = target.caller(number);
    // Closed when the time is over.
    while let Ok(permit) = course.due.acquire().await {
        permit.forget();
        let due_at = course.due_at(course.taken.fetch_add(1, Ordering::Relaxed));
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let answer = timeout_at(deadline, caller.ask(keys.draw())).await;
        let answer = answer.unwrap_or_else(|_| {
            caller = target.caller(number);
            Err(format!("no answer in {} s", ANSWER_TIMEOUT.as_secs()))
        });
        course.answered.fetch_add(1, Ordering::Relaxed);
        course.denied.fetch_add(u64::from(answer == Ok(false)), Ordering::Relaxed);
        course.failed.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
        seen.lock().unwrap_or_else(PoisonError::into_inner).note(answer, due_at);
    }
}

/// Shows how far the load has come, if somebody watches, until all is answered or the time is over.
/// Then it tells the callers to stop.
async fn show_progress(plan: &Plan, course: &Course, end: Instant) {
    let bar = ProgressBar::new(plan.count());
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = 0;
    loop {
        ticks.tick().await;
        let answered = course.answered.load(Ordering::Relaxed);
        bar.set_position(answered);
        let a_second = (answered - before) * 1_000 / PROGRESS_INTERVAL.as_millis().max(1) as u64;
        bar.set_message(format!(
            "{a_second}/s, {} denied, {} errors",
            course.denied.load(Ordering::Relaxed),
            course.failed.load(Ordering::Relaxed)
        ));
        before = answered;
        if answered >= plan.count() || Instant::now() > end + GRACE {
            break;
        }
    }
    bar.finish_and_clear();
    course.due.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_told_however_long_they_are() {
        let mut seen = Seen::new().unwrap();
        let now = Instant::now();
        seen.note(Ok(true), now - Duration::from_secs(9));
        seen.note(Ok(false), now - Duration::from_millis(50));
        let mut all = Seen::new().unwrap();
        all.add(&seen).unwrap();
        assert!((50_000..90_000).contains(&all.latencies_us.value_at_quantile(0.5)));
        assert!((9_000_000..9_100_000).contains(&all.latencies_us.max()));
    }

    #[test]
    fn a_report_names_no_password() {
        assert_eq!(without_password("redis://u:s3@cret@db:6379/1"), "redis://db:6379/1");
        assert_eq!(without_password("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
    }
}
