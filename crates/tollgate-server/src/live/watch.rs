//! Looking out for changes on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::sleep;

/// For how long something must stay as it is before it is taken for whole. An editor that writes in
/// place truncates a file first, and half of a file may be a file without mistakes.
const SETTLE: Duration = Duration::from_millis(20);

/// How often what keeps changing is read before what is there is taken.
const READS_MAX: usize = 100;

/// How often it is looked at what to watch, although nothing has told of a change.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

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
        let (changed, moved) = (Arc::clone(&self.changed), Arc::new(Notify::new()));
        let told = Arc::clone(&moved);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is an event too, and would go on for ever.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                changed.notify_one();
                told.notify_one();
            }
        });
        let mut watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                self.tell_of_polling(&error);
                return std::future::pending().await;
            }
        };
        let mut watched = BTreeMap::<PathBuf, FolderId>::new();
        let mut is_told = false;
        loop {
            let folders = identified(folders());
            for (gone, _) in watched.iter().filter(|(path, id)| folders.get(*path) != Some(*id)) {
                // A folder that was removed is watched no more already.
                let _ = watcher.unwatch(gone);
            }
            let mut is_new = false;
            let mut kept = folders.clone();
            for (folder, id) in &folders {
                if watched.get(folder) == Some(id) {
                    continue;
                }
                is_new = true;
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    kept.remove(folder);
                    tracing::debug!(%error, folder = %folder.display(), "cannot watch a folder");
                }
            }
            // It may be there again by and by.
            if kept.is_empty() && !is_told {
                self.tell_of_polling(&notify::Error::generic("no folder can be watched"));
            }
            is_told = kept.is_empty();
            // What happened in a folder before it was watched has not been told.
            if is_new {
                self.changed.notify_one();
            }
            watched = kept;
            // A link may lead elsewhere by now, and another folder be in the place of one.
            tokio::select! {
                () = moved.notified() => sleep(SETTLE).await,
                () = sleep(self.poll_interval.min(LOOK_INTERVAL)) => {}
            }
        }
    }

    fn tell_of_polling(&self, error: &notify::Error) {
        tracing::info!(
            %error,
            poll_interval_ms = u64::try_from(self.poll_interval.as_millis()).unwrap_or(u64::MAX),
            "changes on disk are not announced, it is read at intervals"
        );
    }
}

/// Finds the folders by what they are: two paths may lead to one folder, of which the system tells
/// by one of the two only, and one path to another folder than before.
fn identified(folders: BTreeSet<PathBuf>) -> BTreeMap<PathBuf, FolderId> {
    let identified = folders.iter().filter_map(|folder| {
        let folder = fs::canonicalize(folder).ok()?;
        let id = FolderId::of(&fs::metadata(&folder).ok()?);
        Some((folder, id))
    });
    identified.collect()
}

/// What tells a folder from another that has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FolderId {
    device: u64,
    inode: u64,
    /// Numbers of folders that are gone are given to new ones.
    created: Option<SystemTime>,
}

impl FolderId {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        let created = metadata.created().ok();
        Self { device: metadata.dev(), inode: metadata.ino(), created }
    }

    #[cfg(not(unix))]
    fn of(metadata: &fs::Metadata) -> Self {
        Self { device: 0, inode: 0, created: metadata.created().ok() }
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
