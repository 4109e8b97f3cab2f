//! A `redis-server` of the test's own, on a free loopback port and without persistence.
//!
//! Tests must not share a Redis: a key, a `FLUSHALL` or a pause of one would be seen by the other.
//! [`RedisServer::start`] takes a few milliseconds, so every test can have its own.
//!
//! # The binary
//!
//! `redis-server` of the `PATH` is run, or what the environment variable `TOLLGATE_REDIS_SERVER`
//! names, or what [`Builder::binary`] names. Redis 6.2 or later and Valkey answer alike.
//!
//! # How it ends
//!
//! Dropping the value kills the server and removes its directory. If the test process dies
//! without dropping it (a signal, an abort, a value in a `static`), a small `sh` that waits for the
//! end of a pipe does the same; nothing is left behind in either case.
//!
//! # Examples
//!
//! ```
//! use tollgate_testkit::RedisServer;
//! use tollgate_testkit::redis_server::Reply;
//!
//! let server = RedisServer::start()?;
//! assert_eq!(server.command(&["SET", "name", "value"])?, Reply::Text("OK".to_owned()));
//! assert_eq!(server.command(&["STRLEN", "name"])?, Reply::Integer(5));
//! assert_eq!(server.command(&["GET", "absent"])?, Reply::Nil);
//! # Ok::<(), std::io::Error>(())
//! ```

mod process;
mod resp;
mod watchdog;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

pub use self::resp::Reply;

use self::process::{Launch, Process, StartError};
#[cfg(feature = "tls")]
use crate::certificates::{Certificates, ClientCertificate};

/// The environment variable that names the binary to run.
pub const BINARY_VARIABLE: &str = "TOLLGATE_REDIS_SERVER";

/// How long a command may take before it fails with [`io::ErrorKind::TimedOut`]: 5 s.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// How often another free port is tried when somebody else took the first one.
const PORT_ATTEMPTS: u32 = 8;

/// How far above its port a node of a cluster talks to the others; Redis 6 can do no other.
const BUS_PORT_OFFSET: u16 = 10_000;

/// A running `redis-server` on loopback that nobody else uses.
///
/// See the [module docs](self) for its life and an example.
#[derive(Debug)]
pub struct RedisServer {
    // Fields are dropped in this order: the process must be gone before its directory is.
    process: Option<Process>,
    builder: Builder,
    port: u16,
    #[cfg(feature = "tls")]
    tls_port: Option<u16>,
    dir: TempDir,
}

/// How a [`RedisServer`] is started.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    binary: Option<OsString>,
    /// What is in the file that is given ahead of the arguments.
    config: Option<String>,
    password: Option<String>,
    has_socket: bool,
    args: Vec<OsString>,
    #[cfg(feature = "tls")]
    tls: Option<(Certificates, ClientCertificate)>,
}

/// The name of the unix socket in the directory of a server.
const SOCKET: &str = "redis.sock";

impl Builder {
    /// Appends one command line argument, after those of the fixture, which it may override.
    ///
    /// ```
    /// # use tollgate_testkit::RedisServer;
    /// let server = RedisServer::builder().arg("--maxmemory").arg("8mb").start()?;
    /// let reply = server.command(&["CONFIG", "GET", "maxmemory"])?;
    /// assert_eq!(reply.items().and_then(|items| items[1].text()), Some("8388608"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Puts arguments before those that were given, which may override them.
    pub(crate) fn args_before(mut self, args: &[&str]) -> Self {
        self.args.splice(..0, args.iter().map(OsString::from));
        self
    }

    /// Sets the password of the default user, which [`RedisServer::command`] gives.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        let password = password.into();
        self.args.extend(["--requirepass", &password].map(OsString::from));
        self.password = Some(password);
        self
    }

    /// Has the server listen on a unix socket as well.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.has_socket = true;
        self
    }

    /// Has the server listen on a second port for TLS, with a certificate of `certificates` for
    /// `localhost` and `127.0.0.1`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates, client: ClientCertificate) -> Self {
        self.tls = Some((certificates.clone(), client));
        self
    }

    /// Sets the text of a configuration file, which comes before the arguments. Sentinels need one,
    /// beside the argument `--sentinel`.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// Sets the binary to run, whatever [`BINARY_VARIABLE`] says.
    #[must_use]
    pub fn binary(mut self, binary: impl Into<OsString>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// Starts the server and waits until it answers, for at most 10 s.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`].
    pub fn start(self) -> io::Result<RedisServer> {
        self.start_on_one_of(free_port)
    }

    /// Starts a node of a cluster, whose second port for other nodes is 10,000 above the first.
    pub(crate) fn start_node(self) -> io::Result<RedisServer> {
        self.start_on_one_of(free_port_of_node)
    }

    fn start_on_one_of(self, free_port: fn() -> io::Result<u16>) -> io::Result<RedisServer> {
        let mut dir = tempfile::Builder::new().prefix("tollgate-redis-").tempdir()?;
        let mut attempt = 1;
        loop {
            let mut server = RedisServer {
                process: None,
                port: free_port()?,
                #[cfg(feature = "tls")]
                tls_port: self.tls.is_some().then(self::free_port).transpose()?,
                builder: self.clone(),
                dir,
            };
            match server.launch(Process::start)? {
                Ok(process) => {
                    server.process = Some(process);
                    return Ok(server);
                }
                Err(StartError::PortTaken(_)) if attempt < PORT_ATTEMPTS => attempt += 1,
                Err(StartError::PortTaken(error) | StartError::Other(error)) => return Err(error),
            }
            dir = server.dir;
        }
    }

    fn binary_or_default(&self) -> OsString {
        self.binary
            .clone()
            .or_else(|| env::var_os(BINARY_VARIABLE).filter(|binary| !binary.is_empty()))
            .unwrap_or_else(|| OsStr::new("redis-server").to_owned())
    }
}

