//! The check API of a service.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};

use super::value;
use crate::bench::options::Bench;

/// The longest answer that is read.
const ANSWER_LEN_MAX: usize = 64 * 1024;

/// A service that answers `/v1/check`.
#[derive(Debug)]
pub(in crate::bench) struct Service {
    address: SocketAddr,
    host: String,
    /// The body up to the value of the key, and after it.
    body: (String, &'static str),
}

/// A connection to a service, which is opened when it is needed.
#[derive(Debug)]
pub(in crate::bench) struct Connection<'s> {
    service: &'s Service,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Service {
    pub(super) async fn new(rest: &str, args: &Bench) -> Result<Self, String> {
        let host = rest.split('/').next().unwrap_or_default().to_owned();
        let host = if host.contains(':') { host } else { format!("{host}:80") };
        let unreachable = |error| format!("cannot reach {host}: {error}");
        let address = lookup_host(&host).await.map_err(unreachable)?.next();
        let address = address.ok_or_else(|| format!("{host} has no address"))?;
        let mut fixed = String::new();
        for (name, value) in &args.attributes {
            let [name, value] = [name, value].map(|text| serde_json::Value::from(text.as_str()));
            fixed.push_str(&format!("{name}:{value},"));
        }
        let domain = serde_json::Value::from(args.domain.as_str());
        let key = serde_json::Value::from(args.attribute.as_str());
        let body = (format!("{{\"domain\":{domain},\"attributes\":{{{fixed}{key}:\""), "\"}}");
        let service = Self { address, host, body };
        let probe = TcpStream::connect(service.address).await;
        probe.map_err(|error| format!("cannot reach {}: {error}", service.host))?;
        Ok(service)
    }

    pub(super) fn connection(&self) -> Connection<'_> {
        Connection { service: self, stream: None, buffer: Vec::new() }
    }
}

impl Connection<'_> {
    pub(super) async fn ask(&mut self, key: u32) -> Result<bool, String> {
        // Taken, so that a connection on which something failed is not used again.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.open().await.map_err(|error| format!("cannot connect: {error}"))?,
        };
        let (status, stays) = self
            .exchange(&mut stream, key)
            .await
            .map_err(|error| format!("cannot ask: {error}"))?;
        if stays {
            self.stream = Some(stream);
        }
        match status {
            200 => Ok(true),
            429 => Ok(false),
            _ => Err(format!("status {status}")),
        }
    }

    async fn open(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.service.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sends a question, and returns the answer's status and whether the connection stays open.
    async fn exchange(&mut self, stream: &mut TcpStream, key: u32) -> std::io::Result<(u16, bool)> {
        let Service { host, body: (before, after), .. } = self.service;
        let body = format!("{before}{}{after}", value(key));
        let len = body.len();
        let request = format!(
            "POST /v1/check HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {len}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = answer(&self.buffer) {
                return Ok(answer);
            }
            if self.buffer.len() > ANSWER_LEN_MAX {
                return Err(std::io::Error::other("the answer is too long"));
            }
        }
    }
}

/// Reads the status of a whole answer, and whether the connection stays open after it.
fn answer(bytes: &[u8]) -> Option<(u16, bool)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.get(9..12)?.parse().ok()?;
    let field = |wanted: &str| {
        head.lines().skip(1).find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let len: usize = field("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let stays = field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close"));
    (bytes.len() >= end + 4 + len).then_some((status, stays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let whole = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(answer(whole), Some((429, true)));
        (0..whole.len()).for_each(|len| assert_eq!(answer(&whole[..len]), None, "{len}"));
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"), Some((200, false)));
    }
}
