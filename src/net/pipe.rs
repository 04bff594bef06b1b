//! Pipes: two connections joined, so that what comes on one is sent on the other.
//!
//! The two *ends* of a pipe are streams, of one color or of two. The state of an end
//! ([`EndState`]) is in a cell of the end's color. Whatever one end has to tell the other is an
//! event of the other's color, or a call if both have one color ([`Pipe::at`]):
//!
//! ```text
//!   the source, in its color              the destination, in its color
//!   on_data: bytes ------------------->   write
//!   ahead_bytes goes down  <----------    on_drained: taken by the kernel
//!   on_data: the end ----------------->   shutdown_write; this direction is over when all is sent
//! ```
//!
//! **Back-pressure.** A *piece* is what the source has received at once. The piece is *ahead* until
//! the destination's kernel has taken it and the source knows. With [`Pipe::limit`] bytes ahead the
//! source pauses, and with half of that it goes on. The destination tells of what was taken once
//! that is a quarter of the limit. So a source that pauses is told of enough to go on: when all is
//! taken, less than a quarter is untold.
//!
//! **The end.** Whoever ends the second direction, or meets an error, ends the pipe
//! ([`Pipe::finish`]): in its own color, and then in the other's. A flag decides between two that
//! do so at once. An end whose connection is closed by somebody else loses its callbacks, and with
//! them a [`Guard`], which ends the pipe. So no end stays open alone.
//!
//! **No ring of references lasts.** The callbacks of both connections have the pipe, and the pipe
//! has the connections. But callbacks are dropped when their connection is closed, and when the
//! runtime is dropped.

use super::conn::ColorHalf;
use super::{RecvBuf, Stream, ending, is_canceled};
use crate::callback::Callback;
use crate::host::quiesce::Until;
use crate::in_color::InColor;
use crate::sync::CellMut;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Cx, Handler, Reason};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// From this many bytes on that one end of a pipe has received and the other's kernel has not taken
/// yet, receiving pauses; see [`Stream::pipe_to`].
pub const PIPE_BYTES_MAX: usize = 256 << 10;
/// However few bytes a piece has, it counts for this many: else a peer that sends single bytes to a
/// color that waits would take all buffers.
const PIECE_BYTES_MIN: usize = 4 << 10;

/// What the events of a pipe run under.
static PIPE: Handler = Handler::new("mely: pipe");

/// Bytes sent in either direction, or the error that has ended the pipe; see [`Stream::pipe_to`].
type Outcome = io::Result<(u64, u64)>;
/// Posts the user's callback.
type Tell = Box<dyn FnOnce(&mut Cx, Outcome) + Send>;

/// Which end: the stream that was piped, or the other one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    This,
    Other,
}

impl Side {
    fn opposite(self) -> Side {
        match self {
            Side::This => Side::Other,
            Side::Other => Side::This,
        }
    }
}

/// See the module text.
struct Pipe {
    this: End,
    other: End,
    /// Of each direction, in bytes; not 0.
    limit: usize,
    /// One direction is over.
    half_over: AtomicBool,
    over: AtomicBool,
}

struct End {
    /// Does not own the connection.
    stream: Stream,
    state: InColor<EndState>,
}

/// What belongs to the color of an end.
#[derive(Default)]
struct EndState {
    /// As a source: what its pieces count for that are ahead.
    ahead_bytes: usize,
    paused: bool,
    /// As a source: a stop has ended its receiving.
    canceled: bool,
    /// As a destination: the lengths of the pieces that its kernel has not taken, and their sum.
    unsent: VecDeque<usize>,
    unsent_bytes: usize,
    sent_bytes: u64,
    /// As a destination: what the pieces count for that were taken, and the source was not told.
    untold_bytes: usize,
    /// As a destination: nothing more comes.
    ends: bool,
    /// Of the side that was piped.
    tell: Option<Tell>,
}

/// What is left of an end that was closed.
struct Left {
    sent_bytes: u64,
    canceled: bool,
    tell: Option<Tell>,
}

impl EndState {
    /// This many bytes are still queued, the last ones of all that was given: so the pieces before
    /// them were taken. Returns what to tell the source, if that is `enough`.
    fn take(&mut self, queued_bytes: usize, enough: usize) -> Option<usize> {
        while let Some(&len) = self.unsent.front()
            && self.unsent_bytes - len >= queued_bytes
        {
            self.unsent.pop_front();
            self.unsent_bytes -= len;
            self.sent_bytes += len as u64;
            self.untold_bytes += charged_bytes(len);
        }
        let tells = self.untold_bytes > 0 && self.untold_bytes >= enough;
        tells.then(|| std::mem::take(&mut self.untold_bytes))
    }
}

/// What a piece of this length counts for.
fn charged_bytes(len: usize) -> usize {
    len.max(PIECE_BYTES_MIN)
}

