//! The stream itself: polls that go to the connection and to its [`StreamState`].

use super::state::StreamState;
use crate::host::quiesce::Until;
use crate::in_color::InColor;
use crate::net::{RecvBuf, Stream, too_long};
use crate::rejected::Reason;
use crate::sync::Arc;
use crate::task::ambient::try_with_cx;
use crate::{Cx, Handler};
use futures_io::{AsyncRead, AsyncWrite};
use rustix::io::Errno;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Most bytes that a stream has accepted to send and the kernel has not taken yet.
pub const QUEUED_BYTES_MAX: usize = 64 << 10;

static RECEIVED: Handler = Handler::new("mely: received for a task");
static SENT: Handler = Handler::new("mely: sent for a task");

/// A connection that tasks of its color read and write; see [`mely::aio`](crate::aio).
///
/// **Reading** returns what has arrived, in order, then the end of the stream as zero bytes, or the
/// error that ended it: `ECONNRESET` if the peer reset the connection, `ECANCELED` if the runtime
/// was asked to stop (see [`stopping`](Self::stopping) for streams that are to go on). What had
/// arrived before is read before. The end is told again to whoever reads again. A task that waited
/// for a flush is told that it is ready before it is told the end, even if it reads first: a peer
/// that ends once it has all is not taken for one that went too early. A read into no space and a
/// write of no bytes are ready at once, with zero, in every state of the stream.
///
/// **Writing** copies bytes and gives them to the kernel at once, as far as it takes them. What it
/// does not take is queued, at most [`QUEUED_BYTES_MAX`]; then a write waits until all of it has
/// left. A flush waits for the same. An error of sending is told by the next write, flush or close,
/// and by all later ones. Closing flushes and sends the end of the stream; reading goes on. A stop
/// does not cut off what is queued: the run waits for it, up to its drain deadline.
///
/// **Where.** All polls are made by tasks of the connection's color. Elsewhere they return an
/// error, and wait for nothing: in another color one whose source is [`Reason`](crate::Reason),
/// outside of tasks [`Reason::NoContext`](crate::Reason::NoContext). One task may read while
/// another writes, both of this color; of two that read, the one that polled last is woken.
///
/// A task that makes its own color wait ([`Hold::until`](crate::Hold::until)) must not wait for a
/// stream of that color: what arrives is an ordinary event, and waits for the task.
///
/// Dropped, wherever that is, the connection is closed in its color, after what is queued was sent.
#[must_use = "dropping it closes the connection"]
pub struct AsyncStream {
    stream: Stream,
    state: Arc<InColor<StreamState>>,
}

impl AsyncStream {
    /// Makes the stream of a connection, in the connection's color. It receives from now on,
    /// instead of the connection's callbacks, which are dropped. From one whose session was told
    /// the end, reads return the error `NotConnected`, or `ECANCELED` if the runtime is stopping.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, with which the connection is
    /// dropped and closed.
    pub fn new(cx: &mut Cx, stream: Stream) -> Result<AsyncStream, Reason> {
        let state = match stream.has_ended(cx)? {
            // Each connection is told of a stop, also one that does not receive yet.
            true if cx.stopping() => StreamState::ended(Errno::CANCELED.into()),
            true => StreamState::ended(io::ErrorKind::NotConnected.into()),
            false => StreamState::default(),
        };
        let state = Arc::new(InColor::new(cx.poster(), stream.color(), state));
        // Of what is written here no more is ever queued: so it is not refused there.
        stream.set_write_limit(cx, QUEUED_BYTES_MAX)?;
        let its = Gone(Arc::clone(&state), Some(StreamState::no_more_sent));
        let on_drained = move |cx: &mut Cx, _: &Stream, result: io::Result<()>| {
            let drained = its.0.borrow(cx).map(|mut state| state.drained(result));
            wake(drained.ok().flatten());
        };
        stream.on_drained(cx, &SENT, on_drained)?;
        let mut its = Gone(Arc::clone(&state), Some(StreamState::no_more_received));
        let on_data = move |cx: &mut Cx, stream: &Stream, data: io::Result<RecvBuf>| {
            if data.as_ref().map_or(true, |data| data.is_end()) {
                // The last call, which tells it.
                its.1 = None;
            }
            // Callbacks are events of its color.
            let received = its.0.borrow(cx).map(|mut state| state.receive(data));
            let (reader, pause) = received.unwrap_or_default();
            if pause {
                let _ = stream.pause(cx);
            }
            wake(reader);
        };
        stream.is_for_a_task(cx);
        stream.on_data(cx, &RECEIVED, on_data)?;
        Ok(AsyncStream { stream, state })
    }

