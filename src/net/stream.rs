//! The handles to connections: what an application holds.
//!
//! [`Incoming`] is a connection without a color, [`Stream`] one that belongs to a color. Both only
//! check and delegate: what a connection is, and which core may touch which half of it, is in
//! [`super::conn`].

use super::conn::{AtStop, ColorHalf, Conn, Next, Phase, Queued};
use crate::color::CoreId;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::unique::UniqueColor;
use crate::io::{Addr, Bufs, Credentials, Fd, How, Owner, PARTS_MAX, RecvBuf, SendBuf};
use crate::net::registry::Registry;
use crate::{Callback, Color, Cx, Handler, Reason, Rejected};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

/// A connection that has just been made and has no color yet.
///
/// Dropped, it is closed; while a panic unwinds, it is reset. The end of the run closes it, too.
#[must_use = "dropping it closes the connection"]
pub struct Incoming {
    /// None once it has a color.
    fd: Option<Fd>,
    home: CoreId,
    /// Where it is noted in the registry.
    key: usize,
    owner: Owner,
    poster: Poster,
}

impl Incoming {
    pub(super) fn new(fd: Fd, home: CoreId, owner: Owner, poster: Poster) -> Incoming {
        poster.inner.quiesce.has_connections();
        let key = Registry::of_runtime(&poster.inner).add(home, fd, owner.clone());
        Incoming {
            fd: Some(fd),
            home,
            key,
            owner,
            poster,
        }
    }

    /// Takes a connection that was made elsewhere: a stream of std's, TCP or Unix, or one that the
    /// process was given. It is at home on this core, from now on mely's alone, and not inherited by
    /// children. A Unix socket knows no reset: what resets others closes it.
    ///
    /// # Errors
    /// `InvalidInput` if it is no stream socket; `Unsupported` in a simulation; `ECANCELED` once the
    /// runtime was asked to stop.
    pub fn adopt(cx: &mut Cx, socket: impl Into<OwnedFd>) -> io::Result<Incoming> {
        let socket: OwnedFd = socket.into();
        let poster = cx.poster();
        let home = cx.core_id();
        let owner = super::owner(cx)?;
        if owner.is_simulated() {
            return Err(crate::io::no_descriptors());
        }
        Ok(Incoming::new(Fd::adopt(socket)?, home, owner, poster))
    }

    /// The core that accepted the connection and receives for it.
    pub fn home(&self) -> usize {
        self.home.index()
    }

    /// The number of the descriptor, the papers' choice of a color.
    pub fn fd(&self) -> i32 {
        self.fd.as_ref().map_or(-1, |fd| fd.raw())
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// If the peer is gone already.
    pub fn peer_addr(&self) -> io::Result<Addr> {
        self.addr(Owner::peer_addr)
    }

    /// The address at this end.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn local_addr(&self) -> io::Result<Addr> {
        self.addr(Owner::local_addr)
    }

    fn addr(&self, of: fn(&Owner, Fd) -> io::Result<Addr>) -> io::Result<Addr> {
        // The number of a descriptor that the end has closed may be another's by now.
        let addr = self.fd.and_then(|fd| {
            let registry = Registry::of_runtime(&self.poster.inner);
            registry.unless_closed(self.home, self.key, || of(&self.owner, fd))
        });
        addr.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }

    /// Gives the connection to a color of the runtime that made it, which is moved to the
    /// connection's home core.
    pub fn open(mut self, color: Color) -> Stream {
        self.poster.place(color, self.home.index());
        self.make(color, None)
    }

    /// Gives the connection a color of its own, on its home core, for as long as it lives.
    pub fn open_unique(mut self) -> Stream {
        let unique = UniqueColor::issue(&self.poster.inner, self.home.index());
        self.make(unique.color(), Some(unique))
    }

