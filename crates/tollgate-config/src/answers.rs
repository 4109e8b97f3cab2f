//! What the answers of the service say of the limits, and how a denial is answered.

/// Which headers tell a client about its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadersConfig {
    /// What `X-RateLimit-Reset` counts, or `None` if no `X-RateLimit-Limit`, `-Remaining` and
    /// `-Reset` are written. The default is seconds from now.
    pub x_ratelimit: Option<ResetUnit>,
    /// The IETF draft of `RateLimit` and `RateLimit-Policy`, or `None` if they are not written.
    pub ietf: Option<IetfDraft>,
    /// Whether a denial names its rule in `X-RateLimit-Rule`. The default is yes.
    pub rule: bool,
}

/// What `X-RateLimit-Reset` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetUnit {
    /// Seconds from now.
    Delta,
    /// Seconds since the epoch.
    Epoch,
}

/// A version of the IETF draft of `RateLimit` and `RateLimit-Policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IetfDraft {
    /// Draft 06, and 03 to 05 before it.
    Draft06,
    /// Draft 07.
    Draft07,
    /// Draft 11, the default.
    Draft11,
}

impl Default for HeadersConfig {
    fn default() -> Self {
        Self { x_ratelimit: Some(ResetUnit::Delta), ietf: Some(IetfDraft::Draft11), rule: true }
    }
}

/// How a denial is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DenialConfig {
    /// The status of forward auth, 400 to 599. The default is 429.
    pub status: u16,
    /// The body of forward auth, and the one that Envoy answers with.
    pub body: DenialContent,
    /// Headers that are added, each a name in lower case and a value that HTTP allows.
    pub headers: Vec<(String, String)>,
}

/// The body of a denial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialContent {
    /// What is usual where the denial is told: none for forward auth, a problem document for Envoy.
    #[default]
    Usual,
    /// None.
    Empty,
    /// A problem document that names the rules that denied.
    Problem,
    /// A text of this media type, which is a value that a header may have.
    Text {
        /// The body.
        text: String,
        /// Its `Content-Type`.
        content_type: String,
    },
}

impl Default for DenialConfig {
    fn default() -> Self {
        Self { status: 429, body: DenialContent::default(), headers: Vec::new() }
    }
}
