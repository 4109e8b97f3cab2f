//! Work that goes on without a caller who waits for it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::watch;

/// Counts the work that goes on, so that a process can wait for its end before it ends itself.
#[derive(Default)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
}

/// One piece of work; its end is dropping it.
pub(crate) struct Running {
    running: watch::Sender<usize>,
}

impl Background {
    /// Counts one more piece of work.
    pub(crate) fn begin(&self) -> Running {
        self.running.send_modify(|running| *running += 1);
        Running { running: self.running.clone() }
    }

    /// Runs work to its end: at once if it never waits, as it does on a store in memory, else on
    /// the current runtime. Without a runtime it is not done.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
        if pin!(&mut work).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let running = self.begin();
            runtime.spawn(async move {
                work.await;
                drop(running);
            });
        }
    }

    /// Waits until no work goes on.
    pub(crate) async fn ended(&self) {
        // The sender is alive, so this cannot fail.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.running.send_modify(|running| *running -= 1);
    }
}
