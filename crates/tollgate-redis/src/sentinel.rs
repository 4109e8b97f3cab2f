//! Which server is the primary, as Redis Sentinel knows.
//!
//! All sentinels are asked, and the one with the latest view is believed. They are asked again when
//! one announces a switch, and when the primary cannot be reached, answers nothing or is read-only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::{Mutex, RwLock};
use redis::aio::PubSub;
use redis::{Cmd, ErrorKind, ProtocolVersion, RedisError, Value};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{CONNECT_TIMEOUT, Connector, timed_out};
use crate::lookup::{Awaited, Lookup, ended};
use crate::server::{Server, jittered};
use crate::status::count;

/// How long one sentinel may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the others are waited for once one has answered.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(50);

/// The longest pause before a sentinel that does not announce is asked to do so again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);

const CHANNEL: &str = "+switch-master";

/// A primary that sentinels watch, under its name.
#[derive(Debug)]
pub(crate) struct Sentinel {
    /// What sentinels call the primary.
    master: String,
    sentinels: Vec<Arc<Server>>,
    /// How each sentinel is connected to for its announcements.
    connectors: Vec<Connector>,
    /// How the primary is connected to; where, the sentinels know.
    primary: Connector,
    current: RwLock<Option<Arc<Server>>>,
    pub(crate) lookup: Lookup,
    listeners: Mutex<Vec<AbortHandle>>,
}

/// What a sentinel says of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    host: String,
    port: u16,
    /// Grows with each failover.
    epoch: i64,
}

impl Sentinel {
    /// Makes the primary that the sentinels call `master`.
    pub(crate) fn new(master: String, sentinels: Vec<Connector>, primary: Connector) -> Self {
        let connectors = sentinels.clone();
        let sentinels = sentinels.into_iter().map(|one| Arc::new(Server::new(one))).collect();
        Self {
            master,
            sentinels,
            connectors,
            primary,
            current: RwLock::new(None),
            lookup: Lookup::default(),
            listeners: Mutex::default(),
        }
    }

    /// Returns the name of the primary and `host:port` of the sentinels.
    pub(crate) fn name(&self) -> String {
        let names: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.name()).collect();
        format!("{} of the sentinels {}", self.master, names.join(","))
    }

    /// Returns the primary, as far as it is known.
    pub(crate) fn known(&self) -> Option<Arc<Server>> {
        self.current.read().clone()
    }

    /// Returns the primary, after asking the sentinels if it is not known.
    pub(crate) async fn server(self: &Arc<Self>) -> Result<Arc<Server>, RedisError> {
        if let Some(server) = self.known() {
            return Ok(server);
        }
        ended(self.refresh()).await?;
        self.known().ok_or_else(timed_out)
    }

    /// Starts to connect and to listen, in the background.
    pub(crate) fn connect(self: &Arc<Self>) {
        let mut listeners = self.listeners.lock();
        // Those of a runtime that has ended are finished.
        if listeners.iter().all(AbortHandle::is_finished) {
            *listeners = self.connectors.iter().map(|sentinel| self.listen(sentinel)).collect();
        }
        drop(listeners);
        drop(self.refresh());
    }

    /// Joins the look at the sentinels that is under way, or starts one in the background.
    pub(crate) fn refresh(self: &Arc<Self>) -> Awaited {
        self.lookup.begin(|| {
            let sentinel = Arc::clone(self);
            async move {
                let view = sentinel.latest_view().await?;
                sentinel.install(&view);
                Ok(())
            }
        })
    }

    fn listen(self: &Arc<Self>, sentinel: &Connector) -> AbortHandle {
        let (watched, sentinel) = (Arc::downgrade(self), sentinel.clone());
        let task = async move {
            loop {
                if let Ok(mut announced) = subscribe(&sentinel).await {
                    // What was announced meanwhile was not heard.
                    match watched.upgrade() {
                        Some(watched) => drop(watched.refresh()),
                        None => return,
                    }
                    while let Some(message) = announced.next().await {
                        let Some(watched) = watched.upgrade() else { return };
                        let text: String = message.get_payload().unwrap_or_default();
                        if text.split(' ').next() == Some(&watched.master) {
                            // A look that is under way may have asked before the switch.
                            let _ = ended(watched.refresh()).await;
                            drop(watched.refresh());
                        }
                    }
                }
                sleep(jittered(SUBSCRIBE_PAUSE)).await;
            }
        };
        tokio::spawn(task).abort_handle()
    }

    /// Asks all sentinels, and returns the latest view of those who answer in time.
    async fn latest_view(&self) -> Result<View, RedisError> {
        let mut answers = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, master) = (Arc::clone(sentinel), self.master.clone());
            answers.spawn(async move { ask(&sentinel, &master).await });
        }
        let mut deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut latest: Option<View> = None;
        let mut failure = None;
        while let Ok(Some(answer)) = timeout_at(deadline, answers.join_next()).await {
            match answer {
                Ok(Ok(view)) => {
                    if latest.as_ref().is_none_or(|latest| latest.epoch < view.epoch) {
                        latest = Some(view);
                    }
                    deadline = deadline.min(Instant::now() + OTHERS_TIMEOUT);
                }
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {}
            }
        }
        latest.ok_or_else(|| failure.unwrap_or_else(timed_out))
    }

    fn install(&self, view: &View) {
        let mut current = self.current.write();
        let address = Some((view.host.as_str(), view.port));
        if current.as_ref().is_some_and(|server| server.address() == address) {
            return;
        }
        if current.is_some() {
            count(&self.primary.settings.counters.failovers);
        }
        let server = Arc::new(Server::new(self.primary.to(view.host.clone(), view.port)));
        server.connect();
        *current = Some(server);
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.listeners.lock().iter().for_each(AbortHandle::abort);
    }
}

