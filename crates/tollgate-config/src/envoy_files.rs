//! The files of limits for Envoy, before they are understood.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::envoy::EnvoyLimits;
use crate::error::ConfigErrors;
use crate::mistake::quoted;

/// The files of a directory of [`EnvoyLimits`], as they were found.
///
/// # Examples
///
/// ```
/// use tollgate_config::EnvoyFiles;
///
/// let text = b"domain: shop".to_vec();
/// let files = EnvoyFiles::new("limits", vec![("shop.yaml".to_owned(), text)]);
/// assert_eq!(files.limits()?.domains[0].name, "shop");
/// # Ok::<(), tollgate_config::ConfigErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyFiles {
    directory: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    /// The names of what is in the directory and not read.
    others: Vec<String>,
}

/// How many of those names are told.
const OTHERS_TOLD: usize = 5;

impl EnvoyFiles {
    /// Makes the files of a directory: the name and the bytes of each.
    pub fn new(directory: impl Into<PathBuf>, files: Vec<(String, Vec<u8>)>) -> Self {
        Self { directory: directory.into(), files, others: Vec::new() }
    }

    /// Reads every `*.yaml` and `*.yml` of a directory, in the order of their names and at most
    /// [`Config::SIZE_MAX`] bytes and one of each; directories in it and names that begin with a dot
    /// are passed over.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] if the directory or a file cannot be read, or if there is no such file in
    /// it.
    pub fn read(directory: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        let directory = directory.as_ref();
        let shown = directory.display().to_string();
        let (names, others) = names(directory).map_err(|error| {
            let message = format!("the directory cannot be read: {error}");
            let help = "check that it exists and that this user may read it";
            ConfigErrors::whole_file(&shown, message, help)
        })?;
        if names.is_empty() {
            let message = "the directory has no file *.yaml".to_owned();
            let help = "give the directory that holds the files of the domains";
            return Err(ConfigErrors::whole_file(&shown, message, help));
        }
        let read = |name: String| {
            let path = directory.join(&name);
            let bytes = bytes_of(&path).map_err(|error| {
                let message = format!("the file cannot be read: {error}");
                let help = "check that it exists and that this user may read it";
                ConfigErrors::whole_file(&path.display().to_string(), message, help)
            })?;
            Ok((name, bytes))
        };
        let files: Result<_, ConfigErrors> = names.into_iter().map(read).collect();
        Ok(Self { others, ..Self::new(directory, files?) })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name and the bytes of each file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// Reads the limits in the files.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of all files.
    pub fn limits(&self) -> Result<EnvoyLimits, ConfigErrors> {
        let named = |(name, bytes): &(String, Vec<u8>)| {
            (self.directory.join(name).display().to_string(), bytes.clone())
        };
        let mut limits = EnvoyLimits::collect(self.files.iter().map(named).collect())?;
        limits.directory = Some(self.directory.clone());
        if !self.others.is_empty() {
            let told: Vec<_> =
                self.others.iter().take(OTHERS_TOLD).map(|one| quoted(one)).collect();
            let more = self.others.len() - told.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!("not read in this directory: {}{more}", told.join(", "));
            let help = "limits are read from the files *.yaml and *.yml of the directory itself";
            limits.warnings.push_directory(&self.directory.display().to_string(), message, help);
        }
        Ok(limits)
    }
}

/// Lists the files that are read, and what is not read beside them.
fn names(directory: &Path) -> io::Result<(Vec<String>, Vec<String>)> {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_read = matches!(extension, Some("yaml" | "yml")) && !path.is_dir();
        if is_read { &mut names } else { &mut others }.push(name.into_owned());
    }
    names.sort();
    others.sort();
    Ok((names, others))
}

/// Reads a file, and of one that is too large no more than shows that it is.
fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would wait for somebody who writes into it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(Config::SIZE_MAX).unwrap_or(u64::MAX);
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
