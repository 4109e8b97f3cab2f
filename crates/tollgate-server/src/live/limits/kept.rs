//! The last limits on disk, for a start while their directory is away or broken.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tollgate_config::{EnvoyFiles, EnvoyLimits, RulesId};

use crate::live::file::write_whole;
use crate::live::kept::{open, read};

/// The name of the file in the state directory.
const FILE: &str = "envoy-limits.json";

/// The place on disk where limits are kept.
#[derive(Debug)]
pub(super) struct KeptLimits {
    path: PathBuf,
}

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Contents {
    /// Where the limits come from. Those of another directory are not used.
    directory: String,
    id: String,
    /// The name and the text of each file.
    files: Vec<(String, String)>,
}

impl KeptLimits {
    /// Makes the state directory, if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { path: open(folder, FILE)? })
    }

    /// Writes files without mistakes, and says so in the log if that fails: their limits are in
    /// force anyway.
    pub(super) async fn write(&self, id: &RulesId, files: &EnvoyFiles) {
        let text = |(name, bytes): (&str, &[u8])| {
            (name.to_owned(), String::from_utf8_lossy(bytes).into_owned())
        };
        let contents = Contents {
            directory: files.directory().display().to_string(),
            id: id.to_string(),
            files: files.iter().map(text).collect(),
        };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let json = serde_json::to_vec(&contents).map_err(io::Error::other)?;
            write_whole(&path, &json, None)
        });
        let written = written.await.unwrap_or_else(|ended| Err(io::Error::other(ended)));
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the limits could not be kept for the next start");
        }
    }

    /// Reads the limits of that directory, checked anew.
    pub(super) fn read(&self, directory: &Path) -> Option<EnvoyLimits> {
        let contents: Contents = match read(&self.path) {
            Ok(contents) => contents?,
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%error, %path, "the kept limits cannot be read");
                return None;
            }
        };
        if contents.directory != directory.display().to_string() {
            tracing::info!(kept = contents.directory, "the kept limits are of another directory");
            return None;
        }
        let files = contents.files.into_iter().map(|(name, text)| (name, text.into_bytes()));
        let limits = EnvoyFiles::new(directory, files.collect()).limits().ok()?;
        (limits.id.as_str() == contents.id).then_some(limits)
    }
}
