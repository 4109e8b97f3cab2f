//! The service behind the gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Answers `/404` with 404 and any other path with 200, and repeats method, target and the length
/// of the body.
pub(crate) struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer(connection));
            }
        });
        Self { address, requests, accepting }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many requests have come, each on a connection of its own.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(connection: TcpStream) {
    let mut connection = BufStream::new(connection);
    let mut line = String::new();
    connection.read_line(&mut line).await.unwrap();
    let request: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let mut body_len = 0;
    loop {
        let mut line = Vec::new();
        connection.read_until(b'\n', &mut line).await.unwrap();
        let header = String::from_utf8_lossy(&line).trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(len) = header.strip_prefix("content-length: ") {
            body_len = len.parse().unwrap();
        }
    }
    connection.read_exact(&mut vec![0; body_len]).await.unwrap();
    let (method, target) = (&request[0], &request[1]);
    let status: u16 = target[1..].parse().unwrap_or(200);
    let body = format!("{method} {target} {body_len}\n");
    let reply = format!(
        "HTTP/1.1 {status} Some Words\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(reply.as_bytes()).await.unwrap();
    connection.flush().await.unwrap();
}