impl Pipe {
    fn end(&self, side: Side) -> &End {
        match side {
            Side::This => &self.this,
            Side::Other => &self.other,
        }
    }

    /// The state of an end, in an event of its color.
    fn state<'a>(&'a self, cx: &'a mut Cx, side: Side) -> CellMut<'a, EndState> {
        let state = self.end(side).state.borrow(cx);
        state.expect("an event of the end's color")
    }

    /// Calls `f` in the color of this end: now, if this is an event of that color. What one end has
    /// called here happens in the order of its calls.
    fn at<F>(self: &Arc<Pipe>, cx: &mut Cx, side: Side, f: F)
    where
        F: FnOnce(&Arc<Pipe>, &mut Cx) + Send + 'static,
    {
        let color = self.end(side).stream.color();
        if color == cx.color() {
            return f(self, cx);
        }
        let this = Arc::clone(self);
        let event = move |cx: &mut Cx| f(&this, cx);
        cx.worker().core.post_own(Some(&PIPE), color, event);
    }

    /// Takes the stream of this end over, in its color.
    fn begin(self: &Arc<Pipe>, cx: &mut Cx, side: Side, stream: Stream) -> Result<(), Reason> {
        let is_over = |colored: &mut ColorHalf, ()| colored.is_over() || colored.shutdown;
        if stream.conn.colored.visit(cx, (), is_over)? {
            let error = match cx.stopping() {
                true => ending(),
                false => io::ErrorKind::NotConnected.into(),
            };
            self.finish(cx, side, Err(error));
            return Ok(());
        }
        // The pipe's own limit holds.
        stream.set_write_limit(cx, usize::MAX)?;
        stream.tell_each_send(cx)?;
        let guard = Guard(Arc::clone(self), side);
        stream.on_drained(cx, &PIPE, move |cx, _, sent| match sent {
            Ok(()) => guard.0.sent(cx, guard.1),
            Err(error) => guard.0.finish(cx, guard.1, Err(error)),
        })?;
        let this = Arc::clone(self);
        stream.on_data(cx, &PIPE, move |cx, stream, received| {
            this.received(cx, side, stream, received);
        })?;
        stream.disown();
        Ok(())
    }

    /// Bytes, the end of the stream or an error have come for this end.
    fn received(
        self: &Arc<Pipe>,
        cx: &mut Cx,
        side: Side,
        stream: &Stream,
        received: io::Result<RecvBuf>,
    ) {
        let to = side.opposite();
        match received {
            Ok(data) if !data.is_empty() => {
                self.state(cx, side).ahead_bytes += charged_bytes(data.len());
                self.at(cx, to, move |pipe, cx| pipe.send(cx, to, data));
                // After that: in the same color the kernel mostly has all of it by now.
                let pauses = {
                    let mut state = self.state(cx, side);
                    let is_far_ahead = state.ahead_bytes >= self.limit;
                    is_far_ahead && !std::mem::replace(&mut state.paused, true)
                };
                if pauses {
                    let _ = stream.pause(cx);
                }
            }
            Err(error) if !is_canceled(&error) => self.finish(cx, side, Err(error)),
            end => {
                // It is still sent to, and the pipe closes it.
                self.state(cx, side).canceled = end.is_err();
                self.at(cx, to, move |pipe, cx| {
                    let _ = pipe.end(to).stream.shutdown_write(cx);
                    pipe.state(cx, to).ends = true;
                    pipe.sent(cx, to);
                });
            }
        }
    }

    /// Sends on this end what has come for the other.
    fn send(self: &Arc<Pipe>, cx: &mut Cx, side: Side, data: RecvBuf) {
        let len = data.len();
        {
            let mut state = self.state(cx, side);
            state.unsent.push_back(len);
            state.unsent_bytes += len;
        }
        // Refused only if the connection is closed or has failed, which ends the pipe.
        if let Ok(true) = self.end(side).stream.write_now(cx, data) {
            self.sent(cx, side);
        }
    }

    /// The kernel has taken something on this end.
    fn sent(self: &Arc<Pipe>, cx: &mut Cx, side: Side) {
        let Ok(queued_bytes) = self.end(side).stream.queued_bytes(cx) else {
            return;
        };
        let (taken_bytes, is_over) = {
            let mut state = self.state(cx, side);
            let taken_bytes = state.take(queued_bytes, self.limit / 4);
            let is_over = queued_bytes == 0 && std::mem::take(&mut state.ends);
            (taken_bytes, is_over)
        };
        if let Some(bytes) = taken_bytes {
            let from = side.opposite();
            self.at(cx, from, move |pipe, cx| pipe.taken(cx, from, bytes));
        }
        // Whoever is second sees what the first has done before.
        if is_over && self.half_over.swap(true, Ordering::AcqRel) {
            self.finish(cx, side, Ok(()));
        }
    }

