//! TLS and mTLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tollgate_config::HttpUrl;
use tollgate_server::{AdminClient, Reload, Server};

use crate::authority::Authority;
use crate::support::{Service, head, parse};

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, client_ca: bool) -> String {
        let dir = self.0.path().display();
        let client_ca = if client_ca { format!(", client_ca: {dir}/ca") } else { String::new() };
        format!(
            "tls:\n  http: {{ cert: {dir}/cert, key: {dir}/key }}\n  \
             grpc: {{ cert: {dir}/cert, key: {dir}/key }}\n  \
             admin: {{ cert: {dir}/cert, key: {dir}/key{client_ca} }}\n\
             rules: [{{ name: all, limit: 10000/s }}]\n"
        )
    }

    fn issue(&self, authority: &Authority) {
        authority.issue(&self.path("cert"), &self.path("key"));
    }

    async fn serve(&self, client_ca: bool) -> (Service, Reload) {
        let server = Server::bind(&parse(&self.config(client_ca))).await.unwrap();
        let reload = server.reload();
        (Service::run(server), reload)
    }
}

/// A client that believes an authority, and shows the certificate in these files.
fn client(authority: &Authority, identity: Option<(&Path, &Path)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let cert = CertificateDer::from_pem_file(cert).unwrap();
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    }
}

