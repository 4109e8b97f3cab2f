//! What Redis servers are shown, read from its files.

use std::fs;
use std::path::Path;

use tollgate_config::{RedisAccess, RedisPassword};

/// The password and the certificates for a Redis server.
pub(crate) struct Shown {
    pub(crate) password: Option<String>,
    pub(crate) ca: Option<Vec<u8>>,
    /// The client's certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Shown {
    /// Reads the files of a `section` of the configuration.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, why, and what to do.
    pub(crate) fn read(access: &RedisAccess, section: &str) -> Result<Self, String> {
        let read = |path: &Path, field: &str| {
            fs::read(path).map_err(|error| {
                let shown = named(path, section, field);
                format!("{shown} cannot be read ({error}): check the path and its owner")
            })
        };
        let password = match &access.password {
            None => None,
            Some(RedisPassword::Text(password)) => Some(password.clone()),
            Some(RedisPassword::File(path)) => {
                let text = String::from_utf8(read(path, "password_file")?).map_err(|_| {
                    format!("{} is not UTF-8", named(path, section, "password_file"))
                })?;
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
        };
        let read_pem = |path: &Path, field: &str, label: &str| {
            let text = read(path, field)?;
            let marker = format!("{label}-----");
            if String::from_utf8_lossy(&text).contains(&marker) {
                return Ok(text);
            }
            let shown = named(path, section, field);
            Err(format!("{shown} cannot be used: there is no -----BEGIN ... {marker} in it"))
        };
        let ca = access.tls.ca.as_deref();
        let ca = ca.map(|path| read_pem(path, "tls.ca", "CERTIFICATE")).transpose()?;
        let identity = match &access.tls.identity {
            Some((certificate, key)) => Some((
                read_pem(certificate, "tls.cert", "CERTIFICATE")?,
                read_pem(key, "tls.key", "PRIVATE KEY")?,
            )),
            None => None,
        };
        Ok(Self { password, ca, identity })
    }
}

fn named(path: &Path, section: &str, field: &str) -> String {
    format!("the file {} of {section}.{field}", path.display())
}
