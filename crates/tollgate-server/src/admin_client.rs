//! Asks the admin API of another process.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tollgate_config::{HttpUrl, RulesId};

use crate::client::{Client, Request};
use crate::live::SourceError;
use crate::rules_status::{RulesHistory, RulesStatus, RulesVersion};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of an answer: a document of 1 MiB with every byte escaped, and what is around it.
const ANSWER_LEN_MAX: usize = 8 << 20;

/// A client of the admin API of a service: what `tollgate rules` asks.
///
/// # Examples
///
/// ```no_run
/// use tollgate_config::HttpUrl;
/// use tollgate_server::{AdminClient, Replacing};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = AdminClient::new(HttpUrl::parse("http://127.0.0.1:9090")?);
/// let before = client.rules().await?;
/// let id = before.id.ok_or("no rules yet")?.parse()?;
/// let text = std::fs::read_to_string("rules.yaml")?;
/// let after = client.push(&text, &Replacing::Id(id)).await?;
/// assert!(after.error.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a client does nothing until it is asked"]
pub struct AdminClient {
    url: HttpUrl,
    client: Client,
    token: Option<HeaderValue>,
}

/// Which rules a push replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacing {
    /// Those with this id, and no others.
    Id(RulesId),
    /// Whatever is there.
    Any,
    /// None: there must be none yet.
    None,
}

/// An answer that could not be had, or a refusal.
#[derive(Debug)]
pub struct AdminError {
    status: Option<StatusCode>,
    message: String,
}

impl AdminClient {
    /// Makes a client of the service whose admin listener is at `url`; its path is not used.
    pub const fn new(url: HttpUrl) -> Self {
        Self { url, client: Client::plain(), token: None }
    }

    /// Sets up TLS, for an `https` URL: believes the certificates in the file `ca`, or those that
    /// the system believes, and shows the certificate and the key in the files `identity`.
    ///
    /// # Errors
    ///
    /// [`AdminError`] if a file has not what it should have.
    pub fn with_tls(
        mut self,
        ca: Option<&Path>,
        identity: Option<(&Path, &Path)>,
    ) -> Result<Self, AdminError> {
        self.client = Client::with_tls(ca, identity).map_err(AdminError::from)?;
        Ok(self)
    }

    /// Shows this token.
    ///
    /// # Errors
    ///
    /// [`AdminError`] if the token is not one line of text.
    pub fn with_token(mut self, token: &str) -> Result<Self, AdminError> {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| AdminError::new("the token is not one line of text"))?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    /// Asks for the rules in force.
    ///
    /// # Errors
    ///
    /// [`AdminError`] if the service does not answer, or refuses.
    pub async fn rules(&self) -> Result<RulesStatus, AdminError> {
        self.ask(Method::GET, "/v1/rules", HeaderMap::new(), Vec::new()).await
    }

    /// Asks for the versions that were in force, the newest first.
    ///
    /// # Errors
    ///
    /// As for [`rules`](Self::rules).
    pub async fn history(&self) -> Result<Vec<RulesVersion>, AdminError> {
        let history: RulesHistory =
            self.ask(Method::GET, "/v1/rules/history", HeaderMap::new(), Vec::new()).await?;
        Ok(history.versions)
    }

    /// Writes rules to their source, for all nodes that follow it, and returns what is in force
    /// then.
    ///
    /// # Errors
    ///
    /// [`AdminError::is_conflict`] if the rules are not those that are to be replaced;
    /// [`AdminError`] if the text has mistakes, the source cannot be written or the service does
    /// not answer.
    ///
    /// # Cancel safety
    ///
    /// The rules may or may not have been written.
    pub async fn push(&self, text: &str, replacing: &Replacing) -> Result<RulesStatus, AdminError> {
        let mut headers = HeaderMap::new();
        match replacing {
            Replacing::Id(id) => {
                let value = HeaderValue::from_str(&format!("\"{id}\""));
                headers.insert(IF_MATCH, value.map_err(|_| AdminError::new("no such id"))?);
            }
            Replacing::Any => {
                headers.insert(IF_MATCH, HeaderValue::from_static("*"));
            }
            Replacing::None => {
                headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
            }
        }
        self.ask(Method::PUT, "/v1/rules", headers, text.as_bytes().to_vec()).await
    }

    /// Puts a version of the history in force again, the one before the current if none is named,
    /// and returns what is in force then.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push), and if the history has no such version.
    ///
    /// # Cancel safety
    ///
    /// As for [`push`](Self::push).
    pub async fn roll_back(&self, id: Option<&RulesId>) -> Result<RulesStatus, AdminError> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        let body = id.map_or_else(|| "{}".to_owned(), |id| format!("{{\"id\":\"{id}\"}}"));
        self.ask(Method::POST, "/v1/rules/rollback", headers, body.into_bytes()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<T, AdminError> {
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let url = self.url.with_target(path);
        let request = Request { method, headers, body };
        let reply = self.client.send(&url, request, ANSWER_LEN_MAX, ANSWER_TIMEOUT).await?;
        if reply.status != StatusCode::OK {
            return Err(AdminError::refused(reply.status, &reply.body));
        }
        serde_json::from_slice(&reply.body).map_err(|_| {
            AdminError::new("what answers there is not the admin listener of a tollgate service")
        })
    }
}

impl AdminError {
    fn new(message: impl Into<String>) -> Self {
        Self { status: None, message: message.into() }
    }

    fn refused(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Told {
            detail: String,
        }

        let told = serde_json::from_slice::<Told>(body);
        let message = told.map_or_else(|_| format!("it answers {status}"), |told| told.detail);
        Self { status: Some(status), message }
    }

    /// Tells whether the rules are not those that were to be replaced.
    pub fn is_conflict(&self) -> bool {
        self.status == Some(StatusCode::PRECONDITION_FAILED)
    }

    /// Tells whether the service answers and refuses, as without a token or with a source that it
    /// cannot write to; not if it fails.
    pub fn is_refusal(&self) -> bool {
        self.status.is_some_and(|status| status.is_client_error())
    }

    /// Tells whether the rules that were sent have mistakes, which are the text of the error.
    pub fn is_invalid(&self) -> bool {
        self.status == Some(StatusCode::BAD_REQUEST)
    }
}

impl From<SourceError> for AdminError {
    fn from(error: SourceError) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for AdminError {}