/// Returns the status that a request gets, or why there is none.
async fn get(address: SocketAddr, path: &str, config: ClientConfig) -> Result<String, String> {
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(&head("GET", path, &[], 0)).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        std::io::Result::Ok(reply)
    };
    let reply = timeout(Duration::from_secs(10), exchange).await.unwrap();
    let reply = reply.map_err(|error| error.to_string())?;
    Ok(reply.split(' ').nth(1).unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_listener_with_a_certificate_speaks_tls_and_nothing_else() {
    let (files, authority) = (Files::new(), Authority::new());
    files.issue(&authority);
    let (service, _reload) = files.serve(false).await;
    assert_eq!(get(service.http, "/v1/auth", client(&authority, None)).await.unwrap(), "200");
    assert_eq!(get(service.admin, "/healthz", client(&authority, None)).await.unwrap(), "200");
    let stranger = get(service.http, "/", client(&Authority::new(), None)).await.unwrap_err();
    assert!(stranger.starts_with("invalid peer certificate"), "{stranger}");

    let mut plain = TcpStream::connect(service.http).await.unwrap();
    plain.write_all(&head("GET", "/v1/auth", &[], 0)).await.unwrap();
    let mut reply = Vec::new();
    // It may end by a reset, with what was not read.
    let _ = timeout(Duration::from_secs(10), plain.read_to_end(&mut reply)).await.unwrap();
    assert!(!reply.starts_with(b"HTTP"), "{reply:?}");
}

#[tokio::test]
async fn the_listener_for_envoy_speaks_tls_and_http_2() {
    let (files, authority) = (Files::new(), Authority::new());
    files.issue(&authority);
    let (service, _reload) = files.serve(false).await;
    let mut config = client(&authority, None);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(service.grpc).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // Its first frame is that of its settings.
    let mut frame = [0; 9];
    timeout(Duration::from_secs(10), stream.read_exact(&mut frame)).await.unwrap().unwrap();
    assert_eq!(frame[3], 4, "{frame:?}");
}

#[tokio::test]
async fn with_mtls_only_those_with_a_certificate_are_answered() {
    let (files, authority, stranger) = (Files::new(), Authority::new(), Authority::new());
    files.issue(&authority);
    authority.write(&files.path("ca"));
    let (cert, key) = (files.path("client.cert"), files.path("client.key"));
    let (service, _reload) = files.serve(true).await;
    let none = get(service.admin, "/healthz", client(&authority, None)).await.unwrap_err();
    assert!(none.contains("CertificateRequired"), "{none}");
    stranger.issue(&cert, &key);
    let unknown = client(&authority, Some((&cert, &key)));
    let unknown = get(service.admin, "/healthz", unknown).await.unwrap_err();
    assert!(unknown.contains("alert"), "{unknown}");
    authority.issue(&cert, &key);
    let known = client(&authority, Some((&cert, &key)));
    assert_eq!(get(service.admin, "/healthz", known).await.unwrap(), "200");
    // The other listener asks for none.
    assert_eq!(get(service.http, "/v1/auth", client(&authority, None)).await.unwrap(), "200");
}

#[tokio::test]
async fn the_admin_client_believes_who_it_is_told_to_and_shows_its_certificate() {
    let (files, authority) = (Files::new(), Authority::new());
    files.issue(&authority);
    authority.write(&files.path("ca"));
    let (service, _reload) = files.serve(true).await;
    let url = format!("https://localhost:{}", service.admin.port());
    let client = AdminClient::new(HttpUrl::parse(&url).unwrap());
    let (cert, key, ca) = (files.path("cert"), files.path("key"), files.path("ca"));
    let known = client.clone().with_tls(Some(&ca), Some((&cert, &key))).unwrap();
    assert_eq!(known.rules().await.unwrap().rules, 1);

    let bare = client.clone().with_tls(Some(&ca), None).unwrap();
    assert!(bare.rules().await.is_err(), "it shows no certificate");
    let other = files.path("other");
    Authority::new().write(&other);
    let doubting = client.with_tls(Some(&other), Some((&cert, &key))).unwrap();
    let doubt = doubting.rules().await.unwrap_err().to_string();
    assert!(doubt.contains("invalid peer certificate"), "{doubt}");
}

#[tokio::test]
async fn a_rotated_certificate_is_used_and_a_broken_one_is_not() {
    let (files, first, second) = (Files::new(), Authority::new(), Authority::new());
    files.issue(&first);
    let (service, reload) = files.serve(false).await;
    assert_eq!(get(service.http, "/v1/auth", client(&first, None)).await.unwrap(), "200");

    // A certificate without its key: what was used is still used.
    second.issue(&files.path("cert"), &files.path("other.key"));
    reload.now();
    for _ in 0..20 {
        assert_eq!(get(service.http, "/v1/auth", client(&first, None)).await.unwrap(), "200");
    }
    files.issue(&second);
    reload.now();
    let mut answer = Err(String::new());
    for _ in 0..1_000 {
        answer = get(service.http, "/v1/auth", client(&second, None)).await;
        if answer.is_ok() {
            break;
        }
    }
    assert_eq!(answer.unwrap(), "200");
    assert!(get(service.http, "/v1/auth", client(&first, None)).await.is_err());
}

#[tokio::test]
async fn what_is_no_certificate_is_told_at_the_start() {
    let (files, authority) = (Files::new(), Authority::new());
    let start = async |files: &Files| {
        Server::bind(&parse(&files.config(false))).await.unwrap_err().to_string()
    };
    let cert = files.path("cert").display().to_string();
    let missing = start(&files).await;
    assert!(
        missing.starts_with(&format!("no TLS (tls.http): {cert} cannot be read: ")),
        "{missing}"
    );
    files.issue(&authority);
    std::fs::write(files.path("cert"), "x").unwrap();
    assert_eq!(start(&files).await, format!("no TLS (tls.http): {cert} has no certificate in PEM"));
    files.issue(&authority);
    std::fs::write(files.path("key"), "secret").unwrap();
    let key = files.path("key").display().to_string();
    assert_eq!(start(&files).await, format!("no TLS (tls.http): {key} has no private key in PEM"));
    files.issue(&authority);
    authority.issue(&files.path("cert"), &files.path("other"));
    let mismatched =
        format!("no TLS (tls.http): the key {key} is not that of the certificate {cert}");
    assert_eq!(start(&files).await, mismatched);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_or_expires_shows_in_the_metrics() {
    let (files, authority) = (Files::new(), Authority::new());
    files.issue(&authority);
    let (cert, key) = (files.path("cert"), files.path("key"));
    let config = format!(
        "tls: {{ http: {{ cert: {}, key: {} }} }}\nrules: [{{ name: all, limit: 1/s }}]",
        cert.display(),
        key.display()
    );
    let server = Server::bind(&parse(&config)).await.unwrap();
    let reload = server.reload();
    let service = Service::run(server);
    let metric = async |name: &str| {
        service
            .metric(&format!("tollgate_tls_certificate_{name}{{listener=\"http\"}}"))
            .await
            .unwrap()
    };
    let becomes = async |stale: f64| {
        for _ in 0..1_000 {
            if metric("stale").await.total_cmp(&stale).is_eq() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never becomes {stale}");
    };
    // The year 4096 unless told otherwise.
    assert_eq!(metric("expiry_timestamp_seconds").await, 67_090_118_400.0);
    becomes(0.0).await;
    std::fs::write(&cert, "no certificate").unwrap();
    reload.now();
    becomes(1.0).await;
    files.issue(&authority);
    reload.now();
    becomes(0.0).await;
}
