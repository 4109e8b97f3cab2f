//! The check API of a service.

mod answer;

use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::answer::{Answer, stranger};
use super::address::Address;
use super::{Answered, value};
use crate::bench::options::Bench;

/// The longest answer that is read.
const ANSWER_LEN_MAX: usize = 64 * 1024;

/// A service that answers `/v1/check`.
#[derive(Debug)]
pub(in crate::bench) struct Service {
    address: Address,
    /// The body up to the value of the key, and after it.
    body: (String, &'static str),
    /// Connections that nobody has used yet.
    open: Mutex<Vec<TcpStream>>,
}

/// A connection to a service, which is opened anew when it has ended.
#[derive(Debug)]
pub(in crate::bench) struct Connection<'s> {
    service: &'s Service,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Service {
    pub(super) async fn new(rest: &str, args: &Bench) -> Result<Self, String> {
        let address = Address::read("http", rest, Some(80)).await?;
        let mut fixed = String::new();
        for (name, value) in &args.attributes {
            let [name, value] = [name, value].map(|text| serde_json::Value::from(text.as_str()));
            fixed.push_str(&format!("{name}:{value},"));
        }
        let domain = serde_json::Value::from(args.domain());
        let key = serde_json::Value::from(args.attribute.as_str());
        let body = (format!("{{\"domain\":{domain},\"attributes\":{{{fixed}{key}:\""), "\"}}");
        let open = address.open(args.connections, async |address| address.connect().await).await?;
        Ok(Self { address, body, open: Mutex::new(open) })
    }

    pub(super) fn connection(&self) -> Connection<'_> {
        let stream = self.open.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Connection { service: self, stream, buffer: Vec::new() }
    }

    fn request(&self, key: u32) -> String {
        let (before, after) = &self.body;
        let value = value(key);
        let (host, len) = (&self.address.host, before.len() + value.len() + after.len());
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {len}\r\n\r\n{before}{value}{after}"
        )
    }
}

impl Connection<'_> {
    pub(super) async fn ask(&mut self, key: u32) -> Result<Answered, String> {
        let request = self.service.request(key);
        // Taken, so that a connection on which something failed is not used again.
        if let Some(stream) = self.stream.take() {
            let answered = self.exchange(stream, &request).await;
            // A service may close a connection while it is idle, and then has not seen the request.
            if answered.is_ok() || !self.buffer.is_empty() {
                return answered;
            }
        }
        let stream = self.service.address.connect().await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        self.exchange(stream, &request).await
    }

    /// Sends a question and reads the answer. The connection is kept if it can be used again, and
    /// the buffer is empty if no answer had begun.
    async fn exchange(&mut self, mut stream: TcpStream, request: &str) -> Result<Answered, String> {
        let host = &self.service.address.host;
        let broken = |error: std::io::Error| format!("cannot ask: {error}");
        self.buffer.clear();
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        loop {
            if stream.read_buf(&mut self.buffer).await.map_err(broken)? == 0 {
                return Err("cannot ask: the connection was closed before the answer".to_owned());
            }
            match Answer::read(&self.buffer) {
                Err(_) => return Err(stranger(host, "it answers in no HTTP/1.1")),
                Ok(None) if self.buffer.len() > ANSWER_LEN_MAX => {
                    return Err(stranger(host, "the answer is too long"));
                }
                Ok(None) => {}
                Ok(Some(answer)) => {
                    let judged = answer.judged(host);
                    // What follows an answer of a stranger may be a rest of its body.
                    if answer.stays && judged.is_ok() {
                        self.stream = Some(stream);
                    }
                    return judged;
                }
            }
        }
    }
}
