//! How the body of a request is received.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::Version;
use axum::BoxError;
use axum::body::{Bytes, HttpBody};
use tokio::time::timeout;

use crate::arriving::{Arriving, Share};

/// Why a body was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    TooLarge,
    TooSlow,
    /// Too much of too many requests is on its way.
    NoRoom,
    BrokenOff,
}

/// Receives a body of at most `len_max` bytes within `limit`. One that does not come with its head has to
/// find room among those that are `arriving`, with `held_len` bytes that are held meanwhile.
pub(crate) async fn receive(
    body: &mut (impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin),
    len_max: usize,
    limit: Duration,
    version: Version,
    arriving: &Arc<Arriving>,
    held_len: impl FnOnce() -> usize,
) -> Result<Bytes, Lost> {
    // A length that is announced is refused before anything is read.
    if body.size_hint().lower() > len_max as u64 {
        return Err(Lost::TooLarge);
    }
    let mut collected = Collected::default();
    if let Some(early) = early(|cx| collected.poll(cx, body, len_max, None)).await {
        early?;
        return Ok(collected.into_bytes());
    }
    let held_len = held_len() + collected.len();
    let mut share = arriving.begin(version, held_len).ok_or(Lost::NoRoom)?;
    let rest = poll_fn(|cx| collected.poll(cx, body, len_max, Some(&mut share)));
    // Boxed, since it is rare and would make the future of every request larger.
    match Box::pin(timeout(limit, rest)).await {
        Ok(Ok(())) => Ok(collected.into_bytes()),
        Ok(Err(lost)) => Err(lost),
        Err(_) => Err(Lost::TooSlow),
    }
}

/// What has come of a body. As a rule there is one piece, which is taken as it is.
#[derive(Default)]
struct Collected {
    first: Bytes,
    all: Vec<u8>,
}

impl Collected {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.into() }
    }

    /// Takes in what comes, until the end. What has come stays.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut (impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin),
        len_max: usize,
        mut share: Option<&mut Share>,
    ) -> Poll<Result<(), Lost>> {
        while !body.is_end_stream()
            && let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx))
        {
            let frame = frame.map_err(|_| Lost::BrokenOff)?;
            let Ok(piece) = frame.into_data() else { continue };
            if self.len() + piece.len() > len_max {
                return Poll::Ready(Err(Lost::TooLarge));
            }
            if let Some(share) = &mut share
                && !share.grow(piece.len())
            {
                return Poll::Ready(Err(Lost::NoRoom));
            }
            if self.first.is_empty() {
                self.first = piece;
                continue;
            }
            if self.all.is_empty() {
                self.all.extend_from_slice(&self.first);
            }
            self.all.extend_from_slice(&piece);
        }
        Poll::Ready(Ok(()))
    }
}

/// Waits until what is polled is done or has been polled for a second time, before which its connection has
/// been read. A timer takes a lock when it is set and when it is not needed any more, so none is set before.
fn early<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> impl Future<Output = Option<T>> {
    let mut is_first = true;
    poll_fn(move |cx| match poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if is_first => {
            is_first = false;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Poll::Pending => Poll::Ready(None),
    })
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

    async fn taken(mut body: Body) -> Result<Bytes, Lost> {
        receive(&mut body, 4, LIMIT, Version::HTTP_2, &Arc::default(), || 0).await
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
            assert_eq!(taken(body).await, received.map(Bytes::from));
        }
        let broken = stream::iter([Ok("ab"), Err(std::io::Error::other("gone"))]);
        assert_eq!(taken(Body::from_stream(broken)).await, Err(Lost::BrokenOff));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_given_up() {
        let begun = stream::iter([std::io::Result::Ok("{")]);
        let body = Body::from_stream(begun.chain(stream::pending()));
        let start = tokio::time::Instant::now();
        assert_eq!(taken(body).await, Err(Lost::TooSlow));
        assert_eq!(start.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_with_its_head_needs_room() {
        let begun = || stream::iter([std::io::Result::Ok("{")]).chain(stream::pending());
        let full = Arc::new(Arriving::new(0));
        let mut body = Body::from_stream(begun());
        assert_eq!(
            receive(&mut body, 4, LIMIT, Version::HTTP_2, &full, || 0).await,
            Err(Lost::NoRoom)
        );
        assert_eq!(
            receive(&mut pieces(&["{", "}"]), 4, LIMIT, Version::HTTP_2, &full, || 0).await,
            Ok("{}".into())
        );

        // The room for one request and ten bytes: seven of headers, and then three of a body.
        let some = Arc::new(Arriving::new((12 << 10) + 10));
        let dripping = stream::iter(["a", "b", "c", "d"]).then(|piece| async move {
            tokio::time::sleep(LIMIT / 10).await;
            std::io::Result::Ok(piece)
        });
        let mut body = Body::from_stream(Box::pin(dripping));
        assert_eq!(
            receive(&mut body, 4, LIMIT, Version::HTTP_2, &some, || 7).await,
            Err(Lost::NoRoom)
        );
        let mut body = Body::from_stream(begun());
        assert_eq!(
            receive(&mut body, 4, LIMIT, Version::HTTP_2, &some, || 9).await,
            Err(Lost::TooSlow)
        );
    }
}
