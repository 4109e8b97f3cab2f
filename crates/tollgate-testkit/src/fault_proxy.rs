//! A TCP proxy that does to connections what networks do: delay, lose, cut and half-close.
//!
//! It stands between a client and a server, both real, so that nothing in either has to be replaced.
//! Each direction has a fault of its own, which holds for the connections there are and for new ones.
//!
//! # Examples
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use tollgate_testkit::fault_proxy::{Direction, Fault, FaultProxy};
//! use tollgate_testkit::RedisServer;
//!
//! let server = RedisServer::start()?;
//! let proxy = FaultProxy::start(server.address())?;
//! let mut redis = std::net::TcpStream::connect(proxy.address())?;
//!
//! proxy.set(Direction::ToClient, Fault::Delay(Duration::from_millis(50)));
//! let start = Instant::now();
//! std::io::Write::write_all(&mut redis, b"PING\r\n")?;
//! let mut pong = [0; 7];
//! std::io::Read::read_exact(&mut redis, &mut pong)?;
//! assert_eq!(&pong, b"+PONG\r\n");
//! assert!(start.elapsed() >= Duration::from_millis(50));
//! # Ok::<(), std::io::Error>(())
//! ```

mod connection;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use self::connection::Connection;

/// How long connecting to the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to the bytes that go one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fault {
    /// They are passed on.
    #[default]
    None,
    /// Each is passed on that much later. The order stays, and the rate is not bounded.
    Delay(Duration),
    /// They vanish, as does the end of the stream: the connection stays open and silent.
    ///
    /// [Reset](FaultProxy::reset) the connections when this ends: in a stream that went on without
    /// the bytes that vanished, answers would be taken for those to other requests, which no network
    /// brings about.
    BlackHole,
}

/// A running proxy on a free loopback port. Dropping it closes its connections.
///
/// See the [module docs](self) for an example.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    faults: Mutex<[Fault; 2]>,
    connections: Mutex<Vec<Arc<Connection>>>,
    accepted: AtomicU64,
    is_refusing: AtomicBool,
    is_over: AtomicBool,
}

impl FaultProxy {
    /// Starts a proxy in front of the server at `server`, which need not be there yet. It has no
    /// fault to begin with.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            faults: Mutex::default(),
            connections: Mutex::default(),
            accepted: AtomicU64::new(0),
            is_refusing: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { address, shared })
    }

    /// Returns the address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sets what happens from now on to the bytes that go one way.
    pub fn set(&self, direction: Direction, fault: Fault) {
        lock(&self.shared.faults)[direction as usize] = fault;
    }

    /// Sets what happens from now on to the bytes of both directions.
    pub fn set_both(&self, fault: Fault) {
        *lock(&self.shared.faults) = [fault; 2];
    }

    /// Breaks all connections there are by a reset (RST), on both sides.
    pub fn reset(&self) {
        for connection in lock(&self.shared.connections).drain(..) {
            connection.reset();
        }
    }

    /// Ends one direction of all connections there are (FIN); the other one goes on.
    pub fn half_close(&self, direction: Direction) {
        for connection in lock(&self.shared.connections).iter() {
            connection.half_close(direction);
        }
    }

    /// Sets whether new connections are reset as soon as they are made.
    pub fn refuse(&self, is_refusing: bool) {
        self.shared.is_refusing.store(is_refusing, Ordering::SeqCst);
    }

    /// Returns how many connections clients have made so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts, which then finds that it is over.
        let _ = TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT);
        self.reset();
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            self.accepted.fetch_add(1, Ordering::SeqCst);
            // Held from before the server knows of the connection, so that what is done to all
            // connections is done to each that anybody has seen.
            let mut connections = lock(&self.connections);
            let connected = match self.is_refusing.load(Ordering::SeqCst) {
                true => None,
                false => TcpStream::connect_timeout(&self.server, CONNECT_TIMEOUT).ok(),
            };
            match connected {
                Some(server) => {
                    let connection = Arc::new(Connection::new(client, server));
                    connections.retain(|connection| !connection.has_ended());
                    connections.push(Arc::clone(&connection));
                    for direction in [Direction::ToServer, Direction::ToClient] {
                        connection::pump(Arc::clone(&self), Arc::clone(&connection), direction);
                    }
                }
                None => connection::close_by_reset(&client),
            }
        }
    }

    fn fault(&self, direction: Direction) -> Fault {
        lock(&self.faults)[direction as usize]
    }
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
