//! The service: its listeners and their life.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate::Limiter;
use tollgate_config::{Config, ListenLimits, ListenerTls as ListenerFiles};
use tollgate_envoy::RateLimiter;

use crate::accept::{Bounds, Service};
use crate::app::App;
use crate::backend::Backend;
use crate::error::ServeError;
use crate::live::Live;
use crate::metrics::Certificates;
use crate::reload::{self, Reload};
use crate::spans::{self, Exporting};
use crate::tls::ListenerTls;
use crate::tokens::Tokens;
use crate::{accept, admin, grpc, http, live, open_files};

/// How long requests in flight may take to finish once the service stops, unless set otherwise.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the admin listener may take to close its connections, which come after all others.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the store may take for what is given back when the service stops.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the collector may take for the last spans when the service stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The service, listening but not yet answering.
///
/// See the [crate docs](crate) for an example.
#[derive(Debug)]
pub struct Server {
    http: TcpListener,
    grpc: Option<TcpListener>,
    admin: TcpListener,
    /// Of http, grpc and admin.
    tls: [Option<Arc<ListenerTls>>; 3],
    http_addr: SocketAddr,
    grpc_addr: Option<SocketAddr>,
    admin_addr: SocketAddr,
    envoy: RateLimiter,
    limits: ListenLimits,
    drain_timeout: Duration,
    reload: Reload,
    exporting: Option<Exporting>,
    app: Arc<App>,
}

impl Server {
    /// Makes the store and the limiter of `config` and listens on its addresses. Port 0 takes a
    /// free port; see [`http_addr`](Self::http_addr).
    ///
    /// A Redis server need not answer yet: it is asked once, within the timeout of the store, and
    /// if it does not answer that is logged and the rules decide by their failure policies until
    /// it does.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if an address cannot be listened on, or the store cannot be made as
    /// configured.
    pub async fn bind(config: &Config) -> Result<Self, ServeError> {
        let backend = Backend::new(&config.store)?;
        let limiter = backend.limiter(config)?;
        let live = Live::start(config, limiter.clone()).await?;
        let server = Self::listen(config, limiter, backend, live).await?;
        if let Err(error) = server.app.backend.ping().await {
            tracing::warn!(%error, "store does not answer yet, rules decide by their policy");
        }
        Ok(server)
    }

    /// Listens on the addresses of `config` and answers by `limiter`, whatever the store and the
    /// rules of `config` are. For an application with a store or a clock of its own.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if an address cannot be listened on, or the limits for Envoy could not be read
    /// and none are kept.
    pub async fn bind_with_limiter(config: &Config, limiter: Limiter) -> Result<Self, ServeError> {
        let live = Live::unled(config, limiter.clone()).await?;
        Self::listen(config, limiter, Backend::Custom, live).await
    }

    async fn listen(
        config: &Config,
        limiter: Limiter,
        backend: Backend,
        live: Live,
    ) -> Result<Self, ServeError> {
        open_files::raise(config);
        let tokens = Tokens::new(&config.admin_tokens)?;
        let tls = [
            tls("http", config.tls.http.as_ref())?,
            tls("grpc", config.tls.grpc.as_ref())?,
            tls("admin", config.tls.admin.as_ref())?,
        ];
        let reuse_port = config.listen.reuse_port;
        let (http, http_addr) = listen("http", config.listen.http, reuse_port)?;
        let (grpc, grpc_addr) = match config.listen.grpc {
            Some(address) => Some(listen("grpc", address, reuse_port)?).unzip(),
            None => (None, None),
        };
        let (admin, admin_addr) = listen("admin", config.listen.admin, reuse_port)?;
        let certificates = Certificates(tls.iter().flatten().cloned().collect());
        let store = limiter.store().kind();
        let (tracer, exporting) = spans::tracer(&config.tracing, store)?.unzip();
        let app = Arc::new(App::new(config, limiter, backend, live, tokens, tracer, certificates));
        let envoy = grpc::rate_limiter(&app, config.envoy);
        Ok(Self {
            http,
            grpc,
            admin,
            tls,
            http_addr,
            grpc_addr,
            admin_addr,
            envoy,
            limits: config.listen.limits,
            drain_timeout: DRAIN_TIMEOUT,
            reload: Reload::new(),
            exporting,
            app,
        })
    }

    /// Sets how long requests in flight may take to finish once the service stops; the default is
    /// 10 s.
    #[must_use]
    pub const fn with_drain_timeout(mut self, drain_timeout: Duration) -> Self {
        self.drain_timeout = drain_timeout;
        self
    }

    /// Returns the address of the check API and forward auth, with the port that was taken.
    pub const fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Returns the address of Envoy's rate limit protocol, with the port that was taken, unless it
    /// is off.
    pub const fn grpc_addr(&self) -> Option<SocketAddr> {
        self.grpc_addr
    }

    /// Returns the address of health and metrics, with the port that was taken.
    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Returns the limiter, for instance to [replace its rules](Limiter::replace_rules).
    pub fn limiter(&self) -> &Limiter {
        &self.app.limiter
    }

    /// Returns where the rules come from, if that is not the configuration of the service; without
    /// passwords.
    pub fn rules_from(&self) -> Option<String> {
        self.app.live.elsewhere()
    }

    /// Returns the number of limits for Envoy that come from a directory and are in force.
    pub fn envoy_limits(&self) -> usize {
        self.app.live.limits.len()
    }

