//! The check API over HTTP, beside an axum handler that parses the same JSON and answers at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tollgate_config::Config;
use tollgate_server::Server;

use crate::keys::Random;
use crate::row::{Error, Row, Run, Target, Unit};

const ROUNDS: usize = 5;

const ROUND: Duration = Duration::from_millis(1_500);

const CONNECTIONS: usize = 64;

const CONFIG: &str = "
listen: { http: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0' }
rules:
  - { name: api, key: [ip], limit: 1000/s, burst: 1000000000 }
";

#[derive(Deserialize)]
struct Asked {
    domain: String,
    attributes: std::collections::HashMap<String, String>,
    cost: u64,
}

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    let runtime = Arc::new(Builder::new_multi_thread().worker_threads(2).enable_all().build()?);
    let config = Config::parse(CONFIG, "bench.yaml")?;
    let (service, handler) = runtime.block_on(async {
        let server = Server::bind(&config).await?;
        let service = server.http_addr().port();
        tokio::spawn(server.run(std::future::pending()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let handler = listener.local_addr()?.port();
        let answer = |Json(asked): Json<Asked>| async move {
            let is_read =
                asked.cost == 1 && asked.domain == "default" && !asked.attributes.is_empty();
            if is_read { "{\"allowed\":true}" } else { "{\"allowed\":false}" }
        };
        let router = Router::new().route("/v1/check", post(answer));
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _ = stream.set_nodelay(true);
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok::<_, Error>((service, handler))
    })?;
    Ok(vec![Row {
        what: format!("POST /v1/check in memory, 100,000 random keys, {CONNECTIONS} connections"),
        unit: Unit::PerSecond,
        rounds: ROUNDS,
        ours: load(&runtime, service),
        other: Some(("axum", load(&runtime, handler))),
        target: Target::Ratio(0.75),
    }])
}

/// Measures requests a second, by connections of which each waits for its answer.
fn load(runtime: &Arc<Runtime>, port: u16) -> Run {
    let runtime = Arc::clone(runtime);
    Box::new(move || {
        runtime.block_on(async {
            let end = Instant::now() + ROUND;
            let tasks: Vec<_> =
                (0..CONNECTIONS).map(|task| tokio::spawn(ask(port, task as u64, end))).collect();
            let mut count = 0;
            for task in tasks {
                count += task.await??;
            }
            Ok(count as f64 / ROUND.as_secs_f64())
        })
    })
}

async fn ask(port: u16, task: u64, end: Instant) -> Result<u64, Error> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    connection.set_nodelay(true)?;
    let (mut random, mut count, mut buffer) = (Random::new(task << 20 | 7), 0, [0; 4_096]);
    while Instant::now() < end {
        let number = random.below(100_000);
        let body = format!(
            "{{\"domain\":\"default\",\"attributes\":{{\"path\":\"/login\",\"method\":\"POST\",\"ip\":\"10.{number:06}\"}},\"cost\":1}}"
        );
        let request = format!(
            "POST /v1/check HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await?;
        let mut filled = 0;
        loop {
            let read = connection.read(&mut buffer[filled..]).await?;
            filled += read;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            if is_whole(&buffer[..filled]) {
                break;
            }
        }
        if !buffer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&buffer[..filled]).into());
        }
        count += 1;
    }
    Ok(count)
}

/// Whether a head and the body that it announces are there.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()) == Some(body.len())
}
