//! Where a request's connection comes from.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address of the connection that a request came over, as a request extension.
///
/// Whoever accepts connections puts it into the extensions of every request; the attribute `ip` is
/// made from it. With axum this is not needed: the feature `axum` reads its `ConnectInfo`.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_tower::{Extractor, PeerAddr};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr("203.0.113.7:4711".parse()?));
///
/// let (parts, ()) = request.into_parts();
/// assert_eq!(Extractor::default().attributes(&parts).value("ip"), Some("203.0.113.7"));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(
    /// The address and port of the other end of the connection.
    pub SocketAddr,
);

/// Returns the peer's address, if anyone has put it there.
pub(crate) fn of(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    None
}