    fn make(&mut self, color: Color, unique: Option<UniqueColor>) -> Stream {
        let fd = self.fd.take().expect("taken here and by the drop only");
        let (owner, poster) = (self.owner.clone(), self.poster.clone());
        let conn = Conn::new(fd, self.home, self.key, owner, poster, color, unique);
        Stream { conn, owner: true }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take()
            && Registry::of_runtime(&self.poster.inner).remove(self.home, self.key)
        {
            if panicking() {
                self.owner.reset(fd);
            }
            self.owner.close(fd);
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("fd", &self.fd())
            .field("home", &self.home)
            .finish()
    }
}

/// A connection that belongs to a color.
///
/// A [`Session`](super::Session) owns it, or an [`AsyncStream`](crate::aio::AsyncStream). Its
/// methods are for handlers of the connection's color. Elsewhere those that return a `Result` are
/// refused; `close` and `abort` take effect in an event of that color. Dropping a stream closes it,
/// as [`close`](Self::close); dropped while a panic unwinds, the connection is reset, so that the
/// peer does not mistake a part for the whole.
///
/// **Stop.** When the runtime is asked to stop, the bytes that have arrived are received, and no
/// more unless the connection is [under way](Self::set_under_way). In the stage
/// [close](crate::runtime::Stage::Close) the session's `end` is called with `ECANCELED`, also while
/// the connection is paused. It can be written to until then, and in that call.
pub struct Stream {
    pub(super) conn: Arc<Conn>,
    /// Dropping it closes the connection: false for what callbacks borrow.
    pub(super) owner: bool,
}

impl Stream {
    /// The connection's color.
    pub fn color(&self) -> Color {
        self.conn.color()
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, as the error's source;
    /// `NotConnected` if the peer is gone already, or the connection was closed.
    pub fn peer_addr(&self, cx: &Cx) -> io::Result<Addr> {
        self.conn.owner.peer_addr(self.open_fd(cx)?)
    }

    /// The address at this end.
    ///
    /// # Errors
    /// As [`peer_addr`](Self::peer_addr).
    pub fn local_addr(&self, cx: &Cx) -> io::Result<Addr> {
        self.conn.owner.local_addr(self.open_fd(cx)?)
    }

    /// Which process is at the other end of a Unix socket.
    ///
    /// # Errors
    /// As [`peer_addr`](Self::peer_addr); `Unsupported` if it is no Unix socket, and in a simulation.
    pub fn peer_credentials(&self, cx: &Cx) -> io::Result<Credentials> {
        self.conn.owner.peer_credentials(self.open_fd(cx)?)
    }

    /// The descriptor, which may be somebody else's once the home core has been told to close it.
    fn open_fd(&self, cx: &Cx) -> io::Result<Fd> {
        let colored = &self.conn.colored;
        let phase = colored.visit(cx, (), |colored, ()| colored.phase);
        match phase? {
            Phase::Open | Phase::Closing => Ok(self.conn.fd),
            Phase::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Receives: `f` is called with what comes, in order, in the connection's color, under
    /// `handler`. A buffer of length 0 is the end of the stream; that, or an error, is the last
    /// call, after which `f` is dropped: so it may hold the state that owns this stream. May be
    /// called again to replace `f`; the handler stays.
    pub(crate) fn on_data<F>(
        &self,
        cx: &mut Cx,
        handler: &'static Handler,
        f: F,
    ) -> Result<(), Reason>
    where
        F: FnMut(&mut Cx, &Stream, io::Result<RecvBuf>) + Send + 'static,
    {
        if self.set_on_data(cx, handler, f)? {
            self.receive(cx, true);
        }
        Ok(())
    }

    /// Sets what [`on_data`](Self::on_data) sets, and does not receive yet. False: it will not be
    /// called any more.
    pub(super) fn set_on_data<F>(
        &self,
        cx: &mut Cx,
        handler: &'static Handler,
        f: F,
    ) -> Result<bool, Reason>
    where
        F: FnMut(&mut Cx, &Stream, io::Result<RecvBuf>) + Send + 'static,
    {
        let old = {
            let mut colored = self.conn.colored.borrow(cx)?;
            let _ = self.conn.read_handler.set(handler);
            colored.closes_at_end = false;
            match colored.place_of_on_data() {
                Some(place) => place.replace(Box::new(f)),
                None => return Ok(false),
            }
        };
        drop(old);
        Ok(true)
    }

    /// Stops receiving. The peer's bytes then wait in the kernel, and in the end with the peer.
    /// Bytes that were received already are still delivered: at most
    /// [`AHEAD_BYTES_MAX`](super::AHEAD_BYTES_MAX).
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn pause(&self, cx: &mut Cx) -> Result<(), Reason> {
        let pause = |colored: &mut ColorHalf, ()| colored.paused = true;
        self.conn.colored.visit(cx, (), pause)?;
        self.receive(cx, false);
        Ok(())
    }

    /// Receives again.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn resume(&self, cx: &mut Cx) -> Result<(), Reason> {
        let resume = |colored: &mut ColorHalf, ()| colored.paused = false;
        self.conn.colored.visit(cx, (), resume)?;
        // Nothing handles received bytes before the first `serve`, which begins to receive.
        if self.conn.read_handler.get().is_some() {
            self.receive(cx, true);
        }
        Ok(())
    }

    /// Ends the connection if for `limit` no bytes come and the kernel takes none. `None`, the
    /// default, is no limit. [`Session::end`](super::Session::end), or the read of a task, then
    /// gets an error of the kind `TimedOut`. The time begins with each call that changes the limit.
    ///
    /// A connection times out only while it waits for its peer: while it receives, or has bytes
    /// that the kernel has not taken. A [paused](Self::pause) stream with nothing to send does not.
    /// After `Session::end`, and during a [`close`](Self::close), a peer that does not read is cut
    /// off after the limit without another call.
    ///
    /// A written buffer counts once the kernel has taken all of it: give a slow peer large ones in
    /// pieces. The time goes on while the color is held or in a long handler, but bytes that
    /// arrived in time are delivered first. Like a timer, it is noticed late while its core is
    /// inside a handler. After a stop the builder's drain deadline holds instead.
    ///
    /// Costs one reading of the clock for each piece received or sent, and one event per limit.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    ///
    /// ```
    /// use mely::net::{Acceptors, RecvBuf, Session, Stream};
    /// use mely::{Cx, Handler, Runtime};
    /// use std::io::{self, Read};
    /// use std::time::Duration;
    /// static WAIT: Handler = Handler::new("wait");
    ///
    /// struct Waits(Stream);
    ///
    /// impl Session for Waits {
    ///     fn data(&mut self, _cx: &mut Cx, _data: RecvBuf) {}
    ///     fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
    ///         if end.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
    ///             let _ = self.0.write(cx, "too slow");
    ///         }
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// let (tell, addr) = std::sync::mpsc::channel();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = std::net::TcpStream::connect(addr.recv().unwrap())?;
    ///     let mut heard = String::new();
    ///     client.read_to_string(&mut heard)?;
    ///     poster.stop();
    ///     Ok::<_, io::Error>(heard)
    /// });
    /// runtime.run(move |cx| {
    ///     let any = "127.0.0.1:0";
    ///     let open = |cx: &mut Cx, stream: Stream, _: &_| {
    ///         // Not refused: this is the connection's color.
    ///         let _ = stream.set_idle_timeout(cx, Some(Duration::from_millis(5)));
    ///         Waits(stream)
    ///     };
    ///     let listener = cx.serve(any, Acceptors::PerCore, &WAIT, open).expect("a free port");
    ///     tell.send(listener.local_addr()).unwrap();
    /// })?;
    /// assert_eq!(client.join().unwrap()?, "too slow");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_idle_timeout(&self, cx: &mut Cx, limit: Option<Duration>) -> Result<(), Reason> {
        self.conn.colored.check(cx)?;
        self.conn.set_idle_timeout(cx, limit);
        Ok(())
    }

    /// Says whether the connection is under way, as in the middle of a message; `false` at first.
    /// After a stop, receiving goes on as long as it is, up to the limit of the stage
    /// [drain](crate::runtime::Stage::Drain). A connection that is not under way receives no more
    /// than had arrived at the stop.
    ///
    /// ```
    /// use mely::net::{LengthPrefixed, RecvBuf, Session, Stream};
    /// use mely::Cx;
    ///
    /// /// Each message is stored, also one whose end comes after a stop.
    /// struct Store {
    ///     stream: Stream,
    ///     frames: LengthPrefixed,
    ///     messages: Vec<Vec<u8>>,
    /// }
    ///
    /// impl Session for Store {
    ///     fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
    ///         self.frames.push(&data);
    ///         while let Ok(Some(message)) = self.frames.next_frame() {
    ///             self.messages.push(message.to_vec());
    ///         }
    ///         // Not refused: this is the connection's color.
    ///         let _ = self.stream.set_under_way(cx, !self.frames.rest().is_empty());
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn set_under_way(&self, cx: &mut Cx, is_under_way: bool) -> Result<(), Reason> {
        let of_a_task = |colored: &mut ColorHalf, ()| colored.of_a_task;
        let of_a_task = self.conn.colored.visit(cx, (), of_a_task)?;
        let at_stop = match (is_under_way, of_a_task) {
            (true, _) => AtStop::GoesOn,
            (false, true) => AtStop::Told,
            (false, false) => AtStop::Rests,
        };
        self.conn.set_at_stop(cx, at_stop);
        Ok(())
    }

    /// It is a task's: unless it is under way, it is told the end once all is received after a
    /// stop.
    pub(crate) fn is_for_a_task(&self, cx: &mut Cx) {
        let of_a_task = |colored: &mut ColorHalf, ()| colored.of_a_task = true;
        let _ = self.conn.colored.visit(cx, (), of_a_task);
        if self.conn.at_stop() == AtStop::Rests {
            self.conn.set_at_stop(cx, AtStop::Told);
        }
    }

    /// The connection is under way from now on. Calls `f`, once, when all has been given to
    /// `on_data` that had arrived when the runtime was asked to stop.
    pub(crate) fn on_arrived<F>(&self, cx: &mut Cx, f: F) -> Result<(), Reason>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let before = {
            let mut colored = self.conn.colored.borrow(cx)?;
            let is_open = colored.phase == Phase::Open;
            is_open.then(|| colored.on_arrived.replace(Box::new(f)))
        };
        drop(before);
        self.conn.set_at_stop(cx, AtStop::GoesOn);
        Ok(())
    }

