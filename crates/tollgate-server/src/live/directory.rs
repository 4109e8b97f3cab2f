//! Limits for Envoy in a directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_config::EnvoyFiles;

use crate::live::error::SourceError;
use crate::live::reading::Reading;
use crate::live::version::report;
use crate::live::watch::{Watch, folder_of, settled};

/// A directory of files in the format of envoyproxy/ratelimit.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    watch: Watch,
    reading: Reading,
    last: Mutex<Option<EnvoyFiles>>,
}

impl Directory {
    pub(super) fn new(path: &Path, poll_interval: Duration) -> Self {
        Self {
            path: path.to_owned(),
            watch: Watch::new(poll_interval),
            reading: Reading::new(),
            last: Mutex::new(None),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn pace(&self) -> (Duration, Arc<Notify>) {
        self.watch.pace()
    }

    /// Reads all files, once they have stopped to change: several are rarely written at once.
    pub(super) async fn fetch(&self) -> Result<EnvoyFiles, SourceError> {
        let files = self.read().await?;
        // No code that holds the lock can leave the files half changed.
        if self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&files) {
            return Ok(files);
        }
        let files = settled(files, || self.read()).await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(files.clone());
        Ok(files)
    }

    async fn read(&self) -> Result<EnvoyFiles, SourceError> {
        let path = self.path.clone();
        let read = self.reading.run(&self.path, move || EnvoyFiles::read(path)).await?;
        read.map_err(|errors| SourceError::new(report(&errors)))
    }

    /// Watches the directory, the folder that it is in, since another may be put in its place, and
    /// wherever links in it lead.
    pub(super) async fn watch(&self) {
        self.watch.run(|| self.folders()).await;
    }

    fn folders(&self) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::from([self.path.clone(), folder_of(&self.path)]);
        folders.extend(fs::canonicalize(&self.path));
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if is_link && let Ok(target) = fs::canonicalize(entry.path()) {
                folders.insert(if target.is_dir() { target } else { folder_of(&target) });
            }
        }
        folders
    }
}
