//! Certificates for servers with TLS, made anew by each test.
//!
//! # Examples
//!
//! ```
//! use tollgate_testkit::RedisServer;
//! use tollgate_testkit::certificates::{Certificates, ClientCertificate};
//!
//! let certificates = Certificates::generate()?;
//! let server = RedisServer::builder().tls(&certificates, ClientCertificate::Needed).start()?;
//! let url = format!("rediss://localhost:{}", server.tls_port().unwrap());
//! assert!(certificates.ca().starts_with("-----BEGIN CERTIFICATE-----"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A CA, a certificate of a server at `localhost` and `127.0.0.1`, and one of a client.
///
/// See the [module docs](self) for an example. Clones are of one CA.
#[derive(Clone)]
pub struct Certificates {
    ca: String,
    client: Identity,
    /// Where the server finds its files.
    dir: Arc<TempDir>,
}

/// A certificate and the key that proves it, both in PEM.
#[derive(Clone)]
pub struct Identity {
    certificate: String,
    private_key: String,
}

/// Whether a server asks its clients for a certificate of the same CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientCertificate {
    /// It refuses clients without one.
    Needed,
    /// It asks for none.
    NotAsked,
}

impl Certificates {
    /// Makes a CA of its own, and certificates that nobody else believes.
    ///
    /// # Errors
    ///
    /// If the files for the server could not be written, or the system has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let ca_key = KeyPair::generate().map_err(io::Error::other)?;
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "tollgate test CA");
        let ca_pem = ca.self_signed(&ca_key).map_err(io::Error::other)?.pem();
        let issuer = Issuer::new(ca, ca_key);
        let server = Identity::issued(&issuer, &["localhost", "127.0.0.1"])?;
        let client = Identity::issued(&issuer, &["client"])?;
        let dir = tempfile::Builder::new().prefix("tollgate-certificates-").tempdir()?;
        for (name, text) in [
            ("ca.pem", &ca_pem),
            ("server.pem", &server.certificate),
            ("server.key", &server.private_key),
        ] {
            fs::write(dir.path().join(name), text)?;
        }
        Ok(Self { ca: ca_pem, client, dir: Arc::new(dir) })
    }

    /// Returns the certificate of the CA, in PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Returns a certificate for a client.
    pub fn client(&self) -> &Identity {
        &self.client
    }

    pub(crate) fn server_args(&self, client: ClientCertificate) -> Vec<OsString> {
        let file = |name| self.dir.path().join(name).into_os_string();
        let asked = match client {
            ClientCertificate::Needed => "yes",
            ClientCertificate::NotAsked => "no",
        };
        vec![
            "--tls-cert-file".into(),
            file("server.pem"),
            "--tls-key-file".into(),
            file("server.key"),
            "--tls-ca-cert-file".into(),
            file("ca.pem"),
            "--tls-auth-clients".into(),
            asked.into(),
        ]
    }
}

impl Identity {
    fn issued(issuer: &Issuer<'_, KeyPair>, names: &[&str]) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, issuer).map_err(io::Error::other)?;
        Ok(Self { certificate: certificate.pem(), private_key: key.serialize_pem() })
    }

    /// Returns the certificate.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the private key.
    pub fn private_key(&self) -> &str {
        &self.private_key
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("dir", &self.dir.path()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}