    /// Runs `callback` once, after all bytes that have arrived on this machine by now were
    /// delivered to [`Session::data`](super::Session::data). Bytes that come later were sent by a
    /// peer that could know of everything this color has done before. The callback must be of the
    /// connection's color. It waits while the stream is paused, and is dropped when the connection
    /// is closed.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, or if the callback is of another.
    pub fn after_received<F>(&self, cx: &mut Cx, callback: Callback<F>) -> Result<(), Reason>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        if color != self.color() {
            return Err(Reason::OtherColor {
                state: self.color(),
                handler: color,
            });
        }
        {
            let mut colored = self.conn.colored.borrow(cx)?;
            if colored.phase != Phase::Open {
                return Ok(());
            }
            colored.after_received.push(Box::new(f));
        }
        Arc::clone(&self.conn).call_home(cx, move |conn, driver, core| {
            conn.mark(handler, driver, core);
        });
        Ok(())
    }

    /// Whether `on_data` will not be called any more.
    pub(crate) fn has_ended(&self, cx: &Cx) -> Result<bool, Reason> {
        let ended = |colored: &mut ColorHalf, ()| colored.ended || colored.phase != Phase::Open;
        self.conn.colored.visit(cx, (), ended)
    }

    /// Arms or cancels the receive on the home core.
    pub(super) fn receive(&self, cx: &mut Cx, wanted: bool) {
        self.conn.note_wanted(cx, wanted);
        if wanted && self.conn.deliver_kept(cx) {
            return;
        }
        Arc::clone(&self.conn).call_home(cx, move |conn, driver, core| {
            conn.receive(driver, core, wanted);
        });
    }

