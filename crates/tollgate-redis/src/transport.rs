//! How a command is sent, and what is done when it fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollgate_core::StoreError;

use crate::connection::{Link, Server};
use crate::error::{self, Keys, Remedy};
use crate::key::HashSlot;
use crate::script::Form;
use crate::target::Target;

/// The pause before a server that is not ready is asked again.
const NOT_READY_PAUSE: Duration = Duration::from_millis(10);

/// How often the nodes of a cluster may send a call on to each other.
const REDIRECTS_MAX: u32 = 4;

/// Sends commands within a deadline.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) target: Target,
    pub(crate) timeout: Duration,
    pub(crate) script_reloads: AtomicU64,
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

impl Transport {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Sends a command to who serves the slot. If it was certainly not executed, it is sent once
    /// more, or to where a cluster says that it belongs; all before the deadline.
    pub(crate) async fn send(
        &self,
        slot: HashSlot,
        command: impl Fn(Form) -> Cmd,
        deadline: Instant,
    ) -> Result<Value, Failed> {
        let mut route = match self.target.route(slot, deadline).await {
            Ok(route) => route,
            Err(failure) => return Err(self.failed(failure, None)),
        };
        let mut form = Form::Sha;
        let mut is_first = true;
        let mut redirects = 0;
        loop {
            let link = match link(&route.server, deadline).await {
                Ok(link) => link,
                Err(failure) => {
                    let next = match failure {
                        Failure::NotConnected(_) if is_first => {
                            self.target.replacement(slot, &route.server, deadline).await
                        }
                        _ => None,
                    };
                    let Some(next) = next else {
                        self.target.suspect();
                        return Err(self.failed(failure, Some(&route.server)));
                    };
                    route = next;
                    is_first = false;
                    continue;
                }
            };
            let sent = async {
                match route.asking {
                    true => link.send_asking(command(form)).await,
                    false => link.send(&command(form)).await,
                }
            };
            let Ok(reply) = timeout_at(deadline, sent).await else {
                if link.is_silent_too_long() {
                    route.server.discard(&link);
                    self.target.suspect();
                }
                return Err(self.failed(Failure::NoAnswer, Some(&route.server)));
            };
            let error = match reply {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match Remedy::of(&error) {
                Remedy::SendSource if form == Form::Sha => {
                    self.script_reloads.fetch_add(1, Ordering::Relaxed);
                    form = Form::Source;
                    continue;
                }
                remedy @ (Remedy::Follow | Remedy::Ask) if redirects < REDIRECTS_MAX => {
                    redirects += 1;
                    let address = error.redirect_node().map_or("", |(address, _)| address);
                    let named = (address, route.server.as_ref());
                    let next = self.target.redirected(slot, named, remedy == Remedy::Ask);
                    let Some(next) = next else {
                        return Err(self.failed(Failure::Answered(error), Some(&route.server)));
                    };
                    route = next;
                    continue;
                }
                Remedy::Reconnect => {
                    route.server.discard(&link);
                    self.target.suspect();
                    if !is_first {
                        return Err(self.failed(Failure::Answered(error), Some(&route.server)));
                    }
                }
                Remedy::Wait if is_first => {
                    let retry_at = Instant::now() + NOT_READY_PAUSE;
                    if retry_at >= deadline {
                        return Err(self.failed(Failure::Answered(error), Some(&route.server)));
                    }
                    sleep_until(retry_at).await;
                }
                Remedy::GiveUpConnection => {
                    route.server.discard(&link);
                    self.target.suspect();
                    return Err(self.failed(Failure::Broken(error), Some(&route.server)));
                }
                _ => return Err(self.failed(Failure::Answered(error), Some(&route.server))),
            }
            is_first = false;
        }
    }

    fn failed(&self, failure: Failure, server: Option<&Server>) -> Failed {
        let server = server.map_or_else(|| self.target.name(), Server::name);
        Failed { failure, server, timeout: self.timeout }
    }
}

async fn link(server: &std::sync::Arc<Server>, deadline: Instant) -> Result<Link, Failure> {
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