async fn subscribe(
    sentinel: &Connector,
) -> Result<impl futures_util::Stream<Item = redis::Msg> + use<>, RedisError> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let subscribe = async {
        let settings = &sentinel.settings;
        let stream = sentinel.endpoint.open(settings.tls.as_ref(), deadline).await?;
        let login = settings.login.clone().set_protocol(ProtocolVersion::RESP2);
        let mut announced = PubSub::new(&login, stream).await?;
        announced.subscribe(CHANNEL).await?;
        Ok(announced.into_on_message())
    };
    timeout_at(deadline, subscribe).await.map_err(|_| timed_out())?
}

async fn ask(sentinel: &Server, master: &str) -> Result<View, RedisError> {
    let mut command = Cmd::new();
    command.arg("SENTINEL").arg("MASTER").arg(master);
    let reply = sentinel.link().await?.send(&command).await?;
    parse(&reply).ok_or_else(|| {
        RedisError::from((ErrorKind::UnexpectedReturnType, "the sentinel names no address"))
    })
}

/// Reads the reply to `SENTINEL MASTER`: names and values in turn.
fn parse(reply: &Value) -> Option<View> {
    let Value::Array(items) = reply else { return None };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    let field = |name: &str| {
        let mut pairs = items.chunks_exact(2);
        pairs.find_map(|pair| (text(&pair[0])? == name).then(|| text(&pair[1]))?)
    };
    Some(View {
        host: field("ip").filter(|host| !host.is_empty())?,
        port: field("port")?.parse().ok().filter(|port| *port != 0)?,
        // Sentinel has it since 2.8.
        epoch: field("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(words: &[&str]) -> Value {
        let word = |word: &&str| Value::BulkString(word.as_bytes().to_vec());
        Value::Array(words.iter().map(word).collect())
    }

    #[test]
    fn the_address_and_the_epoch_are_read_from_among_the_fields() {
        let said =
            reply(&["name", "ip", "ip", "10.0.0.1", "port", "6380", "config-epoch", "3", "x", "y"]);
        let view = View { host: "10.0.0.1".to_owned(), port: 6380, epoch: 3 };
        assert_eq!(parse(&said), Some(view));
    }

    #[test]
    fn a_reply_without_an_address_is_none() {
        for words in [&["ip", "", "port", "1"][..], &["ip", "a", "port", "0"], &["ip", "a"], &[]] {
            assert_eq!(parse(&reply(words)), None, "{words:?}");
        }
        assert_eq!(parse(&Value::Nil), None);
    }
}