    /// Queues bytes for sending, in order: a `Vec<u8>`, `String`, `&'static str` or `&'static
    /// [u8]`, a received buffer, `bytes::Bytes`, or an `Arc<[u8]>`. They are sent from the core
    /// that runs this handler.
    ///
    /// The first write of an event is sent at once. Further writes of the event to the same stream
    /// are sent together when the event is over, before any other event runs on this core, or at
    /// [`Cx::flush`]. In an event that is known to be long they are sent at once as well.
    /// [`write_now`](Self::write_now) always sends at once.
    ///
    /// A received buffer ([`RecvBuf`]) is sent without a copy if the kernel takes it at once. Bytes
    /// that have to wait are copied, and the buffer is given back.
    ///
    /// # Errors
    /// [`Rejected`](crate::Rejected) gives the bytes back: outside the connection's color;
    /// [`Reason::NoRoom`](crate::Reason::NoRoom) if more than the [limit](Self::set_write_limit)
    /// would be queued (a single buffer is always taken when nothing is queued);
    /// [`Reason::Closed`](crate::Reason::Closed) if the connection is closing or broken.
    pub fn write(&self, cx: &mut Cx, bytes: impl Into<SendBuf>) -> Result<(), Rejected<SendBuf>> {
        if let Some(next) = self.admit(cx, bytes.into(), false)? {
            Arc::clone(&self.conn).start_send(cx, next);
        }
        Ok(())
    }

