//! `/v1/auth`: a gateway asks whether a request may pass, and describes it in headers.

mod original;

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::header::FORWARDED;
use ::http::{HeaderMap, HeaderName, Method, Uri};
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use tollgate::{Attributes, Cost};
use tollgate_core::key;
use tollgate_tower::Rejection;

use self::original::{Original, text};
use crate::app::App;
use crate::http::problem::Problem;
use crate::http::request::Mistake;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What the name of a header begins with that carries an attribute.
const ATTRIBUTE_PREFIX: &str = "x-tollgate-";

/// The attributes that are taken from the original request itself.
const RESERVED: [&str; 4] = ["host", "ip", "method", "path"];

pub(crate) async fn auth(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let attributes = match attributes(&app, peer, &method, &uri, &headers) {
        Ok(attributes) => attributes,
        Err(mistake) => return Problem::from(mistake).into_response(),
    };
    match app.check(&attributes, Cost::ONE).await {
        Ok(verdict) => {
            let mut response = if verdict.is_allowed() {
                Response::new(Body::empty())
            } else {
                app.edge.denial.respond(&Rejection::denied(verdict.clone()))
            };
            app.edge.headers.write(&verdict, response.headers_mut());
            response
        }
        Err(error) => Problem::from(error).into_headers(),
    }
}

fn attributes(
    app: &App,
    peer: SocketAddr,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Attributes, Mistake> {
    let mut attributes = Attributes::new();
    if let Some(domain) = domain(uri)? {
        attributes = attributes.with_domain(domain.to_owned());
    }
    let original = Original::of(headers);
    if original.path.is_none() {
        app.hints.no_original_uri(peer.ip());
    }
    attributes.insert("ip", client_ip(app, peer, headers));
    attributes.insert("method", original.method.unwrap_or_else(|| method.as_str().to_owned()));
    if let Some(path) = original.path {
        attributes.insert("path", path);
    }
    if let Some(host) = original.host {
        attributes.insert("host", host);
    }
    for header in headers.keys() {
        let Some(name) = header.as_str().strip_prefix(ATTRIBUTE_PREFIX) else { continue };
        if RESERVED.contains(&name) || !key::is_name(name) {
            continue;
        }
        if let Some(value) = text(headers, header.as_str()) {
            attributes.insert(name.to_owned(), value);
        }
    }
    Ok(attributes)
}

fn client_ip(app: &App, peer: SocketAddr, headers: &HeaderMap) -> String {
    let address = peer.ip().to_canonical();
    let is_forwarded = headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED);
    if is_forwarded && !app.trusted_proxies.iter().any(|proxies| proxies.contains(&address)) {
        app.hints.untrusted_peer(address);
    }
    app.client_ip.attribute(address, headers)
}

/// Reads `domain` of the query, which nothing else may stand in: if it is misspelt, or the query is
/// that of the client, others would be the rules that judge the request.
fn domain(uri: &Uri) -> Result<Option<&str>, Mistake> {
    let mut domain = None;
    let parameters = uri.query().unwrap_or_default().split('&');
    for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if name != "domain" {
            return Err(Mistake::parameter(name));
        }
        if domain.replace(value).is_some() {
            return Err(Mistake::domain_twice());
        }
    }
    match domain {
        Some(domain) if !key::is_name(domain) => Err(Mistake::domain(domain)),
        domain => Ok(domain),
    }
}