    /// Pieces of this end are not ahead any more; together they count for this many bytes.
    fn taken(self: &Arc<Pipe>, cx: &mut Cx, side: Side, bytes: usize) {
        let resumes = {
            let mut state = self.state(cx, side);
            state.ahead_bytes -= bytes;
            let is_near = state.ahead_bytes <= self.limit / 2;
            is_near && std::mem::take(&mut state.paused)
        };
        if resumes {
            let _ = self.end(side).stream.resume(cx);
        }
    }

    /// The pipe is over, for the first who says so: closes this end, and then the other.
    fn finish(self: &Arc<Pipe>, cx: &mut Cx, side: Side, end: io::Result<()>) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        // The peer of what is cut off is not to take it for a whole.
        let cuts_off = end.as_ref().is_err_and(|error| !is_canceled(error));
        let left = self.leave(cx, side, cuts_off);
        let to = side.opposite();
        self.at(cx, to, move |pipe, cx| {
            let right = pipe.leave(cx, to, cuts_off);
            let canceled = left.canceled || right.canceled;
            let (this, other) = match side {
                Side::This => (left, right),
                Side::Other => (right, left),
            };
            let outcome = end.and_then(|()| match canceled {
                true => Err(ending()),
                false => Ok((other.sent_bytes, this.sent_bytes)),
            });
            if let Some(tell) = this.tell {
                tell(cx, outcome);
            }
        });
    }

    /// Closes this end.
    fn leave(&self, cx: &mut Cx, side: Side, cuts_off: bool) -> Left {
        let End { stream, .. } = self.end(side);
        match cuts_off {
            true => stream.reset(cx),
            false => stream.close(cx),
        }
        let mut state = self.state(cx, side);
        Left {
            sent_bytes: state.sent_bytes,
            canceled: state.canceled,
            tell: state.tell.take(),
        }
    }
}

/// In the callbacks of an end. They are dropped when its connection is closed.
struct Guard(Arc<Pipe>, Side);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.over.load(Ordering::Acquire) {
            return;
        }
        let (pipe, side) = (Arc::clone(&self.0), self.1);
        let state = &self.0.end(side).state;
        let end = move |cx: &mut Cx| {
            let error = io::ErrorKind::ConnectionAborted.into();
            pipe.finish(cx, side, Err(error));
        };
        // Refused once the end is decided: then the other connection goes with the runtime.
        let _ = state
            .poster()
            .post_own_until(Until::End, Some(&PIPE), state.color(), end);
    }
}