    /// Like [`write`](Self::write), but sends at once. Returns whether all queued bytes have been
    /// sent. If so, [`Session::drained`](super::Session::drained) is not called for them.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_now(
        &self,
        cx: &mut Cx,
        bytes: impl Into<SendBuf>,
    ) -> Result<bool, Rejected<SendBuf>> {
        if self.conn.colored.check(cx).is_ok() {
            self.conn.send_gathered(cx);
        }
        match self.admit(cx, bytes.into(), true)? {
            Some(next) => Ok(self.conn.send_now(cx, next)),
            None => Ok(false),
        }
    }

    /// Sends the first bytes of these buffers at once, `bytes_max` at most, and returns how many.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn write_lent(
        &self,
        cx: &mut Cx,
        bufs: &[IoSlice<'_>],
        bytes_max: usize,
    ) -> Result<usize, Reason> {
        self.conn.colored.check(cx)?;
        self.conn.send_gathered(cx);
        let all: usize = bufs.iter().map(|buf| buf.len()).sum();
        let bytes = all.min(bytes_max);
        let admitted = self.admit(cx, Lent { bufs, bytes }, true);
        if let Some(next) = admitted.map_err(|refused| refused.reason)? {
            self.conn.send_now(cx, next);
        }
        Ok(bytes)
    }

    /// Queues several buffers for sending, in order, as one write: all of them are admitted, or
    /// none. They are not joined by copying: one system call takes up to 256 of them. For parts
    /// that are at hand, as a header and a large body, or `bytes::Bytes` that several connections
    /// are sent. (Many parts of less than some hundred bytes each cost less as one `Vec<u8>`.)
    ///
    /// Order, the moment at which they are sent, and what becomes of received buffers, are as for
    /// [`write`](Self::write).
    ///
    /// ```
    /// use mely::Cx;
    /// use mely::net::{SendBuf, Stream};
    /// use std::sync::Arc;
    /// fn answer(stream: &Stream, cx: &mut Cx, body: &Arc<[u8]>) {
    ///     let header = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    ///     let parts = [SendBuf::from(header), Arc::clone(body).into()];
    ///     if stream.write_vectored(cx, parts).is_err() {
    ///         stream.abort(cx);
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write), for the bytes of all parts together. For the limit, each part and
    /// each buffer that is queued before it counts 64 bytes more. Empty parts are dropped, and do not
    /// come back.
    pub fn write_vectored<B: Into<SendBuf>>(
        &self,
        cx: &mut Cx,
        parts: impl IntoIterator<Item = B>,
    ) -> Result<(), Rejected<Vec<SendBuf>>> {
        let parts = parts.into_iter().map(B::into);
        // Empty ones would wait in the queue, and no limit of bytes counts them.
        let parts: Vec<SendBuf> = parts.filter(|part| !part.is_empty()).collect();
        if let Some(next) = self.admit(cx, parts, false)? {
            Arc::clone(&self.conn).start_send(cx, next);
        }
        Ok(())
    }

    /// Runs `callback` once, when all that was written before has been given to the kernel, or with
    /// the error that ended sending. So after the write of a part it tells when that part has been
    /// sent, whatever is written behind it. (Whether the peer has received it, only the peer knows.)
    /// The callback must be of the connection's color, and is an event of its own, also if nothing
    /// waits to be sent. It is dropped if the connection is aborted, unless its event was posted
    /// before. During a [`close`](Self::close) it is still called; if the idle timeout ends that, with
    /// an error of the kind `TimedOut`.
    ///
    /// ```
    /// use mely::net::Stream;
    /// use mely::{Callback, Cx};
    /// use std::io;
    /// fn send_part(stream: &Stream, cx: &mut Cx, part: Vec<u8>) {
    ///     let bytes = part.len();
    ///     let sent = move |_: &mut Cx, result: io::Result<()>| match result {
    ///         Ok(()) => println!("{bytes} bytes are sent"),
    ///         Err(error) => println!("not all of {bytes} bytes is sent: {error}"),
    ///     };
    ///     if stream.write(cx, part).is_ok() {
    ///         // Not refused: this is the connection's color.
    ///         let _ = stream.on_sent(cx, Callback::anonymous_value(stream.color(), sent));
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, or if the callback is of another;
    /// [`Reason::Closed`](crate::Reason::Closed) if the connection is closed, or sending has failed.
    /// The callback is then dropped.
    pub fn on_sent<F>(&self, cx: &mut Cx, callback: Callback<F>) -> Result<(), Reason>
    where
        F: FnOnce(&mut Cx, io::Result<()>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        if color != self.color() {
            return Err(Reason::OtherColor {
                state: self.color(),
                handler: color,
            });
        }
        {
            let colored = self.conn.colored.borrow(cx)?;
            if colored.phase != Phase::Open || colored.broken {
                return Err(Reason::Closed);
            }
        }
        self.conn.mark_sent(cx, handler, Box::new(f));
        Ok(())
    }

    /// Counts bytes as queued; they come back if they can be sent now, because none are before
    /// them, and are to be.
    fn admit<W: Written>(
        &self,
        cx: &mut Cx,
        written: W,
        now: bool,
    ) -> Result<Option<Next>, Rejected<W>> {
        let core = &cx.worker().core;
        let (number, is_long) = (core.event_number(), core.is_in_long());
        let mut colored = match self.conn.colored.borrow(cx) {
            Ok(colored) => colored,
            Err(refused) => {
                return Err(Rejected::new(refused, written.into_lasting()));
            }
        };
        if colored.phase != Phase::Open || colored.broken || colored.shutdown {
            return Err(Rejected::new(Reason::Closed, written.into_lasting()));
        }
        let bytes = written.len();
        let queued = colored.queued_bytes + bytes;
        let counted = queued.saturating_add(written.overhead_bytes(&colored));
        if colored.queued_bytes > 0 && counted > colored.queued_bytes_max {
            return Err(Rejected::new(Reason::NoRoom, written.into_lasting()));
        }
        let first = colored.sent_in != Some(number);
        let begun = match colored.seal(&written) {
            None => colored.begin_write(written, now || is_long, first),
            Some(Some(sealed)) => colored.begin_write(sealed, now || is_long, first),
            Some(None) => {
                colored.end();
                // Which tells the application why.
                self.conn.deliver_kept(cx);
                return Err(Rejected::new(Reason::Closed, written.into_lasting()));
            }
        };
        match begun {
            Begun::Sends(next) => return Ok(Some(next)),
            Begun::Waits => {}
            Begun::Gathers { at_once } => {
                colored.end();
                match at_once {
                    true => self.conn.send_gathered(cx),
                    false => self.conn.gather(cx),
                }
            }
        }
        Ok(None)
    }

    /// Calls `f`, in the connection's color and under `handler`, each time everything queued has
    /// been sent, or with the error that ended sending; then what was still queued is lost and
    /// further writes are refused. An error is the last call; `f` is dropped after it, or when the
    /// connection is closed.
    pub(crate) fn on_drained<F>(
        &self,
        cx: &mut Cx,
        handler: &'static Handler,
        f: F,
    ) -> Result<(), Reason>
    where
        F: FnMut(&mut Cx, &Stream, io::Result<()>) + Send + 'static,
    {
        let number = cx.worker().core.event_number();
        let is_sent;
        let old = {
            let mut colored = self.conn.colored.borrow(cx)?;
            colored.drained_handler = Some(handler);
            is_sent = colored.untold_in.take() == Some(number) && !colored.queues();
            match colored.place_of_on_drained() {
                Some(place) => place.replace(Box::new(f)),
                None => return Ok(()),
            }
        };
        drop(old);
        if is_sent {
            // What this event has written before counts, too.
            self.conn.tell_sent(cx);
        }
        Ok(())
    }

    /// From now on `on_drained` is also called when a part of what is queued
    /// has been sent, and more is left.
    pub(super) fn tell_each_send(&self, cx: &Cx) -> Result<(), Reason> {
        let colored = &self.conn.colored;
        colored.visit(cx, (), |colored, ()| colored.tells_each_send = true)
    }

    /// Bytes queued and not yet with the kernel.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn queued_bytes(&self, cx: &Cx) -> Result<usize, Reason> {
        let colored = &self.conn.colored;
        colored.visit(cx, (), |colored, ()| colored.queued_bytes)
    }

    /// Sets what may be queued before [`write`](Self::write) refuses; 1 MiB by default.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn set_write_limit(&self, cx: &Cx, bytes: usize) -> Result<(), Reason> {
        let colored = &self.conn.colored;
        colored.visit(cx, bytes, |colored, bytes| colored.queued_bytes_max = bytes)
    }

    /// Whether what is received hurries: its events have the connection's color take its next turn
    /// before the other colors of its core, as by [`Cx::hurry`], whose limits hold. For the
    /// connections that must be served under overload, as an administrator's. `false` by default.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn set_urgent(&self, cx: &mut Cx, urgent: bool) -> Result<(), Reason> {
        self.conn.colored.check(cx)?;
        Arc::clone(&self.conn).set_urgent(cx, urgent);
        Ok(())
    }

    /// Sends the end of the stream after the queued bytes. Receiving goes on. If sending fails, or
    /// has failed, no end is sent: the peer would mistake a part for the whole.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn shutdown_write(&self, cx: &mut Cx) -> Result<(), Reason> {
        self.conn.colored.check(cx)?;
        self.conn.say_end(cx);
        self.conn.send_gathered(cx);
        let now = {
            let mut colored = self.conn.colored.borrow(cx)?;
            colored.shutdown = true;
            !colored.sending && !colored.broken && colored.phase == Phase::Open
        };
        if now {
            self.conn.owner.shutdown(self.conn.fd, How::Write);
        }
        Ok(())
    }

    /// Whether the connection stays open after [`Session::end`](super::Session::end), for answers
    /// that are yet to be written; `false` at first. May be set in `end` itself. Such a connection
    /// lasts until it is closed, or set to `false`. After an error it is closed in any case.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn set_half_open(&self, cx: &mut Cx, half_open: bool) -> Result<(), Reason> {
        let set = |colored: &mut ColorHalf, half_open| {
            colored.half_open = half_open;
            colored.ended && colored.closes_at_end && !half_open
        };
        if self.conn.colored.visit(cx, half_open, set)? {
            self.close(cx);
        }
        Ok(())
    }

    /// Dropped, it does not close the connection any more.
    pub(super) fn disown(mut self) {
        self.owner = false;
    }

    /// Closes the connection after the queued bytes have been sent. No method of the session is
    /// called any more. If sending fails, the connection is reset.
    pub fn close(&self, cx: &mut Cx) {
        self.end(cx, false);
    }

    /// Closes the connection at once. Queued bytes are lost; if there are any, the connection is
    /// reset.
    pub fn abort(&self, cx: &mut Cx) {
        self.end(cx, true);
    }

    /// Closes at once, in its color, and tells the peer that this is no end: what the peer has got
    /// may be a part.
    pub(super) fn reset(&self, cx: &mut Cx) {
        if let Ok(fd) = self.open_fd(cx) {
            self.conn.owner.reset(fd);
        }
        self.abort(cx);
    }

    /// The same connection, which this does not own.
    pub(crate) fn borrowed(&self) -> Stream {
        self.conn.borrowed()
    }

    fn end(&self, cx: &mut Cx, at_once: bool) {
        let conn = Arc::clone(&self.conn);
        if conn.colored.check(cx).is_ok() {
            conn.close(cx, at_once);
        } else {
            let (poster, color) = (conn.poster().clone(), conn.color());
            let close = move |cx: &mut Cx| conn.close(cx, at_once);
            let _ = poster.post_own_until(Until::End, None, color, close);
        }
    }
}

