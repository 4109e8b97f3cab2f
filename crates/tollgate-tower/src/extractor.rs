//! From a request to the attributes that rules match and key on.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::uri::Authority;
use tollgate::Attributes;

use crate::client_ip::ClientIp;
use crate::peer_addr;

/// Makes the [`Attributes`] of a request: what rules match and key on.
///
/// [`Extractor::default`] gives `ip`, `path` and `method`; [`Extractor::new`] gives nothing. Each
/// attribute has one source, so setting a name again replaces its source. An attribute that a
/// request does not have is left out, and a rule that keys on it skips the request or puts all
/// such requests into one bucket, by its `missing`.
///
/// # Examples
///
/// ```
/// use http::{HeaderName, Request};
/// use tollgate_tower::Extractor;
///
/// #[derive(Clone)]
/// struct Account(String); // set by an authenticating layer outside of this one
///
/// let extractor = Extractor::default()
///     .host()
///     .header(HeaderName::from_static("x-api-version"), "version")
///     .with("account", |request| Some(request.extensions.get::<Account>()?.0.clone()));
///
/// let request = Request::post("http://Shop.example:8080/cart?item=1")
///     .header("x-api-version", "2")
///     .extension(Account("alice".to_owned()))
///     .body(())?;
/// let attributes = extractor.attributes(&request.into_parts().0);
/// assert_eq!(
///     attributes.iter().collect::<Vec<_>>(),
///     [
///         ("path", "/cart"),
///         ("method", "POST"),
///         ("host", "shop.example"),
///         ("version", "2"),
///         ("account", "alice"),
///     ]
/// );
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Extractor {
    domain: Option<Cow<'static, str>>,
    sources: Vec<(Cow<'static, str>, Source)>,
}

#[derive(Clone)]
enum Source {
    Ip(ClientIp),
    Path,
    Method,
    Host,
    Header(HeaderName),
    Constant(Cow<'static, str>),
    Custom(Arc<Custom>),
    Async(Arc<AsyncCustom>),
}

type Custom = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type AsyncCustom = dyn Fn(Parts) -> AsyncValue + Send + Sync;
type AsyncValue = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

impl Extractor {
    /// Makes an extractor of no attributes, in the domain `default`.
    pub const fn new() -> Self {
        Self { domain: None, sources: Vec::new() }
    }

    /// Sets the domain, the set of rules that requests are judged by.
    pub fn domain(mut self, domain: impl Into<Cow<'static, str>>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Adds `ip`, the client's address as `client_ip` finds it; absent if the peer is not known.
    ///
    /// The peer is a [`PeerAddr`](crate::PeerAddr) in the request's extensions, or with the feature
    /// `axum` a `ConnectInfo<SocketAddr>`.
    pub fn client_ip(self, client_ip: ClientIp) -> Self {
        self.set("ip", Source::Ip(client_ip))
    }

    /// Adds `path`, the path as it was sent, without the query.
    ///
    /// It is not decoded and `//` is not merged: match what the routes match. A layer inside of a
    /// nested axum router sees the path without the prefix.
    pub fn path(self) -> Self {
        self.set("path", Source::Path)
    }

    /// Adds `method`, in upper case for all the usual ones.
    pub fn method(self) -> Self {
        self.set("method", Source::Method)
    }

    /// Adds `host`, the host that the request names, in lower case and without the port.
    ///
    /// It is that of the URI if that has one (HTTP/2, or HTTP/1 through a proxy), otherwise that of
    /// the `Host` header. The client chooses it.
    pub fn host(self) -> Self {
        self.set("host", Source::Host)
    }

    /// Adds `attribute`, the first value of the header `name`.
    ///
    /// The client chooses it: a rule that keys on a header that nobody has checked gives a client
    /// a new bucket for every value it makes up. Bytes that are not UTF-8 are replaced by U+FFFD,
    /// so that no value makes the attribute absent.
    pub fn header(self, name: HeaderName, attribute: impl Into<Cow<'static, str>>) -> Self {
        self.set(attribute, Source::Header(name))
    }

    /// Adds `attribute`, what `value` makes of the request; absent if that is `None`.
    ///
    /// The closure runs on every request, before it is judged, so it should be quick.
    pub fn with<F>(self, attribute: impl Into<Cow<'static, str>>, value: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.set(attribute, Source::Custom(Arc::new(value)))
    }

    /// Adds `attribute`, what the future of `value` makes of a copy of the request's head; absent if
    /// that is `None`.
    ///
    /// For what has to be looked up, such as the account of a token. The request waits for it before
    /// it is judged, so it should be quick and have a deadline of its own. The closure also suits an
    /// extractor of axum, which needs `&mut Parts`:
    ///
    /// ```
    /// use axum::extract::{FromRequestParts, RawQuery};
    /// use tollgate_tower::Extractor;
    ///
    /// let extractor = Extractor::default().with_async("query", |mut request| async move {
    ///     let RawQuery(query) = RawQuery::from_request_parts(&mut request, &()).await.ok()?;
    ///     query
    /// });
    /// # let _ = extractor;
    /// ```
    pub fn with_async<F, T>(self, attribute: impl Into<Cow<'static, str>>, value: F) -> Self
    where
        F: Fn(Parts) -> T + Send + Sync + 'static,
        T: Future<Output = Option<String>> + Send + 'static,
    {
        let value = move |request| -> AsyncValue { Box::pin(value(request)) };
        self.set(attribute, Source::Async(Arc::new(value)))
    }

    /// Adds `attribute`, the same for every request.
    pub fn constant(
        self,
        attribute: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.set(attribute, Source::Constant(value.into()))
    }

    /// Adds `route`, the path of axum's route as it was written, such as `/users/{id}`; absent if no
    /// route matched.
    ///
    /// It is the same however the path was sent, and has as many values as there are routes. The
    /// layer has to be added by `Router::layer` or `Router::route_layer`.
    #[cfg(feature = "axum")]
    pub fn route(self) -> Self {
        self.with("route", |request| {
            let route = request.extensions.get::<axum::extract::MatchedPath>()?;
            Some(route.as_str().to_owned())
        })
    }

    /// Makes the attributes of a request, but for those of [`with_async`](Self::with_async).
    pub fn attributes(&self, request: &Parts) -> Attributes {
        let mut attributes = Attributes::new();
        if let Some(domain) = &self.domain {
            attributes = attributes.with_domain(domain.clone());
        }
        for (name, source) in &self.sources {
            if let Some(value) = source.value(request) {
                attributes.insert(name.clone(), value);
            }
        }
        attributes
    }

    /// Tells whether there are attributes that take time.
    pub(crate) fn is_async(&self) -> bool {
        self.sources.iter().any(|(_, source)| matches!(source, Source::Async(_)))
    }

    /// Adds the attributes that take time, one after the other.
    pub(crate) async fn complete(&self, attributes: &mut Attributes, request: &Parts) {
        for (name, source) in &self.sources {
            let Source::Async(value) = source else { continue };
            if let Some(value) = value(request.clone()).await {
                attributes.insert(name.clone(), value);
            }
        }
    }

    /// Returns the client's address, ungrouped, if `ip` is made from it.
    pub(crate) fn address(&self, request: &Parts) -> Option<IpAddr> {
        let (_, source) = self.sources.iter().find(|(name, _)| name == "ip")?;
        let Source::Ip(client_ip) = source else { return None };
        Some(client_ip.resolve(peer_addr::of(&request.extensions)?, &request.headers))
    }

    /// Tells whether `ip` is made from the peer's address.
    pub(crate) fn finds_ip(&self) -> bool {
        self.sources.iter().any(|(name, source)| name == "ip" && matches!(source, Source::Ip(_)))
    }

    fn set(mut self, attribute: impl Into<Cow<'static, str>>, source: Source) -> Self {
        let attribute = attribute.into();
        match self.sources.iter_mut().find(|(name, _)| *name == attribute) {
            Some((_, known)) => *known = source,
            None => self.sources.push((attribute, source)),
        }
        self
    }
}

impl Default for Extractor {
    /// Makes the extractor of `ip`, believing no proxy, and of `path` and `method`.
    fn default() -> Self {
        Self::new().client_ip(ClientIp::new()).path().method()
    }
}

impl Source {
    fn value(&self, request: &Parts) -> Option<String> {
        match self {
            Self::Ip(client_ip) => {
                let peer = peer_addr::of(&request.extensions)?;
                Some(client_ip.attribute(peer, &request.headers))
            }
            Self::Path => Some(request.uri.path().to_owned()),
            Self::Method => Some(request.method.as_str().to_owned()),
            Self::Host => host(request),
            Self::Header(name) => {
                let value = request.headers.get(name)?;
                Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
            }
            Self::Constant(value) => Some(value.clone().into_owned()),
            Self::Custom(value) => value(request),
            Self::Async(_) => None,
        }
    }
}

fn host(request: &Parts) -> Option<String> {
    if let Some(authority) = request.uri.authority() {
        return Some(authority.host().to_ascii_lowercase());
    }
    let value = request.headers.get(HOST)?;
    match Authority::try_from(value.as_bytes()) {
        Ok(authority) => Some(authority.host().to_ascii_lowercase()),
        // A host that cannot be is still a value, so that it does not slip past a rule.
        Err(_) => Some(String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase()),
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(client_ip) => client_ip.fmt(f),
            Self::Path => f.write_str("Path"),
            Self::Method => f.write_str("Method"),
            Self::Host => f.write_str("Host"),
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::Constant(value) => f.debug_tuple("Constant").field(value).finish(),
            Self::Custom(_) => f.write_str("Custom"),
            Self::Async(_) => f.write_str("Async"),
        }
    }
}
