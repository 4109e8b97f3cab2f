//! Looking for what has changed on disk and elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::tls::ListenerTls;
use crate::tokens::Tokens;

/// How often the files of certificates and tokens are read.
const INTERVAL: Duration = Duration::from_secs(10);

/// Tells a running service to look for new rules, certificates and tokens at once.
///
/// Without it the service notices them by itself, a little later.
#[derive(Clone, Debug)]
pub struct Reload(Arc<watch::Sender<u64>>);

impl Reload {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Makes the service look. It does not wait until it has.
    pub fn now(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn heard(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Reads certificates and tokens again, at intervals and when `reload` changes. It never ends by
/// itself.
pub(crate) async fn refresh(
    listeners: Vec<Arc<ListenerTls>>,
    tokens: &Tokens,
    mut reload: watch::Receiver<u64>,
) {
    loop {
        tokio::select! {
            () = sleep(INTERVAL) => {}
            asked = reload.changed() => if asked.is_err() {
                // The service is gone, and so will be this future.
                std::future::pending().await
            },
        }
        // A few small files, which are in memory as a rule.
        listeners.iter().for_each(|listener| listener.refresh());
        tokens.refresh();
    }
}