/// What each part of a vectored write takes in the queue, about.
const PART_OVERHEAD_BYTES: usize = 64;

/// What becomes of a write that is admitted.
pub(super) enum Begun {
    /// It is to be sent.
    Sends(Next),
    /// It is queued behind a send.
    Waits,
    /// It is queued, to be sent now or when the event is over.
    Gathers { at_once: bool },
}

impl ColorHalf {
    /// Takes a write: `first` of its event, or one that is to leave `at_once`.
    #[inline(always)]
    pub(super) fn begin_write<W: Written>(
        &mut self,
        written: W,
        at_once: bool,
        first: bool,
    ) -> Begun {
        let bytes = written.len();
        self.queued_bytes += bytes;
        self.written_bytes += bytes as u64;
        if self.queues() {
            written.queue(self);
            return Begun::Waits;
        }
        // What waits in the queue waits for the send under way.
        debug_assert!(self.queue.is_empty());
        let at_once = at_once || first;
        if !at_once || !written.is_one_send() {
            self.gathers = true;
            written.queue(self);
            return Begun::Gathers { at_once };
        }
        Begun::Sends(self.begin_send(written.into_bufs()))
    }
}

/// What one write is given.
pub(super) trait Written: Sized {
    fn len(&self) -> usize;
    /// Its bytes, in order.
    #[cfg(feature = "tls")]
    fn parts(&self) -> impl Iterator<Item = &[u8]>;
    /// What it counts beside its bytes where they are limited.
    fn overhead_bytes(&self, colored: &ColorHalf) -> usize;
    /// Whether one send takes all of it.
    fn is_one_send(&self) -> bool;
    fn into_lasting(self) -> Self;
    fn into_bufs(self) -> Bufs;
    fn queue(self, colored: &mut ColorHalf);
}

