//! The one response body: nothing, bytes, many pieces of bytes, or a stream that goes on.
//!
//! Long bodies leave in frames of bounded size, because HTTP/2 keeps a frame whole in memory while its peer does not read:
//! one slow client then costs one frame, not one list. Small pieces are joined for the opposite reason.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body::{Frame, SizeHint};

/// Two maximal HTTP/2 data frames: large enough that the work per frame does not show, small enough to lose.
const FRAME_BYTES: usize = 32 << 10;

/// Items of a stream are sent, and flushed, one by one.
pub(crate) type ItemStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

#[derive(Default)]
pub(crate) enum Body {
    #[default]
    Empty,
    Full(Bytes),
    Chunks(VecDeque<Bytes>),
    Stream(ItemStream),
}

impl Body {
    pub(crate) fn stream(items: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::pin(items))
    }

    /// How many bytes are still to come; `None` for a stream.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Empty => Some(0),
            Self::Full(bytes) => Some(bytes.len()),
            Self::Chunks(pieces) => Some(pieces.iter().map(Bytes::len).sum()),
            Self::Stream(_) => None,
        }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        match self {
            Self::Full(bytes) if bytes.len() > FRAME_BYTES => Some(bytes.split_to(FRAME_BYTES)),
            Self::Full(bytes) => {
                let last = std::mem::take(bytes);
                *self = Self::Empty;
                Some(last).filter(|bytes| !bytes.is_empty())
            }
            Self::Chunks(pieces) => {
                let frame = next_frame(pieces);
                if frame.is_none() || pieces.is_empty() {
                    *self = Self::Empty;
                }
                frame
            }
            Self::Empty | Self::Stream(_) => None,
        }
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self::Chunks(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Full(bytes.into())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Full(text.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Body({:?})", self.len())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let piece = match body {
            Self::Stream(items) => ready!(items.as_mut().poll_next(cx)),
            _ => body.next_piece(),
        };
        if piece.is_none() {
            *body = Self::Empty;
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes as u64))
    }
}

/// The next frame out of many pieces: long ones are split without a copy, short ones are joined.
fn next_frame(pieces: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = pieces.front_mut()?;
    if first.len() > FRAME_BYTES {
        return Some(first.split_to(FRAME_BYTES));
    }
    let first = pieces.pop_front()?;
    if pieces.front().is_none_or(|next| first.len() + next.len() > FRAME_BYTES) {
        return Some(first);
    }
    let mut frame = BytesMut::with_capacity(FRAME_BYTES);
    frame.extend_from_slice(&first);
    while let Some(next) = pieces.pop_front_if(|next| frame.len() + next.len() <= FRAME_BYTES) {
        frame.extend_from_slice(&next);
    }
    Some(frame.freeze())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use http_body_util::{BodyExt, BodyStream};

    use super::*;

    async fn frames(body: Body) -> Vec<Bytes> {
        BodyStream::new(body).map(|frame| frame.unwrap().into_data().unwrap()).collect().await
    }

    #[tokio::test]
    async fn a_long_body_leaves_in_bounded_frames() {
        let bytes: Bytes = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let body = Body::Full(bytes.clone());
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(400_000));
        let frames = frames(body).await;
        assert!(frames.iter().all(|frame| frame.len() <= FRAME_BYTES));
        assert_eq!(frames.concat(), bytes);
    }

    #[tokio::test]
    async fn pieces_are_joined_and_split_but_never_changed() {
        let sizes = [1, 0, 10, 40_000, 100_000, 32_768, 1, 32_767, 2, 5];
        let pieces: Vec<Bytes> = sizes.iter().zip(0_u8..).map(|(size, fill)| vec![fill; *size].into()).collect();
        let whole = pieces.concat();
        let frames = frames(pieces.into()).await;
        let sizes: Vec<usize> = frames.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [11, 32_768, 7_232, 32_768, 32_768, 32_768, 1_696, 32_768, 32_768, 7]);
        assert_eq!(frames.concat(), whole);
    }

    #[tokio::test]
    async fn the_end_is_known_with_the_last_frame() {
        for mut body in [Body::Full("x".into()), vec![Bytes::from("x"), Bytes::new()].into()] {
            assert!(!http_body::Body::is_end_stream(&body));
            body.frame().await.unwrap().unwrap();
            assert!(http_body::Body::is_end_stream(&body));
        }
        assert!(http_body::Body::is_end_stream(&Body::from(vec![Bytes::new()])));
    }

    #[tokio::test]
    async fn items_of_a_stream_stay_apart() {
        let items = vec![Bytes::from("one"), Bytes::from("two")];
        let body = Body::stream(futures::stream::iter(items.clone()));
        assert_eq!(http_body::Body::size_hint(&body).exact(), None);
        assert_eq!(frames(body).await, items);
    }
}
