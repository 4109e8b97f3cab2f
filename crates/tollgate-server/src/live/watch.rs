//! Looking out for changes on disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::sleep;

/// For how long something must stay as it is before it is taken for whole. An editor that writes in
/// place truncates a file first, and half of a file may be a file without mistakes.
const SETTLE: Duration = Duration::from_millis(20);

/// How often what keeps changing is read before what is there is taken.
const READS_MAX: usize = 100;

/// A watch on folders.
#[derive(Debug)]
pub(super) struct Watch {
    poll_interval: Duration,
    changed: Arc<Notify>,
}

impl Watch {
    pub(super) fn new(poll_interval: Duration) -> Self {
        Self { poll_interval, changed: Arc::new(Notify::new()) }
    }

    /// Returns how long to wait before a look is due in any case, and what tells of a change.
    pub(super) fn pace(&self) -> (Duration, Arc<Notify>) {
        (self.poll_interval, Arc::clone(&self.changed))
    }

    /// Watches these folders, which may be others by and by, until the future is dropped.
    pub(super) async fn run(&self, folders: impl Fn() -> BTreeSet<PathBuf>) {
        let changed = Arc::clone(&self.changed);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is an event too, and would go on for ever.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                changed.notify_one();
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => return self.only_poll(&error).await,
        };
        let mut watched = BTreeSet::new();
        loop {
            let folders = folders();
            for gone in watched.difference(&folders) {
                // A folder that was removed is watched no more already.
                let _ = watcher.unwatch(gone);
            }
            let mut kept = folders.clone();
            for folder in folders.difference(&watched) {
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    kept.remove(folder);
                    tracing::debug!(%error, folder = %folder.display(), "cannot watch a folder");
                }
            }
            if kept.is_empty() {
                let error = notify::Error::generic("no folder can be watched");
                return self.only_poll(&error).await;
            }
            watched = kept;
            // A link may lead elsewhere by now.
            sleep(self.poll_interval).await;
        }
    }

    async fn only_poll(&self, error: &notify::Error) {
        tracing::info!(
            %error,
            poll_interval_ms = u64::try_from(self.poll_interval.as_millis()).unwrap_or(u64::MAX),
            "changes on disk are not announced, it is read at intervals"
        );
        std::future::pending().await
    }
}

/// Returns the folder that a file is in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Reads again and again what was `first`, until it is the same twice.
pub(super) async fn settled<T: PartialEq, E, Reading>(
    first: T,
    read: impl Fn() -> Reading,
) -> Result<T, E>
where
    Reading: Future<Output = Result<T, E>>,
{
    let mut seen = first;
    for _ in 0..READS_MAX {
        sleep(SETTLE).await;
        let again = read().await?;
        if again == seen {
            break;
        }
        seen = again;
    }
    Ok(seen)
}
