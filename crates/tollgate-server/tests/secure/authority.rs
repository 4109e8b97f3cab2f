//! Certificates of the tests.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority that gives certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn write(&self, path: &Path) {
        fs::write(path, self.0.pem()).unwrap();
    }

    pub(crate) fn der(&self) -> rustls::pki_types::CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Gives a certificate for this machine, and writes it and its key.
    pub(crate) fn issue(&self, cert: &Path, key: &Path) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let params = CertificateParams::new(names).unwrap();
        let pair = KeyPair::generate().unwrap();
        let signed = params.signed_by(&pair, &self.0).unwrap();
        fs::write(key, pair.serialize_pem()).unwrap();
        fs::write(cert, signed.pem()).unwrap();
    }
}