impl RedisServer {
    /// Starts a server without persistence on a free port and waits until it answers, for at most
    /// 10 s.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such binary: the text says what to install.
    /// Otherwise, if the server ended or did not answer in time, with what it logged.
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Makes a builder, for servers that need arguments of their own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the port on 127.0.0.1. It stays the same across [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address, 127.0.0.1 and the port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Returns `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns the path of the unix socket, if the builder asked for one.
    pub fn socket(&self) -> Option<PathBuf> {
        self.builder.has_socket.then(|| self.dir.path().join(SOCKET))
    }

    /// Returns the port for TLS on 127.0.0.1, if the builder was given certificates.
    #[cfg(feature = "tls")]
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port
    }

    /// Returns the process id, or `None` after [`kill`](Self::kill).
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Stops the process by `SIGSTOP` and waits until it stands still: connections stay open and no
    /// longer answer.
    ///
    /// # Errors
    ///
    /// If the server was killed.
    pub fn pause(&self) -> io::Result<()> {
        self.running()?.pause()
    }

    /// Lets a paused process go on by `SIGCONT`.
    ///
    /// # Errors
    ///
    /// If the server was killed.
    pub fn resume(&self) -> io::Result<()> {
        self.running()?.resume()
    }

    /// Kills the process by `SIGKILL` and waits for its end. Connections break, new ones are refused,
    /// the data is lost. Does nothing if it was killed before.
    ///
    /// # Errors
    ///
    /// If the process could not be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        match self.process.take() {
            Some(mut process) => process.end(),
            None => Ok(()),
        }
    }

    /// Starts an empty server on the same port, after killing the old one if it still runs.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start). If the port is not free, which this retries for 10 s.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process = Some(self.launch(Process::start_again)??);
        Ok(())
    }

    /// Starts the process, or fails because its file could not be written.
    fn launch<T>(&self, start: impl FnOnce(Launch<'_>) -> T) -> io::Result<T> {
        let dir = self.dir.path();
        let config = match &self.builder.config {
            None => None,
            Some(text) => {
                let path = dir.join("redis.conf");
                // A sentinel writes to its file what it has learned.
                if !path.exists() {
                    std::fs::write(&path, text)?;
                }
                Some(path)
            }
        };
        let mut args = Vec::new();
        if let Some(socket) = self.socket() {
            args.extend(["--unixsocket".into(), socket.into_os_string()]);
        }
        self.add_tls(&mut args);
        args.extend_from_slice(&self.builder.args);
        Ok(start(Launch {
            binary: &self.builder.binary_or_default(),
            config: config.as_deref(),
            args: &args,
            dir,
            port: self.port,
        }))
    }

    #[cfg(feature = "tls")]
    fn add_tls(&self, args: &mut Vec<OsString>) {
        let (Some((certificates, client)), Some(port)) = (&self.builder.tls, self.tls_port) else {
            return;
        };
        args.extend(["--tls-port".into(), port.to_string().into()]);
        args.extend(certificates.server_args(*client));
    }

    #[cfg(not(feature = "tls"))]
    fn add_tls(&self, _: &mut Vec<OsString>) {}

    /// Sends one command on a connection of its own and returns the reply.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] after [`COMMAND_TIMEOUT`], as when the server is paused;
    /// [`io::ErrorKind::ConnectionRefused`] when it was killed; [`io::ErrorKind::Other`] with
    /// Redis' own text when the server answers with an error.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        resp::call(self.address(), self.builder.password.as_deref(), words, COMMAND_TIMEOUT)
    }

    fn running(&self) -> io::Result<&Process> {
        self.process.as_ref().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the redis-server of port {} was killed: restart it first", self.port),
            )
        })
    }
}

/// Asks the system for a port that is free now. It may be taken before the server binds it.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// As [`free_port`], for a node of a cluster: the port 10,000 above it is free as well.
fn free_port_of_node() -> io::Result<u16> {
    // Those that were refused are held, so that the system does not offer them again.
    let mut refused = Vec::new();
    while refused.len() < 1_000 {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = first.local_addr()?.port();
        let second = port.checked_add(BUS_PORT_OFFSET);
        if second.is_some_and(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok(port);
        }
        refused.push(first);
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!(
            "no port below {} is free: a node of a cluster needs two",
            u16::MAX - BUS_PORT_OFFSET
        ),
    ))
}
