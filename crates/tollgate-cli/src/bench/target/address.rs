//! Where a service is, and connections to it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest time that a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections are opened at a time: a service takes in so many at once.
const OPENING_MAX: usize = 64;

/// The address of a service.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// As it was given, with a port.
    pub(super) host: String,
    socket: SocketAddr,
}

impl Address {
    /// Reads what follows the scheme of a URL.
    pub(super) async fn read(
        scheme: &str,
        rest: &str,
        default_port: Option<u16>,
    ) -> Result<Self, String> {
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !matches!(path, "" | "/") {
            return Err(format!(
                "what is asked at a service is always the same, so its URL has no path: write \
                 {scheme}://{host} without {path:?}"
            ));
        }
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let host = match (port, default_port) {
            (Some(_), _) => host.to_owned(),
            (None, Some(port)) => format!("{host}:{port}"),
            (None, None) => {
                return Err(format!("{host:?} names no port: write {scheme}://HOST:PORT"));
            }
        };
        let unreachable = |error| format!("cannot reach {host}: {error}");
        let socket = lookup_host(&host).await.map_err(unreachable)?.next();
        let socket = socket.ok_or_else(|| format!("{host} has no address"))?;
        Ok(Self { host, socket })
    }

    pub(super) async fn connect(&self) -> Result<TcpStream, String> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(self.socket)).await;
        let stream = stream
            .map_err(|_| format!("no connection in {} s", CONNECT_TIMEOUT.as_secs()))?
            .map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(stream)
    }

    /// Opens connections before they are needed, so that no request is charged for one.
    pub(super) async fn open<Connection, Opening>(
        &self,
        count: u16,
        open: impl Fn(Self) -> Opening,
    ) -> Result<Vec<Connection>, String>
    where
        Connection: Send + 'static,
        Opening: Future<Output = Result<Connection, String>> + Send + 'static,
    {
        let mut left = usize::from(count);
        let mut connections = Vec::with_capacity(left);
        let mut opening = JoinSet::new();
        loop {
            while left > 0 && opening.len() < OPENING_MAX {
                opening.spawn(open(self.clone()));
                left -= 1;
            }
            let Some(opened) = opening.join_next().await else { return Ok(connections) };
            let opened = opened.map_err(|error| error.to_string()).flatten();
            connections
                .push(opened.map_err(|error| format!("cannot reach {}: {error}", self.host))?);
        }
    }
}
