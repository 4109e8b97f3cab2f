//! TLS: the certificates of the listeners, and whom this process believes.

mod expiry;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tollgate::{Clock, SystemClock};
use tollgate_config::ListenerTls as ListenerFiles;

use crate::live::read_regular;

/// The certificate of one listener, which may be replaced while it listens.
pub(crate) struct ListenerTls {
    listener: &'static str,
    files: ListenerFiles,
    current: ArcSwap<Current>,
    /// Whether the files have something that cannot be used.
    is_stale: AtomicBool,
}

struct Current {
    config: Arc<ServerConfig>,
    /// What the files said.
    read: Vec<Vec<u8>>,
    /// When the certificate expires, in seconds since 1970.
    expiry: Option<i64>,
}

/// A certificate or key that cannot be used.
#[derive(Debug)]
pub(crate) struct TlsError(String);

impl ListenerTls {
    pub(crate) fn new(listener: &'static str, files: &ListenerFiles) -> Result<Self, TlsError> {
        let current = Current::read(files)?;
        current.warn_if_expired(listener);
        let (current, is_stale) = (ArcSwap::from_pointee(current), AtomicBool::new(false));
        Ok(Self { listener, files: files.clone(), current, is_stale })
    }

    /// Returns the name of the listener.
    pub(crate) const fn listener(&self) -> &'static str {
        self.listener
    }

    /// Returns when the certificate in use expires, in seconds since 1970.
    pub(crate) fn expiry(&self) -> Option<i64> {
        self.current.load().expiry
    }

    /// Tells whether the files have something that cannot be used.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Returns what accepts the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// Reads the files again. New connections have the new certificate; if it cannot be used, the
    /// one before stays.
    pub(crate) fn refresh(&self) {
        let listener = self.listener;
        let known = self.current.load();
        if read_all(&self.files).is_ok_and(|read| read == known.read) {
            self.is_stale.store(false, Ordering::Relaxed);
            return;
        }
        match Current::read(&self.files) {
            Ok(current) => {
                self.is_stale.store(false, Ordering::Relaxed);
                tracing::info!(listener, "a new certificate is in use");
                current.warn_if_expired(listener);
                self.current.store(Arc::new(current));
            }
            Err(error) => {
                self.is_stale.store(true, Ordering::Relaxed);
                tracing::warn!(%error, listener, "the new certificate cannot be used, the one before stays");
            }
        }
    }
}

impl Current {
    fn read(files: &ListenerFiles) -> Result<Self, TlsError> {
        let read = read_all(files)?;
        let [cert, key, rest @ ..] = read.as_slice() else {
            return Err(TlsError("there is no certificate".to_owned()));
        };
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?;
        let builder = match (rest.first(), &files.client_ca) {
            (Some(pem), Some(path)) => {
                let roots = Arc::new(roots(pem, path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = verifier.build().map_err(|error| unusable(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let chain = certificates(cert, &files.cert)?;
        let expiry = chain.first().and_then(|certificate| expiry::expiry(certificate));
        let (cert, key) = (&files.cert, private_key(key, &files.key)?);
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let (cert, key) = (cert.display(), files.key.display());
                TlsError(format!("the key {key} is not that of the certificate {cert}"))
            }
            error => unusable(cert, &error),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), read, expiry })
    }

    fn warn_if_expired(&self, listener: &'static str) {
        let now = SystemClock.now().as_micros() / 1_000_000;
        if self.expiry.is_some_and(|expiry| i64::try_from(now).is_ok_and(|now| expiry < now)) {
            tracing::warn!(listener, "the certificate has expired, clients will refuse it");
        }
    }
}

/// Makes the TLS of a client, which believes the certificates in `ca`, or those of the system.
pub(crate) fn client_config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, TlsError> {
    let roots = match ca {
        Some(path) => roots(&read(path)?, path)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(error.to_string()))?
        .with_root_certificates(roots);
    let Some((cert, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(&read(cert)?, cert)?;
    let config = builder.with_client_auth_cert(chain, private_key(&read(key)?, key)?);
    config.map_err(|error| unusable(cert, &error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read_all(files: &ListenerFiles) -> Result<Vec<Vec<u8>>, TlsError> {
    let paths = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
    paths.into_iter().flatten().map(|path: &PathBuf| read(path)).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    read_regular(path)
        .map_err(|error| TlsError(format!("{} cannot be read: {error}", path.display())))
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unusable(path, &error))?;
    if chain.is_empty() {
        return Err(TlsError(format!("{} has no certificate in PEM", path.display())));
    }
    Ok(chain)
}

fn private_key(pem: &[u8], path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    // The error of the parser could quote the key.
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| TlsError(format!("{} has no private key in PEM", path.display())))
}

fn roots(pem: &[u8], path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let message = "this system has no certificates to believe: name a file with some as `ca`";
        return Err(TlsError(message.to_owned()));
    }
    Ok(roots)
}

fn unusable(path: &Path, error: &dyn fmt::Display) -> TlsError {
    TlsError(format!("{} cannot be used: {error}", path.display()))
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls").field("files", &self.files).finish_non_exhaustive()
    }
}
