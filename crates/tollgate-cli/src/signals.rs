//! The signals that a process is sent.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Ctrl-C is received"))]
    Terminate,
    Interrupt,
}

impl Received {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        }
    }

    /// Returns the exit status of a process that the signal ends.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Terminate => 128 + 15,
            Self::Interrupt => 128 + 2,
        }
    }
}

/// SIGTERM and SIGINT, from the moment that this is made.
#[cfg(unix)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no signal is lost.
    pub(crate) async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received::Terminate,
            _ = self.interrupt.recv() => Received::Interrupt,
        }
    }
}

/// SIGHUP, from the moment that this is made.
#[cfg(unix)]
pub(crate) struct Hangups(Signal);

#[cfg(unix)]
impl Hangups {
    pub(crate) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no signal is lost.
    pub(crate) async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// What never comes.
#[cfg(not(unix))]
pub(crate) struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) {
        std::future::pending().await
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Received {
        let _ = tokio::signal::ctrl_c().await;
        Received::Interrupt
    }
}
