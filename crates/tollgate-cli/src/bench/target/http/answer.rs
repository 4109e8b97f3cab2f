//! What a check API answers.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::bench::target::Answered;

/// An answer that has arrived whole.
#[derive(Debug, PartialEq)]
pub(super) struct Answer<'b> {
    status: u16,
    /// Whether the connection stays open after it.
    pub(super) stays: bool,
    is_chunked: bool,
    is_grpc: bool,
    body: &'b [u8],
}

/// The bytes are no answer of HTTP/1.
#[derive(Debug, PartialEq)]
pub(super) struct NoHttp;

/// As much of a verdict as matters here.
#[derive(Deserialize)]
struct Verdict {
    allowed: bool,
    #[serde(default)]
    rules: Vec<IgnoredAny>,
}

/// As much of a problem document as matters here.
#[derive(Deserialize)]
struct Problem<'b> {
    #[serde(borrow)]
    detail: Cow<'b, str>,
}

impl<'b> Answer<'b> {
    /// Reads an answer, unless there is more to come.
    pub(super) fn read(bytes: &'b [u8]) -> Result<Option<Self>, NoHttp> {
        const START: &[u8] = b"HTTP/1.";
        let begun = bytes.len().min(START.len());
        if bytes[..begun] != START[..begun] {
            return Err(NoHttp);
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| NoHttp)?;
        let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or(NoHttp)?;
        let field = |wanted: &str| {
            head.lines().skip(1).find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let len: usize = field("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let Some(body) = bytes[end + 4..].get(..len) else { return Ok(None) };
        Ok(Some(Self {
            status,
            stays: field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("close")),
            is_chunked: field("transfer-encoding").is_some(),
            is_grpc: field("grpc-status").is_some(),
            body,
        }))
    }

    /// Tells what was decided, or why `host` decided nothing.
    pub(super) fn judged(&self, host: &str) -> Result<Answered, String> {
        let status = self.status;
        if self.is_chunked {
            return Err(format!(
                "status {status} in chunks, as proxies answer, is not read: ask the service itself"
            ));
        }
        if matches!(status, 200 | 429) {
            return match serde_json::from_slice::<Verdict>(self.body) {
                Ok(Verdict { allowed, rules }) if !self.is_grpc => {
                    Ok(Answered { is_allowed: allowed, has_rule: !rules.is_empty() })
                }
                _ => Err(stranger(host, &format!("status {status} without a verdict"))),
            };
        }
        match serde_json::from_slice::<Problem<'_>>(self.body) {
            Ok(Problem { detail }) => Err(format!("status {status}: {detail}")),
            Err(_) if status < 500 => Err(stranger(host, &format!("status {status}"))),
            Err(_) => Err(format!("status {status}")),
        }
    }
}

/// Says that `host` is not what it was taken for.
pub(super) fn stranger(host: &str, why: &str) -> String {
    format!("{host} is no check API of Tollgate: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(answer: &str) -> Result<Answered, String> {
        Answer::read(answer.as_bytes()).unwrap().unwrap().judged("here:80")
    }

    #[test]
    fn an_answer_is_whole_when_its_body_is() {
        let whole = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}";
        let answer = Answer::read(whole).unwrap().unwrap();
        assert_eq!((answer.status, answer.stays, answer.body), (429, true, &b"{}"[..]));
        (0..whole.len()).for_each(|len| assert_eq!(Answer::read(&whole[..len]), Ok(None), "{len}"));
        let closing = Answer::read(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        assert!(!closing.unwrap().unwrap().stays);
    }

    #[test]
    fn what_begins_like_no_http_is_not_waited_for() {
        assert_eq!(Answer::read(b"\0\0\x12\x04"), Err(NoHttp));
        assert_eq!(Answer::read(b"SSH-2.0"), Err(NoHttp));
        assert_eq!(Answer::read(b"HTTP/1.1 OK\r\n\r\n"), Err(NoHttp));
    }

    #[test]
    fn only_a_verdict_allows_or_denies() {
        let verdict = "{\"allowed\":true,\"rules\":[]}";
        assert_eq!(
            judged(&format!("HTTP/1.1 200 OK\r\ncontent-length: 27\r\n\r\n{verdict}")),
            Ok(Answered { is_allowed: true, has_rule: false })
        );
        let stranger = "here:80 is no check API of Tollgate: status 200 without a verdict";
        for answer in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>",
            "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":\"yes\"}",
            "HTTP/1.1 200 OK\r\ngrpc-status: 12\r\ncontent-length: 16\r\n\r\n{\"allowed\":true}",
        ] {
            assert_eq!(judged(answer), Err(stranger.to_owned()), "{answer}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let told = |answer| judged(answer).unwrap_err();
        assert_eq!(
            told("HTTP/1.1 503 Oh\r\ncontent-length: 20\r\n\r\n{\"detail\":\"no room\"}"),
            "status 503: no room"
        );
        assert_eq!(told("HTTP/1.1 502 Oh\r\n\r\n"), "status 502");
        assert_eq!(
            told("HTTP/1.1 404 Oh\r\n\r\n"),
            "here:80 is no check API of Tollgate: status 404"
        );
    }
}
