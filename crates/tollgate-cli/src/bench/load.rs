//! The load: requests that are sent when they are due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::keys::{Keys, Spread};
use super::options::Bench;
use super::progress::{self, Progress};
use super::report::Report;
use super::seen::Seen;
use super::target::Target;
use crate::signals::Signals;

/// How long answers are waited for after the last request was due.
const GRACE: Duration = Duration::from_secs(5);

/// How long answers are waited for after a signal.
const INTERRUPTED_GRACE: Duration = Duration::from_millis(500);

/// The longest time that a request may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many requests are sent, and when.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) url: String,
    pub(super) rate: u64,
    pub(super) duration: Duration,
    pub(super) connections: u16,
    pub(super) keys: u32,
    pub(super) attribute: String,
    pub(super) attributes: Vec<(String, String)>,
    /// Of a load on a service.
    pub(super) domain: Option<String>,
    /// Of a load on a Redis.
    pub(super) prefix: Option<String>,
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
    /// For each caller the number of the request that it waits for, counted from 1, or 0.
    waiting: Box<[AtomicU64]>,
}

impl Plan {
    pub(super) fn new(args: &Bench) -> Result<Self, String> {
        let plan = Self {
            url: without_password(&args.url),
            rate: args.rate,
            duration: args.duration,
            connections: args.connections,
            keys: args.keys,
            attribute: args.attribute.clone(),
            attributes: args.attributes.clone(),
            domain: args.is_on_service().then(|| args.domain().to_owned()),
            prefix: (!args.is_on_service()).then(|| args.prefix().to_owned()),
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

/// Returns an address without the user and the password that it may hold: reports are passed on.
fn without_password(url: &str) -> String {
    match url.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

/// Puts the load on the target, until all is answered, the time is over or a signal comes.
pub(super) async fn run(
    plan: &Plan,
    target: &Arc<Target>,
    signals: &mut Signals,
) -> Result<Report, String> {
    let callers = usize::from(plan.connections) * target.streams();
    let course = Arc::new(Course {
        start: Instant::now(),
        rate: plan.rate,
        due: Semaphore::new(0),
        taken: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        denied: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        waiting: (0..callers).map(|_| AtomicU64::new(0)).collect(),
    });
    let connections: Vec<_> = (0..plan.connections)
        .map(|_| Seen::new().map(|seen| Arc::new(Mutex::new(seen))))
        .collect::<Result<_, _>>()?;
    let mut asking = JoinSet::new();
    for number in 0..callers {
        let seen = Arc::clone(&connections[number % connections.len()]);
        let (course, target) = (Arc::clone(&course), Arc::clone(target));
        let keys = Keys::new(plan.keys, plan.spread.clone(), number as u64 + 1);
        asking.spawn(call(course, target, number, keys, seen));
    }
    let pacer = {
        let (course, count) = (Arc::clone(&course), plan.count());
        thread::spawn(move || pace(&course, count))
    };
    let bar = progress::bar(plan.count());
    let interrupted = tokio::select! {
        () = finish(plan, &course, &bar, &mut asking) => None,
        received = signals.next() => Some(received),
    };
    bar.finish_and_clear();
    course.due.close();
    let stopped = Instant::now();
    pacer.thread().unpark();
    let released = pacer.join().map_err(|_| "the pacer failed".to_owned())?;
    let due = if interrupted.is_some() { released } else { plan.count() };
    // What is in flight may still be answered.
    let _ = timeout(INTERRUPTED_GRACE, drained(&mut asking)).await;
    asking.shutdown().await;

    let mut seen = Seen::new()?;
    for connection in &connections {
        seen.add(&connection.lock().unwrap_or_else(PoisonError::into_inner))?;
    }
    for number in
        course.waiting.iter().filter_map(|slot| slot.load(Ordering::Relaxed).checked_sub(1))
    {
        seen.note(
            Err("no answer until the load was interrupted".to_owned()),
            course.due_at(number),
            Instant::now(),
        );
    }
    let taken = course.taken.load(Ordering::Relaxed);
    seen.note_unsent(due.saturating_sub(taken), |number| {
        stopped.saturating_duration_since(course.due_at(taken + number))
    });
    let elapsed = match (interrupted, seen.last_answer) {
        (Some(_), _) => stopped - course.start,
        (None, Some(last)) => plan.duration.max(last - course.start),
        (None, None) => plan.duration,
    };
    Ok(Report::new(plan, seen, elapsed, interrupted))
}

/// Waits until all requests are answered or the time is over, and then for what is in flight.
async fn finish(plan: &Plan, course: &Course, bar: &ProgressBar, asking: &mut JoinSet<()>) {
    let end = course.start + plan.duration + GRACE;
    progress::show(bar, || {
        let [answered, denied, failed] = [&course.answered, &course.denied, &course.failed]
            .map(|count| count.load(Ordering::Relaxed));
        let goes_on = answered < plan.count() && Instant::now() <= end;
        Progress { answered, denied, failed, goes_on }
    })
    .await;
    course.due.close();
    drained(asking).await;
}

async fn drained(asking: &mut JoinSet<()>) {
    while asking.join_next().await.is_some() {}
}

/// Lets each request go when it is due. It has a thread to itself: the runtime's timers are too
/// coarse by a millisecond, which would be counted as latency. Returns how many it let go.
fn pace(course: &Course, count: u64) -> u64 {
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
    released
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
        let taken = course.taken.fetch_add(1, Ordering::Relaxed);
        course.waiting[number].store(taken + 1, Ordering::Relaxed);
        let due_at = course.due_at(taken);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let answer = timeout_at(deadline, caller.ask(keys.draw())).await;
        let answer = answer.unwrap_or_else(|_| {
            caller = target.caller(number);
            Err(format!("no answer in {} s", ANSWER_TIMEOUT.as_secs()))
        });
        course.answered.fetch_add(1, Ordering::Relaxed);
        course.denied.fetch_add(
            u64::from(answer.as_ref().is_ok_and(|answered| !answered.is_allowed)),
            Ordering::Relaxed,
        );
        course.failed.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
        seen.lock().unwrap_or_else(PoisonError::into_inner).note(answer, due_at, Instant::now());
        course.waiting[number].store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_no_password() {
        assert_eq!(without_password("redis://u:s3@cret@db:6379/1"), "redis://db:6379/1");
        assert_eq!(without_password("http://127.0.0.1:8080"), "http://127.0.0.1:8080");
    }
}
