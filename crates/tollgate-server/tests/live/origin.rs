//! A tiny HTTP server that gives rules.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the server answers.
#[derive(Clone, Debug)]
pub(crate) enum Answers {
    /// With this text, or 304 to those who have it.
    Text(String),
    /// As `Text`, but those who have it wait for another if they ask for that.
    Waiting(String),
    /// With this status.
    Status(u16),
    /// With what is no HTTP.
    Garbage,
    /// With a text that never ends.
    Endless,
}

/// The server. It stops when it is dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    answers: watch::Sender<Answers>,
    seen: Arc<Mutex<Vec<(String, u16)>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Origin {
    pub(crate) async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Self::on(listener, answers)
    }

    pub(crate) fn on(listener: TcpListener, answers: Answers) -> Self {
        let address = listener.local_addr().unwrap();
        let (answers, given) = watch::channel(answers);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let running = tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(connection, given.clone(), Arc::clone(&noted)));
            }
        });
        Self { address, answers, seen, running }
    }

    pub(crate) fn answer(&self, answers: Answers) {
        self.answers.send_replace(answers);
    }

    /// Returns the heads of the requests so far, each with the status of its answer.
    pub(crate) fn seen(&self) -> Vec<(String, u16)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn answer(
    mut connection: TcpStream,
    mut given: watch::Receiver<Answers>,
    seen: Arc<Mutex<Vec<(String, u16)>>>,
) {
    let mut head = String::new();
    let mut buffer = [0; 4096];
    while !head.ends_with("\r\n\r\n") {
        let Ok(length @ 1..) = connection.read(&mut buffer).await else { return };
        head.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    let head = head.to_ascii_lowercase();
    let mut waits = "";
    let has = |text: &str| head.contains(&format!("if-none-match: \"{}\"", etag(text)));
    let answers = given.borrow_and_update().clone();
    let answers = match answers {
        Answers::Waiting(text) if head.contains("prefer: wait=30") => {
            waits = "preference-applied: wait=30\r\n";
            if has(&text) && given.changed().await.is_err() {
                return;
            }
            given.borrow().clone()
        }
        answers => answers,
    };
    let (status, reply) = match answers {
        Answers::Text(text) | Answers::Waiting(text) if has(&text) => {
            (304, format!("HTTP/1.1 304 Not Modified\r\n{waits}\r\n"))
        }
        Answers::Text(text) | Answers::Waiting(text) => (
            200,
            format!(
                "HTTP/1.1 200 OK\r\netag: \"{}\"\r\n{waits}content-length: {}\r\n\r\n{text}",
                etag(&text),
                text.len()
            ),
        ),
        Answers::Status(status) => {
            (status, format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nno"))
        }
        Answers::Garbage => (0, "\u{1}\u{2}garbage\r\n\r\n".to_owned()),
        Answers::Endless => (200, "HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"# x\n".repeat(1 << 19)),
    };
    seen.lock().unwrap().push((head, status));
    // A client that has gone away needs no answer.
    let _ = connection.write_all(reply.as_bytes()).await;
}

fn etag(text: &str) -> String {
    text.len().to_string() + &text.chars().filter(char::is_ascii_digit).collect::<String>()
}