    /// Returns what tells the service to look for new rules and certificates at once, as it does
    /// on SIGHUP.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Answers until `shutdown` is done, then accepts no more, finishes the requests in flight and
    /// returns. Those that wait on `/v1/acquire` are told to ask elsewhere, and what they had taken
    /// is given back. A request that takes longer than the drain timeout is given up.
    ///
    /// While requests are being finished, the admin listener still answers and `/readyz` is 503.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the service stops as if `shutdown` were done, without waiting.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self {
            http,
            grpc,
            admin,
            tls,
            envoy,
            limits,
            app,
            drain_timeout,
            reload,
            exporting,
            ..
        } = self;
        let (bounds, admin_bounds) = (Bounds::of(&limits), Bounds::of_admin(&limits));
        let http_bounds = Bounds { awaits_others: http::awaits_others, ..bounds };
        let (stop_exporting, stopped) = oneshot::channel::<()>();
        let exporting = exporting.map(|it| tokio::spawn(it.run(async { drop(stopped.await) })));
        let listeners = tls.iter().flatten().cloned().collect();
        let [http_tls, grpc_tls, admin_tls] = tls;
        let refused = &app.metrics.refused_requests;
        let (stop_http, http) =
            spawn(http, http::service(&app), http_bounds, http_tls, &refused.http);
        let (service, health) = grpc::service(&app, envoy).await;
        let (stop_grpc, grpc) =
            grpc.map(|grpc| spawn(grpc, service, bounds, grpc_tls, &refused.grpc)).unzip();
        let service = accept::routed(admin::router(&app));
        let (stop_admin, mut admin) =
            spawn(admin, service, admin_bounds, admin_tls, &refused.admin);
        tokio::select! {
            () = shutdown => {}
            // None of these ends by itself.
            () = live::follow(&app.live, reload.heard()) => {}
            () = reload::refresh(listeners, &app.tokens, reload.heard()) => {}
            () = app.denials.report_regularly() => {}
        }
        app.stop();
        tracing::info!("stopping, finishing requests in flight");
        stop_http.send_replace(true);
        if let Some(stop_grpc) = stop_grpc {
            // Envoy is told by the end of its connection, others by their health checks.
            health.stop().await;
            stop_grpc.send_replace(true);
        }
        let drained = async {
            let _ = http.await;
            if let Some(grpc) = grpc {
                let _ = grpc.await;
            }
        };
        if timeout(drain_timeout, drained).await.is_err() {
            tracing::warn!(
                drain_timeout_ms = u64::try_from(drain_timeout.as_millis()).unwrap_or(u64::MAX),
                "requests in flight took too long and were given up"
            );
        }
        drop(stop_exporting);
        if let Some(mut exporting) = exporting
            && timeout(FLUSH_TIMEOUT, &mut exporting).await.is_err()
        {
            tracing::warn!("the collector took too long, the last spans are dropped");
            exporting.abort();
        }
        app.denials.report();
        app.live.keep().await;
        // What callers had taken who went away is on its way back to the store.
        let _ = timeout(GIVE_BACK_TIMEOUT, app.limiter.given_back()).await;
        stop_admin.send_replace(true);
        // What is left is at most a scrape that nobody waits for.
        let _ = timeout(ADMIN_DRAIN_TIMEOUT, &mut admin).await;
        tracing::info!("stopped");
    }
}

/// Makes the store and the limiter of `config`, for one who asks without a service in between. The
/// rules are those that a service would have now.
///
/// # Errors
///
/// [`ServeError`] if the store cannot be made as configured, or does not answer, or the rules come
/// from elsewhere and there are none.
pub async fn connect(config: &Config) -> Result<Limiter, ServeError> {
    let backend = Backend::connect(&config.store).await?;
    let limiter = backend.limiter(config)?;
    // What the service keeps for its next start is its own.
    let mut stateless = config.clone();
    stateless.state_dir = None;
    let live = Live::start(&stateless, limiter.clone()).await?;
    live.require_rules()?;
    Ok(limiter)
}

fn tls(
    listener: &'static str,
    files: Option<&ListenerFiles>,
) -> Result<Option<Arc<ListenerTls>>, ServeError> {
    let tls = files.map(|files| ListenerTls::new(listener, files)).transpose();
    Ok(tls.map_err(|problem| ServeError::tls(listener, problem))?.map(Arc::new))
}

fn listen(
    name: &'static str,
    address: SocketAddr,
    reuse_port: bool,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        #[cfg(unix)]
        {
            // The port of a process that has just ended can be taken at once.
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(reuse_port)?;
        }
        socket.bind(address)?;
        let listener = socket.listen(accept::BACKLOG)?;
        let address = listener.local_addr()?;
        io::Result::Ok((listener, address))
    };
    bound().map_err(|source| ServeError::listen(name, address, source))
}

/// Answers on a listener until the sender says `true` or is dropped, then finishes what is in
/// flight.
fn spawn(
    listener: TcpListener,
    service: impl Service,
    bounds: Bounds,
    tls: Option<Arc<ListenerTls>>,
    refused: &Counter,
) -> (watch::Sender<bool>, JoinHandle<()>) {
    let (stop, stopped) = watch::channel(false);
    let task =
        tokio::spawn(accept::serve(listener, service, bounds, tls, refused.clone(), stopped));
    (stop, task)
}