impl Stream {
    /// Joins two connections, as a proxy does: sends on `other` the bytes that come on this stream,
    /// and the other way, until both streams have ended. Then posts `done`, once, with the bytes
    /// that the kernel has taken: for `other`, and for this stream.
    ///
    /// The streams may be of different colors, and run on different cores. From now on both live on
    /// their own: their sessions are dropped, and what was received and not given to a session
    /// yet is sent first; so is, on each, what was written before. `other` is taken over by an
    /// event of its color, which is posted now.
    ///
    /// **Order.** Bytes are sent in the order in which they came, and none is lost or doubled.
    ///
    /// **Back-pressure.** Bytes that were received on one and not yet taken by the kernel for the
    /// other count against `bytes_max` in each direction (at least one, [`PIPE_BYTES_MAX`] as a
    /// rule). However few come at once, they count for 4 KiB. At the limit receiving pauses, and
    /// with half of that it goes on. What the pause comes too late for is at most
    /// [`AHEAD_BYTES_MAX`](super::AHEAD_BYTES_MAX). So each direction of a pipe holds no more bytes
    /// than the limit and that, whoever does not read. Bytes that the kernel takes at once are not
    /// copied.
    ///
    /// **The end.** The end of one stream is sent on the other behind all that came before it, and
    /// the other direction goes on. After both ends, both connections are closed.
    ///
    /// **Errors.** If one of the two fails, both are reset: the peers get an error, and do not take
    /// a part for the whole; queued bytes are lost. `done` gets the error: `TimedOut` if one has an
    /// [idle timeout](Self::set_idle_timeout) and its peer did nothing for that long;
    /// `NotConnected` if the end of one had come before it was piped, or been sent; and
    /// `ConnectionAborted` if a handler or a panic has closed one. Without an idle timeout a peer
    /// that does not read keeps the pipe for as long as it likes. While a stream is paused its
    /// peer's error is not noticed.
    ///
    /// **A stop** of the runtime ends receiving on both, as it does on any stream. What was
    /// received before is sent, and then the ends; the run waits for that up to its drain deadline,
    /// also for a peer that does not read. A stream that is [under way](Self::set_under_way) goes
    /// on until its peer's end, for as long as the stage [drain](crate::runtime::Stage::Drain)
    /// lasts. If the stop ended receiving, `done` gets `ECANCELED`, once all is sent.
    ///
    /// If the run is cut short, or the runtime dropped, `done` is dropped.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside this stream's color, or if `other` is of another runtime;
    /// with it both connections are closed, and `done` is dropped.
    ///
    /// ```
    /// use mely::net::{Acceptors, Incoming, PIPE_BYTES_MAX};
    /// use mely::{Color, Cx, Handler, Runtime};
    /// use std::io::{self, Read, Write};
    /// use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    /// use std::time::Duration;
    /// static ACCEPT: Handler = Handler::new("accept");
    /// static CONNECTED: Handler = Handler::new("connected");
    /// static PIPED: Handler = Handler::new("piped");
    ///
    /// /// Connects a client to `target`.
    /// fn proxy(cx: &mut Cx, client: Incoming, target: SocketAddr) -> io::Result<()> {
    ///     let client = client.open_unique();
    ///     let color = client.color();
    ///     let done = PIPED.on_value(color, |_cx, bytes: io::Result<(u64, u64)>| {
    ///         assert_eq!(bytes.unwrap(), (5, 6));
    ///     });
    ///     // If there is no connection, the client is dropped and so closed.
    ///     let connected = move |cx: &mut Cx, target: io::Result<Incoming>| {
    ///         if let Ok(target) = target {
    ///             // Not refused: this is the client's color.
    ///             let _ = client.pipe_to(cx, target.open(color), PIPE_BYTES_MAX, done);
    ///         }
    ///     };
    ///     let limit = Duration::from_secs(5);
    ///     cx.connect(target, limit, CONNECTED.on_value(color, connected))
    /// }
    ///
    /// // Somebody who answers, and somebody who asks.
    /// let server = TcpListener::bind("127.0.0.1:0")?;
    /// let target = server.local_addr()?;
    /// std::thread::spawn(move || {
    ///     let (mut client, _) = server.accept()?;
    ///     let mut asked = String::new();
    ///     client.read_to_string(&mut asked)?;
    ///     client.write_all(format!("{asked}!").as_bytes())
    /// });
    /// let runtime = Runtime::builder().build()?;
    /// # let runtime = Runtime::builder().on_panic(mely::runtime::OnPanic::Stop).build()?;
    /// let poster = runtime.poster();
    /// let (tell, addr) = std::sync::mpsc::channel();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = TcpStream::connect(addr.recv().unwrap())?;
    ///     client.write_all(b"hello")?;
    ///     client.shutdown(Shutdown::Write)?;
    ///     let mut answer = String::new();
    ///     client.read_to_string(&mut answer)?;
    ///     poster.stop();
    ///     Ok::<_, io::Error>(answer)
    /// });
    /// runtime.run(move |cx| {
    ///     let on_accept = ACCEPT.on_each(Color::DEFAULT, move |cx, client: io::Result<_>| {
    ///         client.and_then(|client| proxy(cx, client, target)).expect("a connection");
    ///     });
    ///     let any = "127.0.0.1:0";
    ///     let listener = cx.listen(any, Acceptors::PerCore, on_accept).expect("a free port");
    ///     tell.send(listener.local_addr()).unwrap();
    /// })?;
    /// assert_eq!(client.join().unwrap()?, "hello!");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pipe_to<F>(
        self,
        cx: &mut Cx,
        other: Stream,
        bytes_max: usize,
        done: Callback<F>,
    ) -> Result<(), Reason>
    where
        F: FnOnce(&mut Cx, io::Result<(u64, u64)>) + Send + 'static,
    {
        self.conn.colored.check(cx)?;
        if !Arc::ptr_eq(&self.conn.poster().inner, &other.conn.poster().inner) {
            return Err(Reason::OtherRuntime);
        }
        let tell = move |cx: &mut Cx, outcome: Outcome| {
            let Callback { handler, color, f } = done;
            let event = move |cx: &mut Cx| f(cx, outcome);
            cx.worker().core.post_own(handler, color, event);
        };
        let end = |stream: &Stream, tell: Option<Tell>| {
            let (poster, color) = (stream.conn.poster().clone(), stream.color());
            let state = EndState {
                tell,
                ..EndState::default()
            };
            End {
                stream: stream.borrowed(),
                state: InColor::new(poster, color, state),
            }
        };
        let pipe = Arc::new(Pipe {
            this: end(&self, Some(Box::new(tell))),
            other: end(&other, None),
            limit: bytes_max.max(1),
            half_over: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        // First: all that this end has for it comes behind.
        pipe.at(cx, Side::Other, move |pipe, cx| {
            // Not refused: this is its color.
            let _ = pipe.begin(cx, Side::Other, other);
        });
        pipe.begin(cx, Side::This, self)
    }
}
