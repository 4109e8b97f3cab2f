//! One connection, and how it is made.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, Value,
};
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};

use crate::health::Health;
use crate::script::{Form, Script};
use crate::status::Counters;
use crate::stream::{Endpoint, Heard};
use crate::tls::TlsClient;

/// How long one attempt to connect may take, apart from the deadline of the calls that wait for it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many calls may wait to be written.
const QUEUE_LEN: usize = 4_096;

/// A connection that any number of calls share.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    connection: MultiplexedConnection,
    pub(crate) health: Arc<Health>,
    /// How the server runs the script.
    pub(crate) form: Form,
    /// Ends the task of the connection with the last that uses it.
    _driver: Arc<Driver>,
}

#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Marks a connection as unusable when its task ends, whatever ends it.
struct Alive(Arc<Health>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// What is sent ahead of a command.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// The library that the command calls.
    pub(crate) library: Option<Cmd>,
    /// That the node takes over the slot, as the other one said.
    pub(crate) asking: bool,
}

impl Link {
    /// Sends a command and waits for its reply, without any deadline.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value, RedisError> {
        command.query_async(&mut self.connection.clone()).await
    }

    /// As [`send`](Self::send), with what is needed ahead of it. What that is answered does not
    /// matter, as the command fails without it.
    pub(crate) async fn send_after(&self, ahead: Ahead, command: Cmd) -> Result<Value, RedisError> {
        let mut pipeline = Pipeline::with_capacity(3);
        let mut count = 0;
        // ASKING holds for one command only, so it comes last.
        let asking = ahead.asking.then(|| redis::cmd("ASKING"));
        for command in ahead.library.into_iter().chain(asking) {
            pipeline.add_command(command);
            count += 1;
        }
        if count == 0 {
            return self.send(&command).await;
        }
        pipeline.add_command(command);
        let replies = self.connection.clone().req_packed_commands(&pipeline, count, 1).await;
        replies?.pop().unwrap_or(Value::Nil).extract_error()
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.health.has_ended()
    }

    /// Has the connection replaced. Calls that wait for an answer on it may still get it.
    pub(crate) fn give_up(&self) {
        self.health.finish();
    }
}

/// Where to connect, and how.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Arc<Settings>,
}

/// What all servers of a store have in common.
pub(crate) struct Settings {
    /// The user, the password and the database.
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: Option<TlsClient>,
    /// Whether servers that have functions are to run the script as one.
    pub(crate) functions: bool,
    /// How many connections there are to each server.
    pub(crate) connections: usize,
    /// For how long calls wait for a connection that is being made.
    pub(crate) patience: Duration,
    /// What servers are to remember; Sentinel has no scripts.
    pub(crate) script: Option<Arc<Script>>,
    pub(crate) counters: Arc<Counters>,
}

impl Connector {
    /// Connects in the same way to another server.
    pub(crate) fn to(&self, host: String, port: u16) -> Self {
        let endpoint = Endpoint::Tcp { host, port };
        Self { endpoint, settings: Arc::clone(&self.settings) }
    }

    /// Returns the host and the port, unless the server is reached in another way.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } => Some((host, *port)),
            Endpoint::Unix(_) => None,
        }
    }

    /// Makes a connection and has the server remember the script, each in at most a second.
    pub(crate) async fn connect(&self) -> Result<Link, RedisError> {
        let mut link = self.open().await?;
        let Settings { functions, script: Some(script), .. } = &*self.settings else {
            return Ok(link);
        };
        let load = async {
            // One that wants a password closes the connection on a command as long as the script.
            if let Err(error) = link.send(&redis::cmd("PING")).await
                && (error.is_io_error() || error.code() == Some("NOAUTH"))
            {
                return Err(error);
            }
            // Without the script the first call sends its text, so a refusal here does no harm.
            if *functions {
                match link.send(&script.load(Form::Function)).await {
                    Err(error) if is_unknown_command(&error) => {}
                    Err(error) if error.is_io_error() => return Err(error),
                    _ => return Ok(Form::Function),
                }
            }
            match link.send(&script.load(Form::Sha)).await {
                Err(error) if error.is_io_error() => Err(error),
                _ => Ok(Form::Sha),
            }
        };
        link.form = timeout(CONNECT_TIMEOUT, load).await.map_err(|_| timed_out())??;
        Ok(link)
    }

    /// Makes a connection, in at most a second.
    pub(crate) async fn open(&self) -> Result<Link, RedisError> {
        let deadline = tokio::time::Instant::now() + CONNECT_TIMEOUT;
        timeout_at(deadline, self.greet(deadline)).await.map_err(|_| timed_out())?
    }

    async fn greet(&self, deadline: tokio::time::Instant) -> Result<Link, RedisError> {
        let health = Arc::new(Health::new());
        let stream = self.endpoint.open(self.settings.tls.as_ref(), deadline).await?;
        let stream = Heard { stream, health: Arc::clone(&health) };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE_LEN);
        // The newer protocol has nothing that is used here, and not every proxy speaks it.
        let login = self.settings.login.clone().set_protocol(ProtocolVersion::RESP2);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&login, stream, config).await?;
        let alive = Alive(Arc::clone(&health));
        let task = tokio::spawn(async move {
            let Alive(_) = &alive;
            driver.await;
        });
        let _driver = Arc::new(Driver(task.abort_handle()));
        Ok(Link { connection, health, form: Form::Sha, _driver })
    }
}

/// Tells whether a server is too old for a command, or was told to forget it.
fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with("unknown command"))
}

pub(crate) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings hold a password.
        f.debug_tuple("Connector").field(&self.endpoint).finish()
    }
}

/// How old a connection is at least before it is replaced because the server is read-only, so that
/// calls to a replica do not each connect anew.
pub(crate) const READ_ONLY_PAUSE: Duration = Duration::from_secs(1);

impl Link {
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        self.health.age() >= age
    }

    /// Notes that a call sent at `sent` has no answer, and tells whether the connection is to be
    /// given up.
    pub(crate) fn is_silent(&self, sent: Instant) -> bool {
        self.health.is_given_up(sent, Instant::now())
    }
}
