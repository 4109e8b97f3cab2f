//! How a command is sent, and what is done when it fails.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollgate_core::StoreError;

use crate::connection::{Ahead, Link, READ_ONLY_PAUSE};
use crate::error::{self, Keys, Remedy};
use crate::key::HashSlot;
use crate::script::{Form, Script};
use crate::server::Server;
use crate::status::{Counters, RedisStatus, count};
use crate::target::{Route, Target};

/// The pause before a server that is not ready is asked again.
const NOT_READY_PAUSE: Duration = Duration::from_millis(10);

/// How often the nodes of a cluster may send a call on to each other.
const REDIRECTS_MAX: u32 = 4;

/// Sends commands within a deadline.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) target: Target,
    pub(crate) timeout: Duration,
    pub(crate) script: Arc<Script>,
    pub(crate) counters: Arc<Counters>,
}

/// How a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    NoConnection,
    NotConnected(RedisError),
    NoAnswer,
    Broken(RedisError),
    Answered(RedisError),
}

/// How a call failed, and at which server.
#[derive(Debug)]
pub(crate) struct Failed {
    failure: Failure,
    server: String,
    timeout: Duration,
}

/// What is left to try for one call.
struct Tries {
    /// Whether it was not sent once more yet.
    is_first: bool,
    redirects: u32,
    /// Whether the server has to be told the script.
    with_text: bool,
}

impl Transport {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    pub(crate) fn status(&self) -> RedisStatus {
        let servers = self.target.servers();
        let connections = servers.iter().map(|server| server.established()).sum();
        self.counters.status(servers.len(), connections)
    }

    /// Sends a command to who serves the slot. If it was certainly not executed, it is sent once
    /// more, or to where a cluster says that it belongs; all before the deadline.
    pub(crate) async fn send(
        &self,
        slot: HashSlot,
        command: impl Fn(Form) -> Cmd,
        deadline: Instant,
    ) -> Result<Value, Failed> {
        let routed = self.target.route(slot, self.timeout, deadline).await;
        let mut route = routed.map_err(|failure| self.failed(failure, None))?;
        let mut tries = Tries { is_first: true, redirects: 0, with_text: false };
        loop {
            let link = match link(&route.server, deadline).await {
                Ok(link) => link,
                Err(failure) => {
                    let next = match failure {
                        Failure::NotConnected(_) if tries.is_first => {
                            self.next(&route, slot, deadline).await
                        }
                        _ => None,
                    };
                    let Some(next) = next else {
                        self.target.suspect();
                        return Err(self.failed(failure, Some(&route.server)));
                    };
                    route = next;
                    self.again(&mut tries);
                    continue;
                }
            };
            let sent = std::time::Instant::now();
            let reply = self.send_on(&link, &route, &command, tries.with_text);
            let Ok(reply) = timeout_at(deadline, reply).await else {
                count(&self.counters.timeouts);
                if link.is_silent(sent) && link.is_usable() {
                    count(&self.counters.connections_replaced);
                    link.give_up();
                    self.target.suspect();
                }
                return Err(self.failed(Failure::NoAnswer, Some(&route.server)));
            };
            let error = match reply {
                Ok(reply) => {
                    self.counters.answered();
                    return Ok(reply);
                }
                Err(error) => error,
            };
            match Remedy::of(&error) {
                Remedy::SendText if !tries.with_text => {
                    count(&self.counters.script_reloads);
                    tries.with_text = true;
                }
                remedy @ (Remedy::Follow | Remedy::Ask) if tries.redirects < REDIRECTS_MAX => {
                    tries.redirects += 1;
                    let address = error.redirect_node().map_or("", |(address, _)| address);
                    let named = (address, route.server.as_ref());
                    let next = self.target.redirected(slot, named, remedy == Remedy::Ask);
                    let Some(next) = next else {
                        return Err(self.failed(Failure::Answered(error), Some(&route.server)));
                    };
                    count(&self.counters.redirects);
                    route = next;
                }
                Remedy::Reconnect if tries.is_first && self.is_reconnected(&link) => {
                    if let Some(next) = self.next(&route, slot, deadline).await {
                        route = next;
                    }
                    self.again(&mut tries);
                }
                Remedy::Reconnect => {
                    let next = match tries.is_first {
                        true => self.next(&route, slot, deadline).await,
                        false => None,
                    };
                    let Some(next) = next else {
                        return Err(self.failed(Failure::Answered(error), Some(&route.server)));
                    };
                    route = next;
                    self.again(&mut tries);
                }
                Remedy::Wait if tries.is_first && Instant::now() + NOT_READY_PAUSE < deadline => {
                    sleep_until(Instant::now() + NOT_READY_PAUSE).await;
                    self.again(&mut tries);
                }
                Remedy::GiveUpConnection => {
                    link.give_up();
                    self.target.suspect();
                    return Err(self.failed(Failure::Broken(error), Some(&route.server)));
                }
                _ => return Err(self.failed(Failure::Answered(error), Some(&route.server))),
            }
        }
    }

    async fn send_on(
        &self,
        link: &Link,
        route: &Route,
        command: impl Fn(Form) -> Cmd,
        with_text: bool,
    ) -> Result<Value, RedisError> {
        let form = if with_text { link.form.with_text() } else { link.form };
        let ahead = Ahead { library: self.script.ahead_of(form), asking: route.asking };
        link.send_after(ahead, command(form)).await
    }

    async fn next(&self, route: &Route, slot: HashSlot, deadline: Instant) -> Option<Route> {
        self.target.replacement(slot, &route.server, self.timeout, deadline).await
    }

    fn again(&self, tries: &mut Tries) {
        tries.is_first = false;
        count(&self.counters.retries);
    }

    /// Gives up a connection to a server that is read-only, unless it is new: the name may lead to
    /// another server by now, but not with every call.
    fn is_reconnected(&self, link: &Link) -> bool {
        let is_old = link.is_older_than(READ_ONLY_PAUSE);
        if is_old {
            link.give_up();
        }
        is_old
    }

    fn failed(&self, failure: Failure, server: Option<&Server>) -> Failed {
        let server = server.map_or_else(|| self.target.name(), Server::name);
        Failed { failure, server, timeout: self.timeout }
    }
}

async fn link(server: &Server, deadline: Instant) -> Result<Link, Failure> {
    if let Some(link) = server.ready() {
        return Ok(link);
    }
    match timeout_at(deadline, server.link()).await {
        Ok(Ok(link)) => Ok(link),
        Ok(Err(error)) => Err(Failure::NotConnected(error)),
        Err(_) => Err(Failure::NoConnection),
    }
}

impl Failed {
    /// Says it in the words of a [`StoreError`]; `keys_of` gives the keys of a charge by its index.
    pub(crate) fn into_store_error(
        self,
        keys_of: impl FnOnce(usize) -> Option<Keys>,
    ) -> StoreError {
        let Self { failure, server, timeout } = self;
        match failure {
            Failure::NoConnection => error::no_connection(&server, timeout),
            Failure::NotConnected(cause) => error::not_connected(&server, &cause),
            Failure::NoAnswer => error::no_answer(&server, timeout),
            Failure::Broken(cause) => error::broken(&server, &cause),
            Failure::Answered(cause) => {
                error::corrupt(&cause, keys_of).unwrap_or_else(|| error::answered(&server, &cause))
            }
        }
    }
}