    /// The connection below: for its color and addresses, its limits and its end. What it writes
    /// itself is sent in order with what is written here; it must not be paused or resumed. If it
    /// is closed by that, reads and writes fail with `NotConnected`.
    pub fn get_ref(&self) -> &Stream {
        &self.stream
    }

    /// Returns a future that is ready when a server should finish this connection: once the runtime
    /// was asked to stop, and a read waits though all bytes are read that had arrived by then. A
    /// protocol that keeps whole messages back has begun each of them by then, and takes no more:
    /// hyper's `graceful_shutdown` is to be called.
    ///
    /// From now on the stream is under way ([`Stream::set_under_way`]): after a stop its reads go
    /// on, until the stage [close](crate::runtime::Stage::Close). The future is for tasks of the
    /// stream's color; in another one it is ready at once. It does not keep the connection.
    ///
    /// ```
    /// use futures::future::{Either, select};
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use mely::aio::AsyncStream;
    /// use mely::task::with_cx;
    /// use std::{io, pin::pin};
    ///
    /// /// Answers each pair of bytes, also one whose second byte comes after a stop.
    /// async fn serve(mut stream: AsyncStream) -> io::Result<()> {
    ///     let mut stop = with_cx(|cx| stream.stopping(cx))?;
    ///     loop {
    ///         let mut pair = [0; 2];
    ///         match select(pin!(stream.read(&mut pair[..1])), &mut stop).await {
    ///             Either::Left((Ok(1), _)) => {}
    ///             _ => return stream.close().await,
    ///         }
    ///         stream.read_exact(&mut pair[1..]).await?;
    ///         stream.write_all(&pair).await?;
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn stopping(
        &self,
        cx: &mut Cx,
    ) -> Result<impl Future<Output = ()> + Send + Unpin + use<>, Reason> {
        let its = Arc::clone(&self.state);
        let arrived = move |cx: &mut Cx| {
            let waker = its.borrow(cx).map(|mut state| state.arrived());
            wake(waker.ok().flatten());
        };
        self.stream.on_arrived(cx, arrived)?;
        let state = Arc::downgrade(&self.state);
        Ok(poll_fn(move |context| {
            let Some(state) = state.upgrade() else {
                return Poll::Ready(());
            };
            let polled = try_with_cx(|cx| {
                let waits = state
                    .borrow(cx)
                    .map(|mut state| state.wait_to_stop(context.waker()));
                // A waker that is replaced is dropped here, with nothing borrowed.
                waits.map_or(Poll::Ready(()), |(polled, _replaced)| polled)
            });
            polled.unwrap_or(Poll::Ready(()))
        }))
    }

