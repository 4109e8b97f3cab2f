//! Rules behind a URL.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::Notify;
use tollgate_config::{Config, HttpUrl};

use crate::client::{Client, Request};
use crate::live::error::SourceError;
use crate::live::reading::Reading;
use crate::live::source::{Fetched, read_file};

/// How long an answer may take that is not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server is asked to wait for a change, if it can: `Prefer: wait=30` (RFC 7240).
const WAIT: Duration = Duration::from_secs(30);

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The least time between two answers of a server that says it waits.
const PAUSE_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct HttpSource {
    client: Client,
    url: HttpUrl,
    token_file: Option<PathBuf>,
    reading: Reading,
    poll_interval: Duration,
    etag: Mutex<Option<HeaderValue>>,
    /// Whether the server has waited for a change, and so is to be asked again at once.
    has_waited: AtomicBool,
    changed: Arc<Notify>,
}

impl HttpSource {
    pub(super) fn new(
        url: &HttpUrl,
        ca: Option<&Path>,
        token_file: Option<PathBuf>,
        poll_interval: Duration,
    ) -> Result<Self, SourceError> {
        let client = match url.is_https() {
            true => Client::with_tls(ca, None)?,
            false => Client::plain(),
        };
        Ok(Self {
            client,
            url: url.clone(),
            token_file,
            reading: Reading::new(),
            poll_interval,
            etag: Mutex::new(None),
            has_waited: AtomicBool::new(false),
            changed: Arc::new(Notify::new()),
        })
    }

    pub(super) fn location(&self) -> String {
        self.url.to_string()
    }

    /// Returns the URL without its query, so that its end tells the format.
    pub(super) fn name(&self) -> String {
        let url = self.url.as_str();
        url.split_once('?').map_or(url, |(base, _)| base).to_owned()
    }

    /// Waits the interval, give or take a tenth, so that a fleet does not ask as one.
    pub(super) fn pace(&self) -> (Duration, Arc<Notify>) {
        let pause = match self.has_waited.load(Ordering::Relaxed) {
            true => PAUSE_MIN,
            false => jittered(self.poll_interval),
        };
        (pause, Arc::clone(&self.changed))
    }

    pub(super) async fn fetch(&self) -> Result<Fetched, SourceError> {
        let fetched = self.ask().await;
        if fetched.is_err() {
            self.has_waited.store(false, Ordering::Relaxed);
        }
        fetched
    }

    async fn ask(&self) -> Result<Fetched, SourceError> {
        let mut headers = HeaderMap::new();
        let known = self.etag().clone();
        let mut limit = ANSWER_TIMEOUT;
        if let Some(etag) = known {
            headers.insert(IF_NONE_MATCH, etag);
            headers.insert(PREFER, HeaderValue::from_static("wait=30"));
            limit += WAIT;
        }
        if let Some(file) = &self.token_file {
            let token = read_file(&self.reading, file).await?;
            let token = token.ok_or_else(|| {
                SourceError::new(format!("there is no file {} with a token", file.display()))
            })?;
            headers.insert(AUTHORIZATION, bearer(&token)?);
        }
        let request = Request { method: Method::GET, headers, body: Vec::new() };
        let reply = self.client.send(&self.url, request, Config::SIZE_MAX, limit).await?;
        let has_waited =
            reply.headers.get_all(PREFERENCE_APPLIED).iter().any(|value| {
                value.to_str().is_ok_and(|value| value.trim_start().starts_with("wait"))
            });
        self.has_waited.store(has_waited, Ordering::Relaxed);
        match reply.status {
            StatusCode::NOT_MODIFIED => Ok(Fetched::Same),
            StatusCode::OK => {
                *self.etag() = reply.headers.get(ETAG).cloned();
                Ok(Fetched::Text(reply.body))
            }
            status if status.is_redirection() => Err(SourceError::new(format!(
                "the server answers {status}: give the URL that it leads to"
            ))),
            status => Err(SourceError::new(format!("the server answers {status}"))),
        }
    }

    fn etag(&self) -> std::sync::MutexGuard<'_, Option<HeaderValue>> {
        // No code that holds the lock can leave the value half changed.
        self.etag.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bearer(token: &[u8]) -> Result<HeaderValue, SourceError> {
    let value = [b"Bearer ", token.trim_ascii()].concat();
    let mut value = HeaderValue::from_bytes(&value)
        .map_err(|_| SourceError::new("the token for the server is not one line of text"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Changes a duration by up to a tenth.
fn jittered(duration: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};

    // The keys of each hasher are random, and so is the hash.
    let drawn = RandomState::new().hash_one(0u8) % 2_001;
    let micros = duration.as_micros().saturating_mul(9_000 + u128::from(drawn)) / 10_000;
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_changed_by_at_most_a_tenth() {
        let drawn: Vec<_> = (0..1_000).map(|_| jittered(Duration::from_secs(10))).collect();
        assert!(drawn.iter().all(|one| (9_000..=11_000).contains(&one.as_millis())));
        assert!(drawn.iter().any(|one| one.as_millis() < 9_500));
        assert!(drawn.iter().any(|one| one.as_millis() > 10_500));
    }
}
