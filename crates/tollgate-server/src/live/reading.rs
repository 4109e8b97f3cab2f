//! Work on files that may never come to an end, such as on a network that is gone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::live::error::SourceError;

/// How long the work may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Does one thing at a time: what does not come holds up one thread, not one more at each attempt.
#[derive(Debug)]
pub(super) struct Reading(Arc<Semaphore>);

impl Reading {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Does `work` on what is at `path`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SourceError> {
        let held_up = || {
            let path = path.display();
            SourceError::new(format!("{path} does not answer within {} s", TIMEOUT.as_secs()))
        };
        let place = Arc::clone(&self.0).try_acquire_owned().map_err(|_| held_up())?;
        let task = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        match timeout(TIMEOUT, task).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) | Err(_) => Err(held_up()),
        }
    }
}

/// Reads a file that is one.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that is one: a pipe would wait for somebody who writes into it.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is not a regular file")),
    }
}
