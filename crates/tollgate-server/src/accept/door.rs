//! The listener of connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// How many connections may be open that have not been accepted.
pub(crate) const BACKLOG: u32 = 1_024;

/// How long no connection is accepted after that failed, for lack of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often such a failure is logged at most.
const ACCEPT_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Where connections come in.
pub(super) struct Door {
    listener: TcpListener,
    warned: Option<Instant>,
}

impl Door {
    pub(super) const fn new(listener: TcpListener) -> Self {
        Self { listener, warned: None }
    }

    /// Accepts the next connection, however often that fails before.
    pub(super) async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((connection, peer)) => return (at_once(connection), peer),
                Err(error) => {
                    self.warn(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Closes the door, after those that have connected by now and have not been accepted.
    pub(super) fn closed(self) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
        // The runtime may not have heard of them yet, so the kernel is asked.
        let listener = self.listener.into_std().ok();
        let accept = move || listener.as_ref()?.accept().ok();
        std::iter::from_fn(accept).take(BACKLOG as usize).filter_map(|(connection, peer)| {
            connection.set_nonblocking(true).ok()?;
            Some((at_once(TcpStream::from_std(connection).ok()?), peer))
        })
    }

    fn warn(&mut self, error: &std::io::Error) {
        let now = Instant::now();
        let is_due = self.warned.is_none_or(|last| now - last >= ACCEPT_WARNING_INTERVAL);
        if is_due {
            self.warned = Some(now);
            tracing::warn!(%error, "cannot accept connections, raise the limit of open files");
        }
    }
}

/// Makes a connection send small answers at once, which Nagle's algorithm would hold back for up to
/// 40 ms.
fn at_once(connection: TcpStream) -> TcpStream {
    if let Err(error) = connection.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    connection
}
