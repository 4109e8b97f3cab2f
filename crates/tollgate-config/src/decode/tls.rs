//! `tls`: the certificates of the listeners.

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::security::{ListenerTls, Tls};
use crate::tree::Node;

pub(super) const TLS: Shape =
    Shape { what: "`tls`", fields: &["http", "grpc", "admin"], synonyms: &[("metrics", "admin")] };

pub(super) const TLS_FILES: Shape = Shape {
    what: "the TLS of a listener",
    fields: &["cert", "key", "client_ca"],
    synonyms: &[
        ("certificate", "cert"),
        ("cert_file", "cert"),
        ("key_file", "key"),
        ("private_key", "key"),
        ("ca", "client_ca"),
        ("ca_file", "client_ca"),
    ],
};

impl Decoder<'_> {
    pub(super) fn listener_tls(&mut self, node: &Node) -> Option<Tls> {
        let fields = Fields::of(node, &TLS, self)?;
        let [http, grpc, admin] = TLS_LISTENERS.map(|name| match fields.value(name, self) {
            Some(node) => self.tls_files(node).map(Some),
            None => Some(None),
        });
        Some(Tls { http: http?, grpc: grpc?, admin: admin? })
    }

    fn tls_files(&mut self, node: &Node) -> Option<ListenerTls> {
        let fields = Fields::of(node, &TLS_FILES, self)?;
        let cert = self.required_path(&fields, "cert", "/etc/tollgate/tls/tls.crt");
        let key = self.required_path(&fields, "key", "/etc/tollgate/tls/tls.key");
        let client_ca = self.optional_path(&fields, "client_ca");
        Some(ListenerTls { cert: cert?, key: key?, client_ca: client_ca? })
    }
}

const TLS_LISTENERS: [&str; 3] = ["http", "grpc", "admin"];
