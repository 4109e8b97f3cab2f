//! Who may ask what on the admin listener.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ::http::header::{HOST, WWW_AUTHENTICATE};
use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tollgate_config::Scope;

use crate::app::App;
use crate::http::Problem;
use crate::metrics::AdminRefusal;
use crate::tokens::Shown;

/// Lets a request through that may be made, and tells the handler who makes it.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(needed) = needed(request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    if app.tokens.is_empty() {
        let refusal = match needed {
            Scope::Write => without_tokens(&app, request.headers()),
            _ => for_another_host(&app, request.headers()),
        };
        if let Some(problem) = refusal {
            return problem.into_response();
        }
        return next.run(request).await;
    }
    match app.tokens.shown(request.headers()) {
        Shown::TokenOf(bearer) if bearer.scope >= needed => {
            request.extensions_mut().insert(bearer);
            next.run(request).await
        }
        Shown::TokenOf(_) => {
            app.metrics.count_refused_admin(AdminRefusal::Scope);
            let detail = "this token may read only: show one of scope `write`";
            challenged(StatusCode::FORBIDDEN, detail, "Bearer error=\"insufficient_scope\"")
        }
        Shown::Unknown => {
            app.metrics.count_refused_admin(AdminRefusal::UnknownToken);
            let peer = request.extensions().get().map(|ConnectInfo::<SocketAddr>(peer)| peer.ip());
            app.token_warnings.tell(peer, Instant::now());
            let detail = "this token is unknown: show one of `admin_tokens`; one in a file is read \
                          again within 10 s of a change";
            challenged(StatusCode::UNAUTHORIZED, detail, "Bearer error=\"invalid_token\"")
        }
        Shown::Nothing => {
            app.metrics.count_refused_admin(AdminRefusal::NoToken);
            let detail = "show a token: `Authorization: Bearer TOKEN`, one of `admin_tokens`";
            challenged(StatusCode::UNAUTHORIZED, detail, "Bearer realm=\"tollgate admin\"")
        }
    }
}

/// Returns the scope that a request needs, if it needs any. Probes of an orchestrator have none.
fn needed(method: &Method, path: &str) -> Option<Scope> {
    match (method, path) {
        (_, "/healthz" | "/readyz") => None,
        (&Method::GET | &Method::HEAD, _) => Some(Scope::Read),
        _ => Some(Scope::Write),
    }
}

/// Says why rules cannot be changed where no tokens are configured, if they cannot. A web page in a
/// browser on this machine may lead a name of its own here, as in [`for_another_host`].
fn without_tokens(app: &App, headers: &HeaderMap) -> Option<Problem> {
    if !app.admin_is_private {
        let detail = "rules can be changed by this listener only with a token, since others than \
                      this machine can reach it: configure `admin_tokens`";
        return Some(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    if !headers.get(HOST).is_some_and(names_this_machine) && !app.admin_has_mtls {
        let detail = "without `admin_tokens`, rules can be changed only by a request for \
                      localhost or an IP address";
        return Some(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    None
}

/// Refuses to show what only this machine can reach to a web page in a browser on it, which can lead
/// a name of its own here. A browser always names a host.
fn for_another_host(app: &App, headers: &HeaderMap) -> Option<Problem> {
    if !app.admin_is_private || app.admin_has_mtls {
        return None;
    }
    let host = headers.get(HOST)?;
    if names_this_machine(host) {
        return None;
    }
    let detail = "without `admin_tokens`, this listener answers only requests for localhost or an \
                  IP address";
    Some(Problem::new(StatusCode::FORBIDDEN, detail))
}

fn names_this_machine(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    }
    let name = host.split(':').next().unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn challenged(status: StatusCode, detail: &str, challenge: &'static str) -> Response {
    let mut response = Problem::new(status, detail).into_response();
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_addresses_name_this_machine() {
        for (host, expected) in [
            ("localhost:9090", true),
            ("127.0.0.1:9090", true),
            ("10.0.0.1", true),
            ("[::1]:9090", true),
            ("localhost.example:9090", false),
            ("attacker.example", false),
            ("[x]", false),
            ("", false),
        ] {
            let value = HeaderValue::from_static(host);
            assert_eq!(names_this_machine(&value), expected, "{host}");
        }
    }
}