impl Written for SendBuf {
    fn len(&self) -> usize {
        (**self).len()
    }

    #[cfg(feature = "tls")]
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&**self)
    }

    fn overhead_bytes(&self, _: &ColorHalf) -> usize {
        // What is queued piece by piece is joined.
        0
    }

    fn is_one_send(&self) -> bool {
        true
    }

    fn into_lasting(self) -> SendBuf {
        SendBuf::into_lasting(self)
    }

    fn into_bufs(self) -> Bufs {
        self.into()
    }

    fn queue(self, colored: &mut ColorHalf) {
        colored.queue.push_back(Queued {
            buf: SendBuf::into_lasting(self),
            is_apart: false,
        });
    }
}

/// The first bytes of some buffers that are lent, at most so many.
struct Lent<'a> {
    bufs: &'a [IoSlice<'a>],
    bytes: usize,
}

impl Lent<'_> {
    fn all(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.bytes;
        self.bufs.iter().map(move |buf| {
            let part = &buf[..buf.len().min(left)];
            left -= part.len();
            part
        })
    }

    fn joined(&self) -> SendBuf {
        let mut joined = Vec::with_capacity(self.bytes);
        self.all().for_each(|part| joined.extend_from_slice(part));
        joined.into()
    }
}

impl Written for Lent<'_> {
    fn len(&self) -> usize {
        self.bytes
    }

    #[cfg(feature = "tls")]
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.all()
    }

    fn overhead_bytes(&self, _: &ColorHalf) -> usize {
        0
    }

    fn is_one_send(&self) -> bool {
        true
    }

    fn into_lasting(self) -> Self {
        self
    }

    fn into_bufs(self) -> Bufs {
        self.joined().into()
    }

    fn queue(self, colored: &mut ColorHalf) {
        self.joined().queue(colored);
    }
}

impl Written for Vec<SendBuf> {
    fn len(&self) -> usize {
        self.iter().map(|part| part.len()).sum()
    }

