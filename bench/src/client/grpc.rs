//! Envoy's rate limit protocol: just enough of HTTP/2 for one method of one service.
//!
//! Headers of requests are indexed after the first one, as those of Envoy are, and headers of answers
//! are not read: an answer is told by its message. The service's windows are not counted, since all that is
//! in flight is smaller than the smallest window.

use super::Protocol;
use crate::Error;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The largest window, which the answers may fill.
const WINDOW: u32 = (1 << 31) - 1;

/// After how many bytes the service is told that there is room again.
const WINDOW_STEP: u32 = 1 << 24;

/// How the message begins that lets a request pass, and that which denies it.
const OK: &[u8] = &[8, 1];
const OVER_LIMIT: &[u8] = &[8, 2];

/// The head of a request once its fields are in the table of the service: `:method: POST`,
/// `:scheme: http`, then `:path`, `:authority`, `content-type` and `te`.
const KNOWN_HEAD: &[u8] = &[0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

/// One connection.
#[derive(Debug)]
pub(super) struct Grpc {
    requests: Requests,
    asked: u64,
    /// How many requests were told whether they may pass, and how many were ended.
    told: u64,
    ended: u64,
    /// The bytes of answers since the service was last told that there is room.
    received: u32,
    streams: usize,
}

impl Grpc {
    /// A connection with so many requests in flight at most.
    pub(super) fn new(streams: usize) -> Self {
        Self { requests: Requests::new(), asked: 0, told: 0, ended: 0, received: 0, streams }
    }
}

impl Protocol for Grpc {
    fn has_room(&self) -> bool {
        self.asked - self.ended < self.streams as u64
    }

    fn is_idle(&self) -> bool {
        self.asked == self.ended
    }

    fn ask(&mut self, key: usize, out: &mut Vec<u8>) -> Result<u64, Error> {
        let number = self.asked;
        if number == 0 {
            begin(out);
        }
        self.requests.push(out, number, key)?;
        self.asked += 1;
        Ok(number)
    }

    fn hear(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        mut answered: impl FnMut(u64, bool),
    ) -> Result<usize, Error> {
        let len = input.len();
        while let Some((frame, rest)) = Frame::split(input) {
            input = rest;
            match frame.kind {
                DATA => {
                    self.received += u32::try_from(frame.payload.len())?;
                    let is_allowed = match frame.payload.get(5..7) {
                        Some(OK) => true,
                        Some(OVER_LIMIT) => false,
                        _ => return Err(format!("an answer is {:?}", frame.payload).into()),
                    };
                    self.told += 1;
                    answered(u64::from(frame.stream / 2), is_allowed);
                }
                HEADERS if frame.flags & END_STREAM != 0 => {
                    self.ended += 1;
                    if self.told < self.ended {
                        return Err("a request was answered by an error".into());
                    }
                }
                SETTINGS if frame.flags & ACK == 0 => push_frame(out, SETTINGS, ACK, 0, &[]),
                PING if frame.flags & ACK == 0 => push_frame(out, PING, ACK, 0, frame.payload),
                RST_STREAM | GOAWAY => {
                    return Err(format!("frame {} says {:?}", frame.kind, frame.payload).into());
                }
                _ => {}
            }
        }
        if self.received > WINDOW_STEP {
            push_frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
            self.received = 0;
        }
        Ok(len - input.len())
    }
}

/// Writes what comes before the first request.
fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    // Of the settings only the window of each stream.
    let mut settings = vec![0, 4];
    settings.extend_from_slice(&WINDOW.to_be_bytes());
    push_frame(out, SETTINGS, 0, 0, &settings);
    push_frame(out, WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes());
}

struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits a whole frame off.
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(9)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (payload, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some((Self { kind: head[3], flags: head[4], stream, payload }, rest))
    }
}

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Writes requests that differ in their stream and in the digits of their key.
#[derive(Debug)]
struct Requests {
    /// A request with a head that is known, its stream and its key being 0.
    known: Vec<u8>,
}

impl Requests {
    fn new() -> Self {
        Self { known: request(KNOWN_HEAD) }
    }

    /// Writes the request with a number.
    fn push(&self, out: &mut Vec<u8>, number: u64, key: usize) -> Result<(), Error> {
        let start = out.len();
        let head_len = if number == 0 {
            let head = new_head();
            out.extend_from_slice(&request(&head));
            head.len()
        } else {
            out.extend_from_slice(&self.known);
            KNOWN_HEAD.len()
        };
        let stream = u32::try_from(2 * number + 1)?.to_be_bytes();
        out[start + 5..start + 9].copy_from_slice(&stream);
        let data = start + 9 + head_len;
        out[data + 5..data + 9].copy_from_slice(&stream);
        let (mut key, end) = (key, out.len());
        for digit in out[end - KEY_DIGITS..].iter_mut().rev() {
            *digit = b'0' + (key % 10) as u8;
            key /= 10;
        }
        Ok(())
    }
}

/// The digits of a key, which end a request.
const KEY_DIGITS: usize = 6;

fn request(head: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    push_frame(&mut request, HEADERS, END_HEADERS, 0, head);
    let entry = [field(1, b"ip"), field(2, b"10.000000")].concat();
    let descriptor = field(1, &entry);
    let message = [field(1, b"default"), field(2, &descriptor)].concat();
    let mut payload = vec![0, 0, 0, 0, message.len() as u8];
    payload.extend_from_slice(&message);
    push_frame(&mut request, DATA, END_STREAM, 0, &payload);
    request
}

/// Writes a field of a message that has fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, bytes.len() as u8];
    field.extend_from_slice(bytes);
    field
}

/// Returns the head of the first request, whose fields the service is to remember.
fn new_head() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    let mut push = |name: &[u8], value: &[u8]| {
        head.extend_from_slice(name);
        head.push(value.len() as u8);
        head.extend_from_slice(value);
    };
    push(&[0x40 | 4], b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    push(&[0x40 | 1], b"bench");
    push(&[0x40 | 31], b"application/grpc");
    push(b"\x40\x02te", b"trailers");
    head
}