    /// Reads up to the end of a line, which is a line feed, or a carriage return and a line feed,
    /// and appends the line without its end to `line`. Returns `false` at the end of the stream;
    /// then `line` may have the beginning of a line that has no end.
    ///
    /// Canceled, it loses nothing: what it has read is in `line`, and another call with that goes
    /// on. Clear `line` between two lines. For exactly n bytes, or up to a limit, see `read_exact`
    /// and `take` of `futures::io::AsyncReadExt`, which may be called in between.
    ///
    /// ```
    /// use futures::io::{AsyncReadExt, AsyncWriteExt};
    /// use mely::aio::AsyncStream;
    /// use std::io;
    ///
    /// /// Answers each line with the bytes that come behind it: "4\n", and four bytes.
    /// async fn serve(mut stream: AsyncStream) -> io::Result<()> {
    ///     let mut line = Vec::new();
    ///     while stream.read_line(&mut line, 80).await? {
    ///         let length = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok());
    ///         let Some(length @ 0..=1_000) = length else {
    ///             return Err(io::ErrorKind::InvalidData.into());
    ///         };
    ///         let mut body = vec![0; length];
    ///         stream.read_exact(&mut body).await?;
    ///         stream.write_all(&body).await?;
    ///         line.clear();
    ///     }
    ///     stream.close().await
    /// }
    /// ```
    ///
    /// # Errors
    /// `InvalidData` if the line has more than `line_bytes_max` bytes, which the error names, also
    /// one whose end has not come. No more than that is kept, and where the next line begins is not
    /// known. Else as reading, see [`AsyncStream`].
    pub async fn read_line(
        &mut self,
        line: &mut Vec<u8>,
        line_bytes_max: usize,
    ) -> io::Result<bool> {
        loop {
            let mut has_ended = false;
            let mut is_too_long = false;
            let mut take = |bytes: &[u8]| {
                if has_ended || is_too_long {
                    return 0;
                }
                let found = bytes.iter().position(|&byte| byte == b'\n');
                let part = &bytes[..found.unwrap_or(bytes.len())];
                // The carriage return may belong to the line's end.
                let room = line_bytes_max.saturating_add(1).saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                has_ended = found.is_some() && part.len() <= room;
                let of_line = match line.strip_suffix(b"\r") {
                    Some(of_line) => of_line.len(),
                    None => line.len(),
                };
                is_too_long = part.len() > room || of_line > line_bytes_max;
                part.len().min(room) + usize::from(has_ended)
            };
            let read = poll_fn(|context| self.poll_take(context, true, &mut take));
            let read = read.await?;
            if is_too_long {
                return Err(too_long("a line", line_bytes_max));
            }
            if has_ended {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(true);
            }
            if read == 0 {
                return Ok(false);
            }
        }
    }

    /// Calls `f` in a poll of the connection's color.
    fn in_color<R>(
        &self,
        f: impl FnOnce(&mut Cx) -> Result<Poll<io::Result<R>>, Reason>,
    ) -> Poll<io::Result<R>> {
        match try_with_cx(f) {
            Ok(Ok(polled)) => polled,
            Ok(Err(refused)) => Poll::Ready(Err(io::Error::other(refused))),
            Err(no_context) => Poll::Ready(Err(io::Error::other(no_context))),
        }
    }

    /// Gives what is unread to `take`, which says how many bytes it took; fewer than it was given
    /// if it has no more space. Zero at the end of the stream, and if there `is_space` for none.
    pub(super) fn poll_take(
        &self,
        context: &Context<'_>,
        is_space: bool,
        take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        self.in_color(|cx| {
            if !is_space {
                self.state.check(cx)?;
                return Ok(Poll::Ready(Ok(0)));
            }
            let read = self.state.borrow(cx)?.read(take, context.waker());
            if read.resume {
                self.stream.resume(cx)?;
            }
            if read.wake {
                context.waker().wake_by_ref();
            }
            wake(read.stop);
            Ok(read.result)
        })
    }

