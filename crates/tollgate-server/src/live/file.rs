//! Rules in a file: its folder is watched, and it is read now and then in any case.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::live::error::{SourceError, WriteError};
use crate::live::source::{Fetched, read_file};

/// For how long a file must stay as it is before it is taken for whole. An editor that writes in
/// place truncates it first, and half of a file may be a file without mistakes.
const SETTLE: Duration = Duration::from_millis(20);

/// How often a file that keeps changing is read before what is there is taken.
const READS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    poll_interval: Duration,
    changed: Arc<Notify>,
    last: Mutex<Option<Vec<u8>>>,
}

impl FileSource {
    pub(super) fn new(path: &Path, poll_interval: Duration) -> Self {
        let changed = Arc::new(Notify::new());
        Self { path: path.to_owned(), poll_interval, changed, last: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn pace(&self) -> (Duration, Arc<Notify>) {
        (self.poll_interval, Arc::clone(&self.changed))
    }

    /// Reads the file, once it has stopped to change.
    pub(super) async fn fetch(&self) -> Result<Fetched, SourceError> {
        let Some(mut text) = read_file(&self.path).await? else { return Ok(Fetched::Absent) };
        if self.last().as_ref() == Some(&text) {
            return Ok(Fetched::Text(text));
        }
        for _ in 0..READS_MAX {
            sleep(SETTLE).await;
            let Some(again) = read_file(&self.path).await? else { return Ok(Fetched::Absent) };
            if again == text {
                break;
            }
            text = again;
        }
        *self.last() = Some(text.clone());
        Ok(Fetched::Text(text))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        // No code that holds the lock can leave the text half changed.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the folder of the file, and where the file is a link also the folder that it leads
    /// to. Not the file itself: editors and Kubernetes put another in its place, of which a watch
    /// of the first is told nothing.
    pub(super) async fn watch(&self) {
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
            let folders = self.folders();
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
            "changes of the file are not announced, it is read at intervals"
        );
        std::future::pending().await
    }

    fn folders(&self) -> BTreeSet<PathBuf> {
        let folder = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let target = fs::canonicalize(&self.path).ok();
        let folders = [Some(folder(&self.path)), target.as_deref().map(folder)];
        folders.into_iter().flatten().collect()
    }

    /// Puts a file with `text` in the place of the file, if that still has `seen`.
    pub(super) async fn write(&self, seen: Option<&[u8]>, text: &str) -> Result<(), WriteError> {
        let (path, seen, text) =
            (self.path.clone(), seen.map(<[u8]>::to_vec), text.as_bytes().to_vec());
        let written = tokio::task::spawn_blocking(move || replace(&path, seen.as_deref(), &text));
        match written.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(WriteError::Conflict),
            Ok(Err(error)) => {
                let path = self.path.display();
                Err(SourceError::new(format!("{path} cannot be written: {error}")).into())
            }
            Err(_) => Err(SourceError::new("the file could not be written").into()),
        }
    }
}

/// Returns whether the file had `seen`.
fn replace(path: &Path, seen: Option<&[u8]>, text: &[u8]) -> io::Result<bool> {
    // What a link leads to is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = match fs::read(&path) {
        Ok(current) if seen == Some(current.as_slice()) => Some(fs::metadata(&path)?.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && seen.is_none() => None,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(false),
    };
    write_whole(&path, text, permissions)?;
    Ok(true)
}

/// Writes a file so that it is there as a whole or not at all.
pub(super) fn write_whole(
    path: &Path,
    bytes: &[u8],
    permissions: Option<fs::Permissions>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(bytes)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        // What was begun is of no use, and may not exist.
        let _ = fs::remove_file(&beside);
    })
}
