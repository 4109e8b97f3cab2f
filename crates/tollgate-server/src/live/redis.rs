//! Rules in a key of Redis, whose changes are published.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, FromRedisValue, IntoConnectionInfo, Pipeline,
    RedisError, RedisResult, TlsCertificates,
};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};
use tollgate_config::{Config, RedisAccess, RedisUrl};

use crate::live::error::{SourceError, WriteError};
use crate::live::source::Fetched;
use crate::redis_access::Shown;

/// How long the server may take for a connection, and for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it takes until a broken subscription is tried again.
const RESUBSCRIBE_INTERVAL: Duration = Duration::from_secs(1);

/// Writes the key if it still has what the caller has seen, or has what is written: the answer to the
/// first of two calls may have been lost. Of a value that is too large, no more is seen than shows that
/// it is.
const REPLACE: &str = "
local current = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('GETRANGE', KEYS[1], 0, ARGV[4])
local seen = ARGV[1] == 'text' and ARGV[2]
if current == ARGV[3] then
  return 1
end
if current ~= seen then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
";

pub(crate) struct RedisSource {
    client: Client,
    url: RedisUrl,
    key: String,
    channel: String,
    poll_interval: Duration,
    changed: Arc<Notify>,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RedisSource {
    pub(super) fn new(
        url: &RedisUrl,
        access: &RedisAccess,
        key: &str,
        poll_interval: Duration,
    ) -> Result<Self, SourceError> {
        let client = client(url, access)?;
        Ok(Self {
            client,
            url: url.clone(),
            key: key.to_owned(),
            channel: format!("{key}:changed"),
            poll_interval,
            changed: Arc::new(Notify::new()),
            connection: Mutex::new(None),
        })
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn location(&self) -> String {
        format!("{} key {}", self.url, self.key)
    }

    pub(super) fn pace(&self) -> (Duration, Arc<Notify>) {
        (self.poll_interval, Arc::clone(&self.changed))
    }

    pub(super) async fn fetch(&self) -> Result<Fetched, SourceError> {
        let mut read = redis::pipe();
        // A value that is too large is refused by its length, not loaded.
        read.exists(&self.key).getrange(&self.key, 0, size_max());
        match self.ask::<(bool, Vec<u8>)>(&read).await?.map_err(|error| described(&error))? {
            (true, text) => Ok(Fetched::Text(text)),
            (false, _) => Ok(Fetched::Absent),
        }
    }

    pub(super) async fn write(&self, seen: Option<&[u8]>, text: &str) -> Result<(), WriteError> {
        let kind = if seen.is_some() { "text" } else { "absent" };
        let mut replace = redis::pipe();
        replace.cmd("EVAL").arg(REPLACE).arg(1).arg(&self.key);
        replace.arg(kind).arg(seen.unwrap_or_default()).arg(text).arg(size_max());
        match self.ask(&replace).await? {
            Ok((1,)) => {
                self.tell().await;
                Ok(())
            }
            Ok(_) => Err(WriteError::Conflict),
            Err(error) => Err(SourceError::of("Redis does not take the rules", &error).into()),
        }
    }

    /// Asks on the connection that is kept, and on a new one if that has broken: a server closes those
    /// that say nothing for long. What is asked may be asked twice.
    async fn ask<T: FromRedisValue>(
        &self,
        question: &Pipeline,
    ) -> Result<RedisResult<T>, SourceError> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &mut *held {
            match question.query_async(connection).await {
                Err(error) if error.is_timeout() => {
                    *held = None;
                    return Ok(Err(error));
                }
                Err(error) if error.is_io_error() => *held = None,
                answered => return Ok(answered),
            }
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(|error| described(&error))?;
        let answered = question.query_async(&mut connection).await;
        if answered.is_ok() {
            *held = Some(connection);
        }
        Ok(answered)
    }

    /// Tells all who follow the key. They find what is written in any case, so it is no failure if
    /// this may not.
    async fn tell(&self) {
        let mut publish = redis::pipe();
        publish.publish(&self.channel, "changed").ignore();
        if let Ok(Err(error)) = self.ask::<()>(&publish).await {
            let channel = &self.channel;
            tracing::warn!(
                %error,
                channel,
                "the rules are written, and other nodes find them at their next poll only"
            );
        }
    }

    /// Subscribes, and again when that breaks. Whatever was published in between was missed, so a
    /// new subscription counts as a change.
    pub(super) async fn watch(&self) {
        let mut is_told = false;
        loop {
            if let Ok(Ok(mut pubsub)) =
                timeout(ANSWER_TIMEOUT, self.client.get_async_pubsub()).await
            {
                match timeout(ANSWER_TIMEOUT, pubsub.subscribe(&self.channel)).await {
                    Ok(Ok(())) => {
                        is_told = false;
                        self.changed.notify_one();
                        let mut messages = pubsub.on_message();
                        while messages.next().await.is_some() {
                            self.changed.notify_one();
                        }
                    }
                    // Where the server is away, the polls say so.
                    Ok(Err(error)) if !is_told && error.code().is_some() => {
                        is_told = true;
                        let channel = &self.channel;
                        tracing::warn!(
                            %error,
                            channel,
                            "changes of the rules are not announced, they are polled for"
                        );
                    }
                    _ => {}
                }
            }
            sleep(RESUBSCRIBE_INTERVAL).await;
        }
    }
}

/// Makes a client that shows the server what it is to be shown.
fn client(url: &RedisUrl, access: &RedisAccess) -> Result<Client, SourceError> {
    let unusable = |error| SourceError::of("the URL of the rules cannot be used", &error);
    let shown = Shown::read(access, "rules_from").map_err(SourceError::new)?;
    let info = url.as_str().into_connection_info().map_err(unusable)?;
    let mut settings = info.redis_settings().clone();
    if let Some(username) = &access.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &shown.password {
        settings = settings.set_password(password);
    }
    if let Some(database) = access.database {
        settings = settings.set_db(database.into());
    }
    let info = info.set_redis_settings(settings);
    if shown.ca.is_none() && shown.identity.is_none() {
        return Client::open(info).map_err(unusable);
    }
    let identity = shown.identity;
    let client_tls =
        identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: shown.ca };
    Client::build_with_tls(info, certificates).map_err(|error| {
        SourceError::of("the certificates for the rules (rules_from.tls) cannot be used", &error)
    })
}

/// The last byte that is read: one more than there may be.
fn size_max() -> isize {
    isize::try_from(Config::SIZE_MAX).unwrap_or(isize::MAX)
}

fn described(error: &RedisError) -> SourceError {
    SourceError::of("Redis does not give the rules", error)
}

impl std::fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisSource").field("location", &self.location()).finish_non_exhaustive()
    }
}
