//! The plainest HTTP client: one request, one connection.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tollgate_config::HttpUrl;

use crate::live::SourceError;
use crate::tls;

/// Sends requests, by TLS where the URL says so.
#[derive(Clone)]
pub(crate) struct Client {
    tls: Option<TlsConnector>,
}

pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Client {
    pub(crate) const fn plain() -> Self {
        Self { tls: None }
    }

    /// Believes the certificates in the file `ca`, or those that the system believes, and shows
    /// the certificate and key of `identity`.
    pub(crate) fn with_tls(
        ca: Option<&Path>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, SourceError> {
        let config = tls::client_config(ca, identity)
            .map_err(|error| SourceError::new(error.to_string()))?;
        Ok(Self { tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// Sends a request and receives its whole reply, of at most `body_max` bytes and a little, all
    /// within `limit`.
    pub(crate) async fn send(
        &self,
        url: &HttpUrl,
        request: Request,
        body_max: usize,
        limit: Duration,
    ) -> Result<Reply, SourceError> {
        match timeout(limit, self.exchange(url, request, body_max)).await {
            Ok(reply) => reply,
            Err(_) => Err(SourceError::new(format!(
                "the server at {}:{} did not answer within {} s",
                url.host(),
                url.port(),
                limit.as_secs()
            ))),
        }
    }

    async fn exchange(
        &self,
        url: &HttpUrl,
        request: Request,
        body_max: usize,
    ) -> Result<Reply, SourceError> {
        let at = || format!("{}:{}", url.host(), url.port());
        let stream = self
            .connect(url)
            .await
            .map_err(|error| SourceError::of(&format!("cannot connect to {}", at()), &error))?;
        let broken = |error: hyper::Error| {
            if error.is_parse() && !url.is_https() {
                return SourceError::new(format!(
                    "{} does not answer by HTTP: if it has a certificate, write https:// in the URL",
                    at()
                ));
            }
            SourceError::of(&format!("the connection to {} broke off", at()), &error)
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let exchange = async {
            let reply = sender.send_request(written(url, request)?).await.map_err(broken)?;
            let (head, body) = reply.into_parts();
            let body = Limited::new(body, body_max.saturating_add(1)).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => SourceError::new(format!("the answer is larger than {body_max} bytes")),
                false => SourceError::new(format!("the answer of {} broke off", at())),
            })?;
            let body = body.to_bytes().to_vec();
            Ok(Reply { status: head.status, headers: head.headers, body })
        };
        tokio::pin!(exchange, connection);
        let mut is_open = true;
        loop {
            tokio::select! {
                reply = &mut exchange => return reply,
                // How the connection ends, the exchange tells too.
                _ = &mut connection, if is_open => is_open = false,
            }
        }
    }

    async fn connect(&self, url: &HttpUrl) -> io::Result<Pin<Box<dyn Stream>>> {
        let stream = TcpStream::connect((url.host(), url.port())).await?;
        stream.set_nodelay(true)?;
        if !url.is_https() {
            return Ok(Box::pin(stream));
        }
        let Some(tls) = &self.tls else {
            return Err(io::Error::other("TLS is not set up"));
        };
        let name = ServerName::try_from(url.host().to_owned()).map_err(io::Error::other)?;
        Ok(Box::pin(tls.connect(name, stream).await?))
    }
}

fn written(url: &HttpUrl, request: Request) -> Result<http::Request<Full<Bytes>>, SourceError> {
    let Request { method, mut headers, body } = request;
    let host = match (url.host().contains(':'), url.port()) {
        (true, port) => format!("[{}]:{port}", url.host()),
        (false, port) => format!("{}:{port}", url.host()),
    };
    let unusable = |_| SourceError::new("the URL cannot be asked for");
    headers.insert(HOST, HeaderValue::from_str(&host).map_err(unusable)?);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let mut written = http::Request::new(Full::from(body));
    *written.method_mut() = method;
    *written.uri_mut() = url
        .target()
        .parse()
        .map_err(|error| SourceError::of("the path of the URL cannot be asked for", &error))?;
    *written.headers_mut() = headers;
    Ok(written)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("has_tls", &self.tls.is_some()).finish()
    }
}
