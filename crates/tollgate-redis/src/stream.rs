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
use tokio::time::{Instant, timeout_at};

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
    /// Connects, with TLS if a client for it is given, whose handshake ends before the deadline.
    pub(crate) async fn open(
        &self,
        tls: Option<&TlsClient>,
        deadline: Instant,
    ) -> io::Result<Box<dyn Duplex>> {
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
            Some(tls) => match timeout_at(deadline, tls.handshake(host, stream)).await {
                Ok(stream) => Ok(Box::new(stream?)),
                // A server without TLS waits for the end of a line.
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in TLS")),
            },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tcp_stream_sends_at_once_and_notices_a_peer_that_vanished() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED_MAX));
        }
    }

    #[test]
    fn an_endpoint_is_written_as_it_could_be_typed() {
        let tcp = |host: &str| Endpoint::Tcp { host: host.to_owned(), port: 6379 }.to_string();
        assert_eq!((tcp("redis"), tcp("::1")), ("redis:6379".to_owned(), "[::1]:6379".to_owned()));
        assert_eq!(Endpoint::Unix("/run/redis.sock".into()).to_string(), "/run/redis.sock");
    }
}