    #[cfg(feature = "tls")]
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|part| &**part)
    }

    fn overhead_bytes(&self, colored: &ColorHalf) -> usize {
        PART_OVERHEAD_BYTES * (colored.queue.len() + self.len())
    }

    fn is_one_send(&self) -> bool {
        self.len() <= PARTS_MAX
    }

    fn into_lasting(self) -> Vec<SendBuf> {
        self.into_iter().map(SendBuf::into_lasting).collect()
    }

    fn into_bufs(self) -> Bufs {
        Bufs::Several(self)
    }

    fn queue(self, colored: &mut ColorHalf) {
        colored.queue.extend(self.into_iter().map(|part| Queued {
            buf: part.into_lasting(),
            is_apart: true,
        }));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owner {
            return;
        }
        let panics = panicking();
        if panics {
            self.conn.doubt();
        } else if self.conn.is_ending() {
            return;
        }
        let conn = Arc::clone(&self.conn);
        let (poster, color) = (conn.poster().clone(), conn.color());
        // Refused once the end is decided; then the last reference closes the descriptor. Until
        // then the run may wait for just this, from whatever thread.
        let close = move |cx: &mut Cx| match panics {
            true => conn.reset(cx),
            false => conn.close(cx, false),
        };
        let _ = poster.post_own_until(Until::End, None, color, close);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("fd", &self.conn.fd)
            .field("color", &self.conn.color())
            .field("home", &self.conn.home())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::Post;
    use crate::net::SimClient;
    use crate::net::tests::{Drops, listening, settle};
    use crate::sim::Simulation;
    use crate::{Callback, Runtime};
    use std::sync::mpsc::channel;

    static READ: Handler = Handler::new("read");
    const COLOR: Color = Color::new(1);

    /// A simulated server of one core with one connection, of this color, and the client.
    fn connected() -> (Simulation, Stream, SimClient) {
        let (give, stream) = channel();
        let open = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
            give.send(incoming.unwrap().open(COLOR)).unwrap();
        };
        let on_accept = Callback::anonymous_each(COLOR, open);
        let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
        let client = simulation.network().connect(addr).unwrap();
        settle(&mut simulation);
        (simulation, stream.recv().unwrap(), client)
    }

    fn post<F>(simulation: &mut Simulation, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        simulation.poster().try_post(color, f).unwrap();
        settle(simulation);
    }

    /// Whoever closes: what the callbacks hold may be used by their color's handlers.
    #[test]
    fn closed_from_another_color_its_callbacks_are_dropped_in_its_own() {
        for at_once in [false, true] {
            let (mut simulation, stream, _client) = connected();
            let drops = Drops::default();
            let given = drops.clone();
            let (give, given_back) = channel();
            post(&mut simulation, COLOR, move |cx| {
                let witness = given.witness(cx.poster());
                let read = move |_: &mut Cx, _: &Stream, _: io::Result<RecvBuf>| {
                    let _ = &witness;
                };
                stream.on_data(cx, &READ, read).unwrap();
                give.send(stream).unwrap();
            });
            let stream = given_back.recv().unwrap();
            post(&mut simulation, Color::from(2), move |cx| {
                match at_once {
                    true => stream.abort(cx),
                    false => stream.close(cx),
                }
                stream.close(cx);
            });
            assert_eq!(drops.seen(), [Some(COLOR)], "at once: {at_once}");
        }
    }

    /// A descriptor that was given up may be somebody else's.
    #[test]
    fn addresses_are_told_until_it_is_closed_and_in_its_color_only() {
        let (mut simulation, stream, client) = connected();
        let theirs = client.local_addr().unwrap();
        let (give, given_back) = channel();
        post(&mut simulation, COLOR, move |cx| {
            assert_eq!(stream.peer_addr(cx).unwrap(), theirs);
            assert_ne!(stream.local_addr(cx).unwrap(), theirs);
            give.send(stream).unwrap();
        });
        let stream = given_back.recv().unwrap();
        let (give, given_back) = channel();
        post(&mut simulation, Color::from(2), move |cx| {
            for refused in [stream.peer_addr(cx), stream.local_addr(cx)] {
                let error = refused.unwrap_err().into_inner().unwrap();
                assert!(error.is::<Reason>(), "{error}");
            }
            give.send(stream).unwrap();
        });
        let stream = given_back.recv().unwrap();
        post(&mut simulation, COLOR, move |cx| {
            stream.close(cx);
            for closed in [stream.peer_addr(cx), stream.local_addr(cx)] {
                assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::NotConnected);
            }
            let refused = stream.write(cx, "late").unwrap_err();
            assert_eq!(&*refused.value, b"late");
        });
    }

    /// What `answer` says of the bytes that it was given, which the home core has received.
    fn told_of_received(answer: fn(&mut Cx, &Stream, RecvBuf) -> String) -> String {
        let (mut simulation, stream, mut client) = connected();
        io::Write::write_all(&mut client, b"echo").unwrap();
        let (tell, told) = channel();
        let (give, given_back) = channel();
        post(&mut simulation, COLOR, move |cx| {
            let echo = move |cx: &mut Cx, stream: &Stream, data: io::Result<RecvBuf>| {
                let Ok(data) = data else { return };
                tell.send(answer(cx, stream, data)).unwrap();
            };
            stream.on_data(cx, &READ, echo).unwrap();
            give.send(stream).unwrap();
        });
        let told = told.recv().unwrap();
        drop(given_back);
        told
    }

    /// Whoever keeps what was refused until it can be sent keeps no buffer either.
    #[test]
    fn received_bytes_that_are_refused_are_copied() {
        let told = told_of_received(|cx, stream, data| {
            stream.set_write_limit(cx, 4).unwrap();
            stream.write(cx, "fills").unwrap();
            let refused = stream.write(cx, data).unwrap_err();
            assert!(
                matches!(
                    refused,
                    Rejected {
                        reason: Reason::NoRoom,
                        ..
                    }
                ),
                "{refused:?}"
            );
            format!("{:?}", refused.value)
        });
        assert_eq!(told, "SendBuf(owned, 4 bytes)");
    }

    /// A client that does not read keeps none of the buffers that others are received into.
    #[test]
    fn received_bytes_that_wait_to_be_sent_are_copied() {
        let told = told_of_received(|cx, stream, data| {
            // From now on what is written waits for an event that says that this was sent.
            stream.write(cx, "at once").unwrap();
            stream.write(cx, data).unwrap();
            format!("{:?}", stream.conn.colored.borrow(cx).unwrap().queue)
        });
        assert_eq!(told, "[SendBuf(owned, 4 bytes)]");
    }
}
