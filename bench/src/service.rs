//! The services that are compared, each run in a process of its own.

use std::collections::HashMap;
use std::io::Write;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tollgate::{Attributes, Limiter, Quota, RedisStore, Rule};
use tollgate_config::Config;
use tollgate_envoy::proto::rate_limit_response::Code;
use tollgate_envoy::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate_envoy::proto::{RateLimitRequest, RateLimitResponse};
use tollgate_server::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::Error;
use crate::client::Transport;

/// The first argument of a program that is to be a service.
pub(crate) const WORD: &str = "service";

/// Where a service listens; 0 if it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The check API.
    pub http: u16,
    /// Envoy's rate limit protocol.
    pub grpc: u16,
}

impl Ports {
    /// Returns the port at which it is asked so.
    pub const fn of(self, transport: Transport) -> u16 {
        match transport {
            Transport::Http => self.http,
            Transport::Grpc { .. } => self.grpc,
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (http, grpc) = line.split_once(' ')?;
        Some(Self { http: http.parse().ok()?, grpc: grpc.parse().ok()? })
    }

    /// Tells the one who started this process.
    fn tell(self) -> Result<(), Error> {
        let mut output = std::io::stdout();
        writeln!(output, "{} {}", self.http, self.grpc)?;
        Ok(output.flush()?)
    }
}

/// Runs a service until this process is ended, if the arguments ask for one: `service tollgate
/// [REDIS]`, which denies nothing, `service limited [REDIS]`, which denies what is more than a few a
/// second, `service tonic`, `service axum`, `service endpoint [REDIS]` or `service round-trip REDIS`.
pub fn run_if_asked() -> Option<Result<(), Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (word, words) = words.split_first()?;
    (word == WORD).then(|| run(&words.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn run(words: &[&str]) -> Result<(), Error> {
    // As many threads as there are processors for it.
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut input, mut nowhere) = (tokio::io::stdin(), tokio::io::sink());
        tokio::select! {
            ended = serve_as(words) => ended,
            // Whoever started this process is gone when its input ends.
            _ = tokio::io::copy(&mut input, &mut nowhere) => Ok(()),
        }
    })
}

async fn serve_as(words: &[&str]) -> Result<(), Error> {
    match *words {
        ["tollgate", ref redis @ ..] => tollgate(redis, "1000000/s", 1_000_000).await,
        ["limited", ref redis @ ..] => tollgate(redis, "2/s", 5).await,
        ["tonic"] => tonic().await,
        ["axum"] => axum().await,
        ["endpoint"] => endpoint(Work::None).await,
        ["endpoint", redis] => endpoint(Work::check(redis).await?).await,
        ["round-trip", redis] => endpoint(Work::round_trip(redis).await?).await,
        _ => Err(format!("there is no service {words:?}").into()),
    }
}

/// Tollgate's service with one rule, in memory or on Redis.
async fn tollgate(redis: &[&str], limit: &str, burst: u32) -> Result<(), Error> {
    let store = match redis {
        [] => "{ kind: memory }".to_owned(),
        [url, ..] => format!("{{ kind: redis, url: '{url}', timeout: 5s }}"),
    };
    let config = format!(
        "
listen: {{ http: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0' }}
store: {store}
rules:
  - {{ name: api, key: [ip], limit: {limit}, burst: {burst} }}
"
    );
    let server = Server::bind(&Config::parse(&config, "bench.yaml")?).await?;
    let grpc = server.grpc_addr().map_or(0, |address| address.port());
    Ports { http: server.http_addr().port(), grpc }.tell()?;
    server.run(std::future::pending()).await;
    Ok(())
}

/// A service that lets every request of Envoy pass without looking at it.
struct AtOnce;

#[tonic::async_trait]
impl RateLimitService for AtOnce {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let response =
            RateLimitResponse { overall_code: Code::Ok as i32, ..RateLimitResponse::default() };
        Ok(Response::new(response))
    }
}

async fn tonic() -> Result<(), Error> {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?.with_nodelay(Some(true));
    Ports { http: 0, grpc: incoming.local_addr()?.port() }.tell()?;
    let router =
        tonic::transport::Server::builder().add_service(RateLimitServiceServer::new(AtOnce));
    Ok(router.serve_with_incoming(incoming).await?)
}

/// What the check API is asked.
#[derive(Deserialize)]
struct Asked {
    domain: String,
    attributes: HashMap<String, String>,
    #[serde(default)]
    cost: u64,
}

impl Asked {
    fn is_read(&self) -> bool {
        self.cost == 1 && self.domain == "default" && !self.attributes.is_empty()
    }
}

async fn axum() -> Result<(), Error> {
    let answer = |Json(asked): Json<Asked>| async move {
        if asked.is_read() { "{\"allowed\":true}" } else { "{\"allowed\":false}" }
    };
    serve(Router::new().route("/v1/check", post(answer))).await
}

/// What an application does for each request.
#[derive(Clone)]
enum Work {
    None,
    /// It checks it.
    Check(Limiter),
    /// It asks Redis for nothing, which is the least that a check on Redis can take.
    RoundTrip(MultiplexedConnection),
}

impl Work {
    async fn check(redis: &str) -> Result<Self, Error> {
        let store = RedisStore::builder(redis).connect().await?;
        let quota = Quota::new("1000000/s".parse()?, 1_000_000)?;
        let rule = Rule::new("api", quota).with_key(["ip"]);
        Ok(Self::Check(Limiter::builder().store(store).rule(rule).build()?))
    }

    async fn round_trip(redis: &str) -> Result<Self, Error> {
        let client = redis::Client::open(redis)?;
        Ok(Self::RoundTrip(client.get_multiplexed_async_connection().await?))
    }

    /// Works for a request, and tells whether it may pass if that could be told.
    async fn run(self, ip: &str) -> Option<bool> {
        match self {
            Self::None => Some(true),
            Self::Check(limiter) => {
                let verdict = limiter.check(&Attributes::from([("ip", ip)])).await.ok()?;
                Some(verdict.is_allowed())
            }
            Self::RoundTrip(mut connection) => {
                redis::cmd("PING").exec_async(&mut connection).await.ok()?;
                Some(true)
            }
        }
    }
}

async fn endpoint(work: Work) -> Result<(), Error> {
    serve(Router::new().route("/v1/check", post(handle)).with_state(work)).await
}

async fn handle(State(work): State<Work>, Json(asked): Json<Asked>) -> StatusCode {
    let ip = asked.attributes.get("ip").map_or("", String::as_str);
    match work.run(ip).await {
        Some(true) => StatusCode::OK,
        Some(false) => StatusCode::TOO_MANY_REQUESTS,
        None => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn serve(router: Router) -> Result<(), Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ports { http: listener.local_addr()?.port(), grpc: 0 }.tell()?;
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}
