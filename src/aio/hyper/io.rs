//! Streams as hyper reads and writes them.

use crate::aio::AsyncStream;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use futures_io::{AsyncRead, AsyncWrite};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What is read at once, into memory that is known to be initialized.
const READ_BYTES_MAX: usize = 8 << 10;

/// Any stream of the crate `futures-io` as hyper reads and writes it: one of TLS over an
/// [`AsyncStream`], say, or of the simulation. What is read is copied once more. An `AsyncStream`
/// itself needs no wrapper.
///
/// ```
/// use futures::io::Cursor;
/// use mely::aio::hyper::Io;
/// fn hyper_takes(_: impl hyper::rt::Read + hyper::rt::Write) {}
/// hyper_takes(Io(Cursor::new(vec![0; 8])));
/// ```
#[derive(Debug)]
pub struct Io<T>(pub T);

impl<T: AsyncRead + Unpin> Read for Io<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut space: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES_MAX];
        let len = space.remaining().min(READ_BYTES_MAX);
        let read = ready!(Pin::new(&mut self.0).poll_read(context, &mut bytes[..len]))?;
        space.put_slice(&bytes[..read]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> Write for Io<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(context)
    }
}

impl Read for AsyncStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut space: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let is_space = space.remaining() > 0;
        let take = |bytes: &[u8]| {
            let len = bytes.len().min(space.remaining());
            space.put_slice(&bytes[..len]);
            len
        };
        self.poll_take(context, is_space, take).map_ok(drop)
    }
}

impl Write for AsyncStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shut(context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, bufs)
    }
}
