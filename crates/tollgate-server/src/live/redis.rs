//! Rules in a key of Redis, whose changes are published.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, IntoConnectionInfo, RedisError, Script,
    TlsCertificates,
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

/// Writes the key if it still has what the caller has seen. Of a value that is too large that is no
/// more than shows that it is.
const REPLACE: &str = "
local current = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('GETRANGE', KEYS[1], 0, ARGV[4])
local seen = ARGV[1] == 'text' and ARGV[2]
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
    replace: Script,
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
            replace: Script::new(REPLACE),
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
        let mut connection = self.connection().await?;
        let mut pipe = redis::pipe();
        // A value that is too large is refused by its length, not loaded.
        pipe.exists(&self.key).getrange(&self.key, 0, size_max());
        let read: Result<(bool, Vec<u8>), _> = pipe.query_async(&mut connection).await;
        match read {
            Ok((true, text)) => Ok(Fetched::Text(text)),
            Ok((false, _)) => Ok(Fetched::Absent),
            Err(error) => Err(self.failed(&error).await),
        }
    }

    pub(super) async fn write(&self, seen: Option<&[u8]>, text: &str) -> Result<(), WriteError> {
        let mut connection = self.connection().await?;
        let kind = if seen.is_some() { "text" } else { "absent" };
        let mut call = self.replace.key(&self.key);
        call.arg(kind).arg(seen.unwrap_or_default()).arg(text).arg(size_max());
        match call.invoke_async::<u8>(&mut connection).await {
            Ok(1) => {
                self.tell(&mut connection).await;
                Ok(())
            }
            Ok(_) => Err(WriteError::Conflict),
            Err(error) => Err(self.failed(&error).await.into()),
        }
    }

    /// Tells all who follow the key. They find what is written in any case, so it is no failure if
    /// this may not.
    async fn tell(&self, connection: &mut MultiplexedConnection) {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channel).arg("changed");
        if let Err(error) = publish.query_async::<i64>(connection).await {
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

    async fn connection(&self) -> Result<MultiplexedConnection, SourceError> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &*held {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connected.map_err(|error| described(&error))?;
        *held = Some(connection.clone());
        Ok(connection)
    }

    /// Gives the connection up, so that the next call has a new one.
    async fn failed(&self, error: &RedisError) -> SourceError {
        *self.connection.lock().await = None;
        described(error)
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
