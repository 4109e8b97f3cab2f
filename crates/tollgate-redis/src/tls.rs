//! TLS to the servers.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_core::StoreError;

/// The certificates of TLS connections to Redis: whom to believe, and who the client is.
///
/// The server's certificate is always checked, its name included. Without a [`ca`](Self::ca) the
/// certificates are believed that the system believes.
///
/// # Examples
///
/// ```no_run
/// use tollgate_redis::{RedisStore, Tls};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = Tls::new()
///     .ca(std::fs::read("/etc/tollgate/ca.pem")?)
///     .identity(std::fs::read("/etc/tollgate/client.pem")?, std::fs::read("/etc/tollgate/client.key")?);
/// let store = RedisStore::builder("rediss://redis.internal:6380").tls(tls).connect_lazily()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "certificates do nothing until a builder is given them"]
pub struct Tls {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Believes the certificates that the system believes, and shows none.
    pub fn new() -> Self {
        Self::default()
    }

    /// Believes the certificates in `pem`, and no others.
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Shows the server a certificate, with those that it was issued by, and proves it by its key:
    /// mTLS. Both are PEM.
    pub fn identity(
        mut self,
        certificates: impl Into<Vec<u8>>,
        private_key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificates.into(), private_key.into()));
        self
    }

    pub(crate) fn client(&self) -> Result<TlsClient, StoreError> {
        let roots = match &self.ca {
            Some(pem) => given_roots(pem)?,
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("protocol", &error))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain = certificates_of(certificates, "client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| unusable("private key", &error))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable("client certificate", &error))?
            }
        };
        Ok(TlsClient(TlsConnector::from(Arc::new(config))))
    }
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(pem, "CA certificate")? {
        roots.add(certificate).map_err(|error| unusable("CA certificate", &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    // Systems hold some that nobody can read, which says nothing about the others.
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(StoreError::invalid(
            "this system believes no certificate, so no TLS to Redis can be checked: install the \
             package ca-certificates, or give the CA",
        ));
    }
    Ok(roots)
}

fn certificates_of(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(what, &error))?;
    if certificates.is_empty() {
        return Err(unusable(what, &"there is no -----BEGIN CERTIFICATE----- in it"));
    }
    Ok(certificates)
}

fn unusable(what: &str, cause: &dyn fmt::Display) -> StoreError {
    StoreError::invalid(format!(
        "the {what} for TLS to Redis cannot be used ({cause}): give it in PEM"
    ))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

/// What makes a TLS stream of a TCP stream.
#[derive(Clone)]
pub(crate) struct TlsClient(TlsConnector);

impl TlsClient {
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}
