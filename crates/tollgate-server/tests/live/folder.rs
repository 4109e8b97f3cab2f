//! A folder with a configuration.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate_config::Config;
use tollgate_server::Server;

use crate::support::Service;

/// A folder, and the configuration of a service in it.
pub(crate) struct Folder(TempDir);

impl Folder {
    /// Makes a folder with a `tollgate.yaml`, which gets free ports.
    pub(crate) fn new(config: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("tollgate.yaml", &configured(config));
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Puts another file in the place of one, as editors do.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write(".new", text);
        fs::rename(self.path(".new"), self.path(name)).unwrap();
    }

    /// Starts a service of the configuration.
    pub(crate) async fn serve(&self) -> Service {
        self.serve_file(&self.path("tollgate.yaml")).await
    }

    pub(crate) async fn serve_file(&self, path: &Path) -> Service {
        let config = Config::read(path).unwrap_or_else(|errors| panic!("{errors}"));
        Service::run(Server::bind(&config).await.unwrap_or_else(|error| panic!("{error}")))
    }
}

/// Puts free ports before a configuration.
pub(crate) fn configured(config: &str) -> String {
    format!("listen: {{ http: 127.0.0.1:0, grpc: 127.0.0.1:0, admin: 127.0.0.1:0 }}\n{config}")
}
