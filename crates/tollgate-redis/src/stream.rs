//! The byte streams that connections run on.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::health::Health;
use crate::tls::TlsClient;

/// After how long an idle connection is probed, and how often.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long the kernel lets sent data go unacknowledged before it breaks the connection. Without
/// this a peer that vanished is noticed after a quarter of an hour.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a connection needs of a stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

impl Endpoint {
    /// Connects, with TLS if a client for it is given.
    pub(crate) async fn open(&self, tls: Option<&TlsClient>) -> io::Result<Box<dyn Duplex>> {
        let (host, port) = match self {
            Self::Tcp { host, port } => (host, *port),
            #[cfg(unix)]
            Self::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Self::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        prepare(&stream)?;
        match tls {
            None => Ok(Box::new(stream)),
            Some(tls) => Ok(Box::new(tls.handshake(host, stream).await?)),
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(())
}

/// A stream that notes when something came, be it an answer that nobody waits for any more.
pub(crate) struct Heard {
    pub(crate) stream: Box<dyn Duplex>,
    pub(crate) health: Arc<Health>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.health.heard();
        }
        read
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