    /// Sends a part of these buffers, as if they were one.
    pub(super) fn poll_send(
        &self,
        context: &Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_color(|cx| {
            if bufs.iter().all(|buf| buf.is_empty()) {
                self.state.check(cx)?;
                return Ok(Poll::Ready(Ok(0)));
            }
            if let Some(failure) = self.state.borrow(cx)?.polled_to_write() {
                return Ok(Poll::Ready(Err(failure.error())));
            }
            if self.state.borrow(cx)?.yields() {
                context.waker().wake_by_ref();
                return Ok(Poll::Pending);
            }
            let space = QUEUED_BYTES_MAX.saturating_sub(self.stream.queued_bytes(cx)?);
            if space > 0 {
                match self.stream.write_lent(cx, bufs, space) {
                    Ok(len) => {
                        self.state.borrow(cx)?.wrote(len);
                        return Ok(Poll::Ready(Ok(len)));
                    }
                    Err(Reason::Closed) => {
                        return Ok(Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
                    }
                    // Then something is queued, and will have left.
                    Err(Reason::NoRoom) => {}
                    Err(reason) => return Err(reason),
                }
            }
            self.wait_to_write(cx, context.waker())
        })
    }

    /// Ready when the kernel has all that was accepted.
    pub(super) fn poll_sent(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.in_color(|cx| self.sent(cx, context.waker()))
    }

    /// Ready when the kernel has all that was accepted, and the end of the stream behind it.
    pub(super) fn poll_shut(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        self.in_color(|cx| {
            let sent = self.sent(cx, context.waker())?;
            if let Poll::Ready(Ok(())) = sent {
                self.stream.shutdown_write(cx)?;
            }
            Ok(sent)
        })
    }

    fn sent(&self, cx: &mut Cx, waker: &Waker) -> Result<Poll<io::Result<()>>, Reason> {
        if let Some(failure) = self.state.borrow(cx)?.polled_to_write() {
            return Ok(Poll::Ready(Err(failure.error())));
        }
        if self.stream.queued_bytes(cx)? == 0 {
            return Ok(Poll::Ready(Ok(())));
        }
        self.wait_to_write(cx, waker)
    }

    /// Something is queued; `waker` is woken when it has left.
    fn wait_to_write<R>(&self, cx: &mut Cx, waker: &Waker) -> Result<Poll<R>, Reason> {
        let replaced = self.state.borrow(cx)?.wait_to_write(waker);
        // With nothing borrowed: a waker's code is somebody's.
        drop(replaced);
        Ok(Poll::Pending)
    }
}

/// In a callback, and dropped with it: then whoever waits for the callback is told.
struct Gone(
    Arc<InColor<StreamState>>,
    Option<fn(&mut StreamState) -> Option<Waker>>,
);

impl Drop for Gone {
    fn drop(&mut self) {
        let Some(tell) = self.1 else { return };
        // The two callbacks have it: the stream is gone, and nobody waits.
        if Arc::strong_count(&self.0) <= 2 {
            return;
        }
        let state = Arc::clone(&self.0);
        let (poster, color) = (state.poster().clone(), state.color());
        let event = move |cx: &mut Cx| wake(state.borrow(cx).ok().and_then(|mut it| tell(&mut it)));
        // Refused once the end is decided: then no task is polled any more.
        let _ = poster.post_own_until(Until::End, Some(&RECEIVED), color, event);
    }
}

/// Wakes with nothing borrowed: a waker's code is somebody's.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl AsyncRead for AsyncStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(context, &mut [io::IoSliceMut::new(space)])
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        spaces: &mut [io::IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_space = spaces.iter().any(|space| !space.is_empty());
        let mut spaces = spaces.iter_mut().map(|space| &mut space[..]);
        let mut space: &mut [u8] = &mut [];
        let take = |bytes: &[u8]| {
            let mut taken = 0;
            while taken < bytes.len() {
                if space.is_empty() {
                    match spaces.next() {
                        Some(next) => space = next,
                        None => break,
                    }
                }
                let len = space.len().min(bytes.len() - taken);
                let (filled, rest) = std::mem::take(&mut space).split_at_mut(len);
                filled.copy_from_slice(&bytes[taken..taken + len]);
                (taken, space) = (taken + len, rest);
            }
            taken
        };
        self.poll_take(context, is_space, take)
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shut(context)
    }
}

impl fmt::Debug for AsyncStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncStream")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
