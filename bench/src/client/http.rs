//! The check API.

use std::io::Write;

use super::Protocol;
use crate::Error;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Http {
    asked: u64,
    is_busy: bool,
}

impl Protocol for Http {
    fn has_room(&self) -> bool {
        !self.is_busy
    }

    fn is_idle(&self) -> bool {
        !self.is_busy
    }

    fn ask(&mut self, key: usize, out: &mut Vec<u8>) -> Result<u64, Error> {
        push_request(out, key)?;
        self.is_busy = true;
        self.asked += 1;
        Ok(self.asked - 1)
    }

    fn hear(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        mut answered: impl FnMut(u64, bool),
    ) -> Result<usize, Error> {
        if !is_whole(input) {
            return Ok(0);
        }
        let is_allowed = match &input[..12] {
            b"HTTP/1.1 200" => true,
            b"HTTP/1.1 429" => false,
            _ => return Err(String::from_utf8_lossy(input).into()),
        };
        self.is_busy = false;
        answered(self.asked - 1, is_allowed);
        Ok(input.len())
    }
}

fn push_request(out: &mut Vec<u8>, key: usize) -> Result<(), Error> {
    let body = format!(
        "{{\"domain\":\"default\",\"attributes\":{{\"path\":\"/login\",\"method\":\"POST\",\"ip\":\"10.{key:06}\"}},\"cost\":1}}"
    );
    Ok(write!(
        out,
        "POST /v1/check HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?)
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
