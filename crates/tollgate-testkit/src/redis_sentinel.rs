//! A primary, a replica and three sentinels of the test's own: real processes on free loopback ports.
//!
//! They need about three seconds to find each other. A primary that is killed or paused counts as
//! failed after [`DOWN_AFTER`], and the replica takes over within about two seconds more.
//!
//! # Examples
//!
//! ```
//! use tollgate_testkit::RedisSentinel;
//!
//! let mut redis = RedisSentinel::start()?;
//! let before = redis.primary()?;
//! redis.kill(before)?;
//! let after = redis.wait_for_failover(before)?;
//! assert_ne!(before, after);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::redis_server::{RedisServer, Reply};

/// What the sentinels call the primary.
pub const MASTER: &str = "main";

/// After how long without an answer a server counts as down: 500 ms.
pub const DOWN_AFTER: Duration = Duration::from_millis(500);

/// How long they may take to find each other, or to fail over: several times what a loaded machine
/// needs.
const AGREEMENT_DEADLINE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Two servers, of which sentinels choose the primary.
///
/// See the [module docs](self) for an example. Dropping it ends all processes.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

/// The passwords that servers and sentinels ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passwords<'a> {
    /// That of the primary and the replica.
    pub servers: Option<&'a str>,
    /// That of the sentinels.
    pub sentinels: Option<&'a str>,
}

impl RedisSentinel {
    /// Starts all five and waits until each sentinel knows the others and the replica, for at most a
    /// minute.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`]; [`io::ErrorKind::TimedOut`] if they did not agree in time.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Passwords::default())
    }

    /// As [`start`](Self::start), with passwords.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(passwords: Passwords<'_>) -> io::Result<Self> {
        // Redis waits five seconds for more replicas otherwise.
        let mut server = RedisServer::builder().arg("--repl-diskless-sync-delay").arg("0");
        if let Some(password) = passwords.servers {
            server = server.password(password).arg("--masterauth").arg(password);
        }
        let primary = server.clone().start()?;
        let replica =
            server.arg("--replicaof").arg(format!("127.0.0.1 {}", primary.port())).start()?;
        wait_for("the replica to follow", || {
            let info = replica.command(&["INFO", "replication"])?;
            Ok(has_line(&info, "master_link_status:up"))
        })?;
        let config = configuration(primary.port(), passwords);
        let sentinel = || {
            let mut builder = RedisServer::builder().config(config.clone());
            if let Some(password) = passwords.sentinels {
                builder = builder.password(password);
            }
            builder.arg("--sentinel").start()
        };
        let sentinels = (0..3).map(|_| sentinel()).collect::<io::Result<Vec<_>>>()?;
        for sentinel in &sentinels {
            wait_for("the sentinels to find each other", || {
                let known = |name| field(sentinel, name);
                Ok(known("num-other-sentinels")?.as_deref() == Some("2")
                    && known("num-slaves")?.as_deref() == Some("1"))
            })?;
        }
        Ok(Self { servers: vec![primary, replica], sentinels })
    }

    /// Returns the two servers; one that was killed stays in its place.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns `redis://127.0.0.1:PORT` of each sentinel.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Returns the number of the server that the first sentinel calls the primary, from 0.
    ///
    /// # Errors
    ///
    /// If the sentinel does not answer, or names another server.
    pub fn primary(&self) -> io::Result<usize> {
        self.primary_to(&self.sentinels[0])
    }

    /// Kills a server by `SIGKILL`, as [`RedisServer::kill`] does.
    ///
    /// # Errors
    ///
    /// If the process could not be waited for.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    pub fn kill(&mut self, index: usize) -> io::Result<()> {
        self.servers[index].kill()
    }

    /// Waits until every sentinel names another primary than `before`, for at most a minute, and
    /// returns its number.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if they do not; as [`primary`](Self::primary).
    pub fn wait_for_failover(&self, before: usize) -> io::Result<usize> {
        for sentinel in &self.sentinels {
            wait_for("a fail-over", || Ok(self.primary_to(sentinel)? != before))?;
        }
        self.primary()
    }

    fn primary_to(&self, sentinel: &RedisServer) -> io::Result<usize> {
        let port = field(sentinel, "port")?;
        let is_named = |server: &RedisServer| port == Some(server.port().to_string());
        self.servers
            .iter()
            .position(is_named)
            .ok_or_else(|| io::Error::other(format!("the sentinel names port {port:?}")))
    }
}

fn configuration(port: u16, passwords: Passwords<'_>) -> String {
    let down_after_ms = DOWN_AFTER.as_millis();
    let mut text = format!(
        "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
         sentinel down-after-milliseconds {MASTER} {down_after_ms}\n\
         sentinel failover-timeout {MASTER} 5000\n"
    );
    if let Some(password) = passwords.servers {
        text.push_str(&format!("sentinel auth-pass {MASTER} {password}\n"));
    }
    if let Some(password) = passwords.sentinels {
        text.push_str(&format!("sentinel sentinel-pass {password}\n"));
    }
    text
}

/// Returns what a sentinel says of the primary under a name.
fn field(sentinel: &RedisServer, name: &str) -> io::Result<Option<String>> {
    let said = sentinel.command(&["SENTINEL", "MASTER", MASTER])?;
    let mut pairs = said.items().unwrap_or_default().chunks_exact(2);
    let found = pairs.find(|pair| pair[0].text() == Some(name));
    Ok(found.and_then(|pair| pair[1].text()).map(str::to_owned))
}

fn has_line(info: &Reply, line: &str) -> bool {
    info.text().is_some_and(|text| text.lines().any(|found| found == line))
}

fn wait_for(what: &str, is_done: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + AGREEMENT_DEADLINE;
    while !is_done()? {
        if Instant::now() >= deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("waited for {what} for {AGREEMENT_DEADLINE:?}"),
            ));
        }
        pause();
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "what is waited for happens in other processes")]
fn pause() {
    thread::sleep(POLL_INTERVAL);
}
