//! Rules in a file: its folder is watched, and it is read now and then in any case.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::live::error::{SourceError, WriteError};
use crate::live::reading::Reading;
use crate::live::source::{Fetched, read_bounded, read_file};
use crate::live::watch::{Watch, folder_of, settled};

#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    watch: Watch,
    reading: Reading,
    last: Mutex<Option<Vec<u8>>>,
}

impl FileSource {
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

    /// Reads the file, once it has stopped to change.
    pub(super) async fn fetch(&self) -> Result<Fetched, SourceError> {
        let Some(text) = self.read().await? else { return Ok(Fetched::Absent) };
        if self.last().as_ref() == Some(&text) {
            return Ok(Fetched::Text(text));
        }
        let text = settled(Some(text), || self.read()).await?;
        let Some(text) = text else { return Ok(Fetched::Absent) };
        *self.last() = Some(text.clone());
        Ok(Fetched::Text(text))
    }

    async fn read(&self) -> Result<Option<Vec<u8>>, SourceError> {
        read_file(&self.reading, &self.path).await
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        // No code that holds the lock can leave the text half changed.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the folder of the file, and where the file is a link also the folder that it leads
    /// to. Not the file itself: editors and Kubernetes put another in its place, of which a watch
    /// of the first is told nothing.
    pub(super) async fn watch(&self) {
        self.watch.run(|| self.folders()).await;
    }

    fn folders(&self) -> BTreeSet<PathBuf> {
        let target = fs::canonicalize(&self.path).ok();
        let folders = [Some(folder_of(&self.path)), target.as_deref().map(folder_of)];
        folders.into_iter().flatten().collect()
    }

    /// Puts a file with `text` in the place of the file, if that still has `seen`.
    pub(super) async fn write(&self, seen: Option<&[u8]>, text: &str) -> Result<(), WriteError> {
        let (path, seen, text) =
            (self.path.clone(), seen.map(<[u8]>::to_vec), text.as_bytes().to_vec());
        let work = move || replace(&path, seen.as_deref(), &text);
        match self.reading.run(&self.path, work).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(WriteError::Conflict),
            Err(error) => {
                let path = self.path.display();
                Err(SourceError::new(format!("{path} cannot be written: {error}")).into())
            }
        }
    }
}

/// Returns whether the file had `seen`.
fn replace(path: &Path, seen: Option<&[u8]>, text: &[u8]) -> io::Result<bool> {
    // What a link leads to is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // Of what is too large no more was seen than shows that it is.
    let like = match read_bounded(&path) {
        Ok(current) if seen == Some(current.as_slice()) => Some(fs::metadata(&path)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound && seen.is_none() => None,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(false),
    };
    write_whole(&path, text, like.as_ref())?;
    Ok(true)
}

/// Writes a file so that it is there as a whole or not at all, with the mode and the owner of the
/// file that it is `like`.
pub(super) fn write_whole(
    path: &Path,
    bytes: &[u8],
    like: Option<&fs::Metadata>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(bytes)?;
        if let Some(like) = like {
            keep_owner(&file, like);
            file.set_permissions(like.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        // What was begun is of no use, and may not exist.
        let _ = fs::remove_file(&beside);
    })
}

/// Gives a file the owner of another, where this process may.
#[cfg(unix)]
fn keep_owner(file: &fs::File, like: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};

    // Most processes may not, and then have written as whoever they are.
    let _ = fchown(file, Some(like.uid()), Some(like.gid()));
}

#[cfg(not(unix))]
const fn keep_owner(_file: &fs::File, _like: &fs::Metadata) {}
