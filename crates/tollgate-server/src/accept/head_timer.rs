//! The time that the head of a request may take.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::time::{self, sleep_until};

/// A timer of one HTTP/1 connection, which waits for one head at a time.
///
/// A tokio timer takes a lock of its runtime when it is set and when it is dropped, which would be done for
/// each request. Here it stays, and is put off, which takes none.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadTimer(Arc<Mutex<Option<Pin<Box<time::Sleep>>>>>);

/// The wait for one head.
#[derive(Debug)]
struct Wait {
    timer: HeadTimer,
    deadline: time::Instant,
    is_set: bool,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { timer: self.clone(), deadline: deadline.into(), is_set: false })
    }

    fn now(&self) -> Instant {
        time::Instant::now().into_std()
    }
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { timer, deadline, is_set } = &mut *self;
        let mut shared = timer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = shared.get_or_insert_with(|| Box::pin(sleep_until(*deadline)));
        if !*is_set {
            *is_set = true;
            sleep.as_mut().reset(*deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn each_head_has_the_whole_time() {
        let (timer, start) = (HeadTimer::default(), time::Instant::now());
        for _ in 0..5 {
            let wait = timer.sleep(LIMIT);
            let in_time = time::timeout(LIMIT - Duration::from_secs(1), wait).await;
            assert!(in_time.is_err(), "the head is there in time");
        }
        assert_eq!(start.elapsed(), Duration::from_secs(45));
        for _ in 0..2 {
            timer.sleep(LIMIT).await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(65));
    }
}
