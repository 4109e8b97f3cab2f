//! The bodies of the HTTP API, as a service of its own reads and answers them.

use std::cell::RefCell;
use std::future::pending;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tollgate_config::Config;
use tollgate_server::Server;

/// No rule makes anybody wait for longer than a millisecond, and no more keys are kept than matter.
const CONFIG: &str = "
listen: { http: 127.0.0.1:0, grpc: off, admin: 127.0.0.1:0 }
store: { kind: memory, keys_max: 1000 }
rules:
  - { name: everyone, limit: 1000000000/s, burst: 1000 }
  - { name: per-ip, key: ip, limit: 1000000/ms, burst: 20, cost: { attribute: bytes } }
  - { name: window, key: account, limit: 10/ms, algorithm: sliding_window, shadow: true }
  - { name: paced, match: { path: /sms/* }, limit: 1000000/s, algorithm: leaky_bucket, burst: 9 }
  - { name: slots, match: { path: /export }, key: id, limit: 3, algorithm: concurrency, lease: 1ms }
";

const PATHS: [&str; 10] = [
    "/v1/check",
    "/v1/peek",
    "/v1/acquire",
    "/v1/renew",
    "/v1/release",
    "/v1/reserve",
    "/v1/commit",
    "/v1/cancel",
    "/v1/refund",
    "/v1/reset",
];

/// What a caller may be answered. Nothing that a caller sends is the service's fault.
const STATUSES: [u16; 7] = [200, 400, 404, 409, 413, 422, 429];

/// Longer than any answer takes that is not waited for in vain.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

thread_local! {
    static CONNECTION: RefCell<Option<BufReader<TcpStream>>> = const { RefCell::new(None) };
}

/// Checks that a body, sent to the path in its first line, is answered in JSON that tells the status,
/// and that the service answers on.
pub fn check(data: &[u8]) {
    let (path, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (PATHS.iter().find(|path| path.as_bytes() == &data[..end]), &data[end + 1..]),
        None => (None, data),
    };
    let (path, body) = path.map_or((PATHS[0], data), |path| (*path, body));
    let (status, answer) = CONNECTION.with_borrow_mut(|connection| {
        // The service closes a connection after a body that it did not read.
        let answered = connection.as_mut().and_then(|open| post(open, path, body).ok());
        answered.unwrap_or_else(|| {
            let open = connection.insert(connect());
            post(open, path, body).unwrap_or_else(|error| panic!("{path} {body:?}: {error}"))
        })
    });
    let told = || format!("{path} {}: {status} {answer:?}", String::from_utf8_lossy(body));
    assert!(STATUSES.contains(&status), "{}", told());
    let Ok(Value::Object(fields)) = serde_json::from_str(&answer) else { panic!("{}", told()) };
    if !matches!(status, 200 | 429) {
        assert_eq!(fields.get("status"), Some(&Value::from(status)), "{}", told());
        assert!(fields.contains_key("detail"), "{}", told());
        assert!(answer.len() < 4_096, "{}", told());
    }
}

fn connect() -> BufReader<TcpStream> {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    let stream = TcpStream::connect(ADDRESS.get_or_init(start)).and_then(|stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(stream)
    });
    BufReader::new(stream.unwrap_or_else(|error| panic!("the service is gone: {error}")))
}

/// Starts the service in a thread of its own, which lives as long as the process.
fn start() -> SocketAddr {
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        let config = Config::parse(CONFIG, "fuzz.yaml").unwrap_or_else(|error| panic!("{error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        runtime.block_on(async {
            let server = Server::bind(&config).await;
            let server = server.unwrap_or_else(|error| panic!("no service: {error}"));
            let _ = sender.send(server.http_addr());
            server.run(pending()).await;
        });
    });
    address.recv().unwrap_or_else(|error| panic!("the service did not start: {error}"))
}

/// Sends a request and returns the status and the body of the answer.
fn post(
    connection: &mut BufReader<TcpStream>,
    path: &str,
    body: &[u8],
) -> io::Result<(u16, String)> {
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: fuzz\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    connection.get_mut().write_all(&request)?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status line: {line:?}")))?;
    let mut length = 0;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer)?;
    String::from_utf8(answer).map(|answer| (status, answer)).map_err(io::Error::other)
}
