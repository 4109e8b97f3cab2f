//! How the body of a request is received.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use http_body_util::BodyExt;
use tokio::time::timeout;

/// Why a body was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    TooLarge,
    TooSlow,
    BrokenOff,
}

/// Receives a body of at most `len_max` bytes within `limit`.
pub(crate) async fn receive(
    body: impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
    len_max: usize,
    limit: Duration,
) -> Result<Bytes, Lost> {
    // A length that is announced is refused before anything is read.
    if body.size_hint().lower() > len_max as u64 {
        return Err(Lost::TooLarge);
    }
    in_time(collect(body, len_max), limit).await.unwrap_or(Err(Lost::TooSlow))
}

async fn collect(
    mut body: impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
    len_max: usize,
) -> Result<Bytes, Lost> {
    // As a rule there is one piece, which is taken as it is.
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|_| Lost::BrokenOff)?;
        let Ok(piece) = frame.into_data() else { continue };
        if first.len().max(all.len()) + piece.len() > len_max {
            return Err(Lost::TooLarge);
        }
        if first.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

/// Waits for a future for at most so long.
///
/// A timer takes a lock when it is set and when it is not needed any more. So it is set only if the
/// future is not done when it is polled for a second time, before which its connection has been read.
async fn in_time<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut is_first = true;
    let early = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_first => {
            is_first = false;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(None),
    });
    match early.await {
        Some(output) => Some(output),
        None => timeout(limit, future).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::StreamExt;
    use futures_util::stream;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn pieces(pieces: &[&'static str]) -> Body {
        let pieces: Vec<_> = pieces.iter().map(|piece| std::io::Result::Ok(*piece)).collect();
        Body::from_stream(stream::iter(pieces))
    }

    #[tokio::test]
    async fn a_body_may_come_in_pieces_and_be_as_long_as_is_said() {
        for (body, received) in [
            (Body::empty(), Ok("")),
            (Body::from("abcd"), Ok("abcd")),
            (Body::from("abcde"), Err(Lost::TooLarge)),
            (pieces(&["", "ab", "c", "d"]), Ok("abcd")),
            (pieces(&["abcd", ""]), Ok("abcd")),
            (pieces(&["ab", "cde"]), Err(Lost::TooLarge)),
            (pieces(&["ab", "c", "de"]), Err(Lost::TooLarge)),
            (pieces(&["abcde"]), Err(Lost::TooLarge)),
        ] {
            assert_eq!(receive(body, 4, LIMIT).await, received.map(Bytes::from));
        }
        let broken = stream::iter([Ok("ab"), Err(std::io::Error::other("gone"))]);
        assert_eq!(receive(Body::from_stream(broken), 4, LIMIT).await, Err(Lost::BrokenOff));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_given_up() {
        let begun = stream::iter([std::io::Result::Ok("{")]);
        let body = Body::from_stream(begun.chain(stream::pending()));
        let start = tokio::time::Instant::now();
        assert_eq!(receive(body, 4, LIMIT).await, Err(Lost::TooSlow));
        assert_eq!(start.elapsed(), LIMIT);
    }
}
