//! The body of an answer, whole or broken.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

static SPACES: [u8; 65_536] = [b' '; 65_536];

pub enum Payload {
    /// All of it at once; None once it is sent.
    Whole(Option<Bytes>),
    /// These bytes of `length`, then the connection breaks.
    Broken { bytes: Option<Bytes>, length: u64, is_flushed: bool },
    /// This many blocks of 64 KiB of spaces, then these bytes; the length is not announced.
    Padded { blocks: usize, end: Option<Bytes> },
}

impl Payload {
    pub fn whole(bytes: impl Into<Bytes>) -> Payload {
        Payload::Whole(Some(bytes.into()))
    }

    /// The first half of `bytes`, announced as all of them.
    pub fn broken(bytes: &Bytes) -> Payload {
        let half = bytes.slice(..bytes.len() / 2);
        Payload::Broken { bytes: Some(half), length: bytes.len() as u64, is_flushed: false }
    }

    /// 100 MiB of spaces, then `bytes`.
    pub fn huge(bytes: Bytes) -> Payload {
        Payload::Padded { blocks: 100 * 1024 * 1024 / SPACES.len(), end: Some(bytes) }
    }
}

fn frame(bytes: Bytes) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    Poll::Ready(Some(Ok(Frame::data(bytes))))
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Payload::Whole(bytes) => bytes.take().map_or(Poll::Ready(None), frame),
            Payload::Broken { bytes, is_flushed, .. } => {
                if let Some(bytes) = bytes.take() {
                    return frame(bytes);
                }
                if !*is_flushed {
                    // hyper sends what it has when it must wait; an error now would discard it.
                    *is_flushed = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(io::Error::other("broken off, as told"))))
            }
            Payload::Padded { blocks: 0, end } => end.take().map_or(Poll::Ready(None), frame),
            Payload::Padded { blocks, .. } => {
                *blocks -= 1;
                frame(Bytes::from_static(&SPACES))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Whole(bytes) => bytes.is_none(),
            Payload::Broken { .. } => false,
            Payload::Padded { blocks, end } => *blocks == 0 && end.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Payload::Broken { length, .. } => SizeHint::with_exact(*length),
            Payload::Padded { .. } => SizeHint::default(),
        }
    }
}
