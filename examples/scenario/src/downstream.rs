//! What is to be protected: it counts who gets through to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Failure;

type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// A service that counts its requests. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) address: SocketAddr,
    arrivals: Arrivals,
    running: JoinHandle<()>,
}

impl Downstream {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let arrivals = Arrivals::default();
        let app = Router::new().route("/", get(count)).with_state(Arc::clone(&arrivals));
        let running = tokio::spawn(async move {
            // It runs until it is aborted.
            let _ = axum::serve(listener.tap_io(without_delay), app).await;
        });
        Ok(Self { address, arrivals, running })
    }

    /// Returns when requests came, after `start`, in order.
    pub(crate) fn arrivals_since(&self, start: Instant) -> Vec<Duration> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.iter().map(|at| at.saturating_duration_since(start)).collect()
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Sends small answers at once.
pub(crate) fn without_delay(stream: &mut TcpStream) {
    // Without it answers are only slower.
    let _ = stream.set_nodelay(true);
}

async fn count(State(arrivals): State<Arrivals>) -> &'static str {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    "ok\n"
}
