//! Follows the source.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::live::error::SourceError;
use crate::live::source::Fetched;
use crate::live::version::Origin;
use crate::live::{Live, Taken};

/// For how long further news is gathered once there is some.
const GATHER: Duration = Duration::from_millis(5);

/// Puts what the sources of the rules and of the limits for Envoy give in force, whenever one tells of a change, at intervals and when
/// `reload` changes. It never ends by itself.
pub(crate) async fn follow(live: &Live, mut reload: watch::Receiver<u64>) {
    let limits_reload = reload.clone();
    let asking = async {
        loop {
            let Some(pace) = live.source.pace() else { return std::future::pending().await };
            news(pace, &mut reload).await;
            live.refresh().await;
        }
    };
    tokio::join!(live.source.watch(), asking, live.limits.follow(limits_reload));
}

/// Waits until a source is to be asked.
pub(super) async fn news(
    (pause, changed): (Duration, Arc<Notify>),
    reload: &mut watch::Receiver<u64>,
) {
    tokio::select! {
        // In a busy folder, one look answers many events.
        () = changed.notified() => sleep(GATHER).await,
        () = sleep(pause) => {}
        asked = reload.changed() => if asked.is_err() {
            // The service is gone, and so will be this future.
            std::future::pending().await
        },
    }
}

impl Live {
    /// Asks the source once and puts what it gives in force.
    pub(super) async fn refresh(&self) -> Option<Taken> {
        // A source that waits for a change cannot be written to, so nothing can be overtaken.
        let fetched = match self.source.waits() {
            true => self.source.fetch().await,
            false => {
                let _turn = self.turn.lock().await;
                let fetched = self.source.fetch().await;
                return self.took(fetched).await;
            }
        };
        let _turn = self.turn.lock().await;
        self.took(fetched).await
    }

    /// Deals with an answer of the source, in its turn.
    pub(super) async fn took(&self, fetched: Result<Fetched, SourceError>) -> Option<Taken> {
        match fetched {
            Ok(Fetched::Same) => Some(self.seen_again()),
            Ok(Fetched::Text(text)) => Some(self.take(text, Origin::Source, None).await),
            Ok(Fetched::Absent) => {
                self.fail(&self.source.absent());
                None
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }
}
