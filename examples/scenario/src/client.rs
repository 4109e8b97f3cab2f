//! The little of HTTP/1.1 that the scenario speaks, on connections that are kept.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Failure;

/// Sends requests to one address.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) added_us: Option<u64>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::new(Vec::new()) }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        connection.write_all(request.as_bytes()).await?;
        let reply = read(&mut connection).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(reply)
    }
}

async fn read(connection: &mut BufReader<TcpStream>) -> Result<Reply, Failure> {
    let (mut reply, mut length) = (Reply::default(), 0);
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    let status = line.split(' ').nth(1).ok_or("the connection was closed")?;
    reply.status = status.parse()?;
    loop {
        line.clear();
        connection.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse()?,
            "x-added-us" => reply.added_us = value.parse().ok(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    reply.body = String::from_utf8_lossy(&body).into_owned();
    Ok(reply)
}
