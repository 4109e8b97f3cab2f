//! One command and its reply in the Redis protocol (RESP2), over a blocking connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest bulk string and the largest array that are read.
const LENGTH_MAX: usize = 64 * 1024 * 1024;

/// How deep arrays may be nested.
const DEPTH_MAX: u32 = 8;

/// What Redis answers, if it is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Nothing: the key or the member is absent.
    Nil,
    /// An integer.
    Integer(i64),
    /// A status or a string. Bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// A list.
    Array(Vec<Self>),
}

impl Reply {
    /// Returns the text, if the reply is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if the reply is one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns the items, if the reply is a list.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// Connects, with a password if one is given, sends one command and reads its reply. Each step may
/// take `timeout`.
pub(super) fn call(
    address: SocketAddr,
    password: Option<&str>,
    words: &[&str],
    timeout: Duration,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut ask = |words: &[&str]| {
        stream.write_all(&encode(words)).and_then(|()| read(&mut replies, DEPTH_MAX))
    };
    password
        .map_or(Ok(Reply::Nil), |password| ask(&["AUTH", password]))
        .and_then(|_| ask(words))
        .map_err(|error| match error.kind() {
            // What an elapsed socket timeout is called depends on the system.
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("redis at {address} gave no answer within {timeout:?}"),
            ),
            _ => error,
        })
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn read(stream: &mut impl BufRead, depth: u32) -> io::Result<Reply> {
    let line = read_line(stream)?;
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(malformed(&line));
    };
    match kind {
        "+" => Ok(Reply::Text(rest.to_owned())),
        "-" => Err(io::Error::other(format!("redis answered: {rest}"))),
        ":" => Ok(Reply::Integer(number(&line)?)),
        "$" => {
            let Some(length) = length(&line)? else {
                return Ok(Reply::Nil);
            };
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" if depth > 0 => {
            let Some(length) = length(&line)? else {
                return Ok(Reply::Nil);
            };
            (0..length)
                .map(|_| read(stream, depth - 1))
                .collect::<io::Result<_>>()
                .map(Reply::Array)
        }
        _ => Err(malformed(&line)),
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.take(64 * 1024).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "redis closed the connection before it answered",
        ));
    }
    let text = String::from_utf8_lossy(&line);
    text.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| malformed(&text))
}

fn number(line: &str) -> io::Result<i64> {
    line[1..].parse().map_err(|_| malformed(line))
}

/// The length of a string or a list, `None` for the nil of either.
fn length(line: &str) -> io::Result<Option<usize>> {
    match number(line)? {
        -1 => Ok(None),
        length => usize::try_from(length)
            .ok()
            .filter(|length| *length <= LENGTH_MAX)
            .map(Some)
            .ok_or_else(|| malformed(line)),
    }
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("redis answered what is not RESP2: {line:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &str) -> io::Result<Reply> {
        read(&mut bytes.as_bytes(), DEPTH_MAX)
    }

    #[test]
    fn words_become_an_array_of_bulk_strings() {
        assert_eq!(
            encode(&["SET", "k", "é"]),
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\né\r\n".as_bytes()
        );
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(parse("+OK\r\n").unwrap(), Reply::Text("OK".to_owned()));
        assert_eq!(parse(":-7\r\n").unwrap(), Reply::Integer(-7));
        assert_eq!(parse("$-1\r\n").unwrap(), Reply::Nil);
        assert_eq!(
            parse("*2\r\n$4\r\na\r\nb\r\n*1\r\n:1\r\n").unwrap(),
            Reply::Array(vec![
                Reply::Text("a\r\nb".to_owned()),
                Reply::Array(vec![Reply::Integer(1)])
            ])
        );
    }

    #[test]
    fn errors_and_broken_replies_are_errors() {
        assert_eq!(
            parse("-WRONGTYPE no hash\r\n").unwrap_err().to_string(),
            "redis answered: WRONGTYPE no hash"
        );
        assert_eq!(parse("").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for broken in ["\r\n", "+OK", ":x\r\n", "$-2\r\n", "?\r\n", "$99999999999\r\n"] {
            let error = parse(broken).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{broken:?}");
        }
        let nested = "*1\r\n".repeat(DEPTH_MAX as usize + 1);
        assert_eq!(parse(&nested).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
