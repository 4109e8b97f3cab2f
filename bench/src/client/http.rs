//! The check API.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Answers;
use crate::Error;

/// The longest answer.
const ANSWER_LEN_MAX: usize = 4_096;

pub(super) async fn ask(
    mut connection: TcpStream,
    mut keys: impl FnMut() -> usize,
    is_over: &AtomicBool,
) -> Result<Answers, Error> {
    let (mut answers, mut buffer) = (Answers::default(), [0; ANSWER_LEN_MAX]);
    while !is_over.load(Ordering::Relaxed) {
        connection.write_all(request(keys()).as_bytes()).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled]) {
            let read = connection.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Err("the connection was closed".into());
            }
            filled += read;
        }
        match &buffer[..12] {
            b"HTTP/1.1 200" => answers.note(true),
            b"HTTP/1.1 429" => answers.note(false),
            _ => return Err(String::from_utf8_lossy(&buffer[..filled]).into()),
        }
    }
    Ok(answers)
}

fn request(key: usize) -> String {
    let body = format!(
        "{{\"domain\":\"default\",\"attributes\":{{\"path\":\"/login\",\"method\":\"POST\",\"ip\":\"10.{key:06}\"}},\"cost\":1}}"
    );
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Whether a head and the body that it announces are there.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let Ok(head) = std::str::from_utf8(&answer[..end]) else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()) == Some(answer.len() - end - 4)
}
