//! The last versions on disk, for a start while the source is away.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tollgate::Timestamp;
use tollgate_config::RulesFile;

use crate::live::file::write_whole;
use crate::live::history::History;
use crate::live::reading::open_regular;
use crate::live::source::Source;
use crate::live::version::{Checked, Origin, Version};

/// The name of the file in the state directory.
const FILE: &str = "rules.json";

/// The most bytes of the file: what a history has at most, with every byte escaped.
const SIZE_MAX: u64 = 64 << 20;

/// The place on disk where versions are kept.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    /// The number of the last history that was written.
    written: Arc<Mutex<u64>>,
}

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Contents {
    /// Where the versions come from. Those of another source are not used.
    source: String,
    /// The newest first.
    versions: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    id: String,
    applied_at_ms: u64,
    origin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    document: String,
}

impl Kept {
    /// Makes the directory, if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { path: open(folder, FILE)?, written: Arc::new(Mutex::new(0)) })
    }

    /// Writes the versions unless that or a later history was written, and says so in the log if
    /// that fails: the rules are in force anyway.
    pub(super) async fn write(&self, source: &Source, versions: History) {
        let number = versions.number();
        let contents = Contents {
            source: source.to_string(),
            versions: versions.iter().map(Entry::of).collect(),
        };
        let (path, written) = (self.path.clone(), Arc::clone(&self.written));
        let written = tokio::task::spawn_blocking(move || {
            // A number is whole whatever a thread that held the lock did.
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            if number <= *written {
                return Ok(());
            }
            let json = serde_json::to_vec(&contents).map_err(io::Error::other)?;
            write_whole(&path, &json, None)?;
            *written = number;
            Ok(())
        });
        let written = written.await.unwrap_or_else(|ended| Err(io::Error::other(ended)));
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the rules could not be kept for the next start");
        }
    }

    /// Reads the versions of that source, the newest first, each checked anew.
    pub(super) fn read(&self, source: &Source) -> Vec<Checked> {
        let contents: Contents = match read(&self.path) {
            Ok(Some(contents)) => contents,
            Ok(None) => return Vec::new(),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%error, %path, "the kept rules cannot be read");
                return Vec::new();
            }
        };
        if contents.source != source.to_string() {
            tracing::info!(kept = contents.source, "the kept rules are of another source");
            return Vec::new();
        }
        contents.versions.into_iter().filter_map(|entry| entry.checked(source)).collect()
    }
}

/// Makes the state directory, and returns the path of a file in it.
pub(super) fn open(folder: &Path, file: &str) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    // What cannot be written should be known at the start, not at the first change.
    let probe = folder.join(format!("{file}.probe"));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)?;
    Ok(folder.join(file))
}

/// Reads a file of the state directory, if it is there.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > SIZE_MAX => {
            return Err(io::Error::other("the file is too large"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(_) | Err(_) => {}
    }
    let mut bytes = Vec::new();
    open_regular(path)?.take(SIZE_MAX).read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

impl Entry {
    fn of(version: &Version) -> Self {
        Self {
            id: version.id.to_string(),
            applied_at_ms: version.applied_at.as_micros() / 1_000,
            origin: version.origin.as_str().to_owned(),
            by: version.by.clone(),
            document: version.document.to_string(),
        }
    }

    /// A version that this program no longer accepts, or that was changed on disk, is left out.
    fn checked(self, source: &Source) -> Option<Checked> {
        let file = RulesFile::parse(&self.document, &source.name()).ok()?;
        if file.id.as_str() != self.id {
            return None;
        }
        let mut checked = Checked::of(&file, self.document.into());
        let micros = self.applied_at_ms.saturating_mul(1_000);
        checked.version.applied_at = Timestamp::from_micros(micros);
        let origin = Origin::ALL.into_iter().find(|origin| origin.as_str() == self.origin);
        checked.version.origin = origin.unwrap_or(Origin::Source);
        checked.version.by = self.by;
        Some(checked)
    }
}
