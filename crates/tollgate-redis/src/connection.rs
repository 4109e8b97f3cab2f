//! The one connection to a server, and how the next one comes about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, RedisError, Value,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::script::APPLY;

/// How long one attempt to connect may take, apart from the deadline of the calls that wait for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before a failed attempt is repeated. It also bounds how often a server that is down is
/// asked, however many calls come.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// How long the kernel lets sent data go unacknowledged before it breaks the connection. Without
/// this a peer that vanished is noticed after a quarter of an hour.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// After how long an idle connection is probed, and how often.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long a connection may answer no call before it is replaced, which the kernel cannot notice
/// when a proxy keeps acknowledging.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// How many calls may wait to be written.
const QUEUE_LEN: usize = 4_096;

/// A connection that any number of calls share.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    health: Arc<Health>,
}

impl Link {
    /// Sends a command and waits for its reply, without any deadline.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        let reply = command.query_async(&mut self.connection.clone()).await;
        self.health.answered();
        reply
    }

    /// Sends a command to a node that takes over its slot, as the other node asked for.
    pub(crate) async fn send_asking(&self, command: Cmd) -> Result<Value, RedisError> {
        let mut asking = Pipeline::with_capacity(2);
        asking.cmd("ASKING").add_command(command);
        let replies = self.connection.clone().req_packed_commands(&asking, 1, 1).await;
        self.health.answered();
        replies?.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Notes that a call got no answer in time, and tells whether the connection is to be given up.
    pub(crate) fn is_silent_too_long(&self) -> bool {
        self.health.unanswered() >= SILENCE_MAX
    }
}

/// What is known of a connection.
#[derive(Debug)]
struct Health {
    closed: AtomicBool,
    established: Instant,
    /// Microseconds after `established` at which the first of an unbroken row of calls got no
    /// answer; 0 if the last call was answered.
    silent_since_us: AtomicU64,
}

impl Health {
    fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            established: Instant::now(),
            silent_since_us: AtomicU64::new(0),
        }
    }

    fn answered(&self) {
        // Ordering: a hint that guards no other memory, here and in `unanswered`. Most calls only
        // read it, so that they do not contend for its cache line.
        if self.silent_since_us.load(Ordering::Relaxed) != 0 {
            self.silent_since_us.store(0, Ordering::Relaxed);
        }
    }

    fn unanswered(&self) -> Duration {
        let age = self.established.elapsed();
        let now_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX).max(1);
        let first =
            self.silent_since_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        let since_us = first.err().unwrap_or(now_us);
        Duration::from_micros(now_us.saturating_sub(since_us))
    }
}

/// Marks a connection as closed when it is dropped.
struct Alive(Arc<Health>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }
}

type Outcome = Option<Result<Link, RedisError>>;

#[derive(Debug)]
enum State {
    Idle,
    Connecting(watch::Receiver<Outcome>),
    Ready(Link),
}

/// One server with the one connection to it. Whoever finds none starts an attempt to make one, and
/// all who come meanwhile wait for that attempt.
#[derive(Debug)]
pub(crate) struct Server {
    connector: Connector,
    state: Mutex<State>,
}

impl Server {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, state: Mutex::new(State::Idle) }
    }

    /// Returns `host:port`, which holds no credentials.
    pub(crate) fn name(&self) -> String {
        self.connector.info.addr().to_string()
    }

    /// Returns the host and the port, unless the server is reached in another way.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        match self.connector.info.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// Returns the connection if there is one that is not known to be closed.
    pub(crate) fn ready(&self) -> Option<Link> {
        match &*self.state.lock() {
            // Ordering: a hint; a call that misses it fails on the closed connection.
            State::Ready(link) if !link.health.closed.load(Ordering::Relaxed) => Some(link.clone()),
            _ => None,
        }
    }

    /// Returns the connection, or waits for the attempt to make one.
    ///
    /// # Cancel safety
    ///
    /// The attempt runs in a task of its own, so it goes on when a waiter is dropped.
    pub(crate) async fn link(self: &Arc<Self>) -> Result<Link, RedisError> {
        if let Some(link) = self.ready() {
            return Ok(link);
        }
        let mut attempt = self.connect();
        let outcome = attempt.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
        outcome.unwrap_or_else(|| {
            Err(RedisError::from((ErrorKind::Io, "the attempt to connect was cancelled")))
        })
    }

    /// Joins the attempt that is under way, or starts one in the background.
    pub(crate) fn connect(self: &Arc<Self>) -> watch::Receiver<Outcome> {
        let mut state = self.state.lock();
        if let State::Connecting(attempt) = &*state
            // An attempt whose runtime has ended closes its channel and would never be done.
            && attempt.has_changed().is_ok()
        {
            return attempt.clone();
        }
        let (sender, receiver) = watch::channel(None);
        *state = State::Connecting(receiver.clone());
        drop(state);
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = server.connector.connect().await;
            *server.state.lock() = match &outcome {
                Ok(link) => State::Ready(link.clone()),
                Err(_) => State::Idle,
            };
            // Those who waited may have given up.
            let _ = sender.send(Some(outcome));
        });
        receiver
    }

    /// Gives up `link`, if it is still the one in use.
    pub(crate) fn discard(&self, link: &Link) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Ready(current) if Arc::ptr_eq(&current.health, &link.health)) {
            *state = State::Idle;
        }
    }
}

/// Where to connect, and how.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    info: ConnectionInfo,
}

impl Connector {
    /// Reads the URL.
    pub(crate) fn new(url: &str) -> Result<Self, RedisError> {
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE));
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED_MAX);
        Ok(Self { info: url.into_connection_info()?.set_tcp_settings(tcp) })
    }

    /// Connects in the same way to another server.
    pub(crate) fn to(&self, host: String, port: u16) -> Self {
        Self { info: self.info.clone().set_addr(ConnectionAddr::Tcp(host, port)) }
    }

    /// Returns the number of the database that is selected.
    pub(crate) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    async fn connect(&self) -> Result<Link, RedisError> {
        if let Ok(link) = self.attempt().await {
            return Ok(link);
        }
        sleep(RECONNECT_PAUSE).await;
        self.attempt().await
    }

    async fn attempt(&self) -> Result<Link, RedisError> {
        let link = match self.open(ProtocolVersion::RESP3).await {
            Err(error) if !error.is_io_error() => self.open(ProtocolVersion::RESP2).await,
            opened => opened,
        }?;
        // Without the script the first call sends its text, so a refusal here does no harm.
        match timeout(CONNECT_TIMEOUT, link.send(&APPLY.load())).await {
            Ok(Err(error)) if error.is_io_error() => Err(error),
            Ok(_) => Ok(link),
            Err(_) => Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))),
        }
    }

    async fn open(&self, protocol: ProtocolVersion) -> Result<Link, RedisError> {
        let health = Arc::new(Health::new());
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE_LEN);
        if protocol.supports_resp3() {
            // Only RESP3 connections take a sender for what the server pushes. It lives as long as
            // the task that reads the socket, so it tells of the end before a call finds out.
            let alive = Alive(Arc::clone(&health));
            config = config.set_push_sender(move |_: PushInfo| {
                let Alive(_) = &alive;
                Ok::<_, redis::aio::SendError>(())
            });
        }
        let settings = self.info.redis_settings().clone().set_protocol(protocol);
        let info = self.info.clone().set_redis_settings(settings);
        let connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Link { connection, health })
    }
}
