//! Sessions: a connection, and what is known of it, as one state.
//!
//! A *session* is a [`Colored`] state of the connection's color that owns the connection's
//! [`Stream`]. The connection's two callbacks have handles to the session ([`Served`]), and so each
//! leads to the other. That ring ends with the connection: its callbacks are dropped after their
//! last call, when it is closed, and when the runtime is dropped. Everybody else should have weak
//! handles.

use super::conn::{ColorHalf, Conn, Phase};
use super::{Acceptors, Incoming, Listener, RecvBuf, Stream, ending, is_canceled};
use crate::colored::OnPoison;
use crate::colored::weak::WeakColored;
use crate::host::panics::InTurn;
use crate::host::quiesce::Until;
use crate::in_color::InColor;
use crate::io::Endpoint;
use crate::{Colored, Cx, Handler, Reason};
use std::io;
use std::sync::{Arc, Weak};

/// What accepted connections are handed over under.
static ACCEPTED: Handler = Handler::new("mely: accepted");

/// The state of one connection: owns the [`Stream`], and handles the connection's events.
///
/// [`Cx::serve`], [`Incoming::serve`] and [`Stream::serve`] make a session of a connection. A
/// session is a [`Colored`] state of the connection's color. Its methods are events of that color,
/// under the handler that was given to `serve`: one at a time, in the order in which things
/// happened. Inside them the stream's methods are never refused for the color.
///
/// **Handles.** `serve` returns a [`Colored`], and gives `open` a [`WeakColored`]: to post to the
/// session, ask it, or set timers for it. A `Colored` keeps the session after its connection is
/// over. So keep weak handles in the session itself and in tables of all sessions.
///
/// **The end.** A session ends its connection by [`Stream::close`] or [`Stream::abort`]; no method
/// is called after that. A close sends the queued bytes first. If the peer does not read them, the
/// close waits until an abort, or for the stream's [idle timeout](Stream::set_idle_timeout). (A
/// stream that is dropped is closed by a later event.) The session is dropped in its color when its
/// connection is over and the last `Colored` is gone. Sessions that are left at the end of the run
/// are dropped with the runtime, outside of any event.
///
/// **Pause.** While the stream is [paused](Stream::pause), neither bytes nor the end of the peer's
/// stream are delivered, except for those received before. A stop is reported all the same. An
/// error of sending ends the pause: the received bytes are delivered, then the error.
///
/// **Panics.** If an event panics while it has the session, the state is poisoned, as any
/// [`Colored`], and the connection is reset: the peer does not mistake a part for the whole. Other
/// connections go on, unless [`OnPanic`](crate::runtime::OnPanic) says otherwise.
///
/// ```
/// use mely::net::{RecvBuf, Session, Stream};
/// use mely::Cx;
///
/// /// Counts what a client sends, and tells the client at the end.
/// struct Count {
///     stream: Stream,
///     bytes: u64,
/// }
///
/// impl Session for Count {
///     fn data(&mut self, _cx: &mut Cx, data: RecvBuf) {
///         self.bytes += data.len() as u64;
///     }
///
///     fn end(&mut self, cx: &mut Cx, end: std::io::Result<()>) {
///         if end.is_ok() {
///             // The connection is closed after this.
///             let _ = self.stream.write(cx, self.bytes.to_string());
///         }
///     }
/// }
/// ```
pub trait Session: Send + Sized + 'static {
    /// Handles received bytes: at least one, in the order in which the peer sent them. After
    /// [`Stream::pause`] at most [`AHEAD_BYTES_MAX`](super::AHEAD_BYTES_MAX) bytes are still
    /// delivered.
    fn data(&mut self, cx: &mut Cx, data: RecvBuf);

    /// Called when all written bytes have been sent. Not called if [`Stream::write_now`] returned
    /// that.
    fn drained(&mut self, cx: &mut Cx) {
        let _ = cx;
    }

    /// Called once, when no more bytes will be delivered. Afterwards the connection is closed, as
    /// by [`Stream::close`], unless it is [half-open](Stream::set_half_open).
    ///
    /// - `Ok`: the peer has sent the end of its stream. It may still read.
    /// - `ECANCELED`: the runtime was asked to stop. The run waits for the connection to close, up
    ///   to the limits of the builder, also for a peer that does not read.
    /// - Another error: receiving or sending has failed, or the peer was idle for the stream's
    ///   [idle timeout](Stream::set_idle_timeout) (`TimedOut`). The connection is closed in any
    ///   case. After an error of sending, the received bytes were delivered first.
    ///
    /// If sending fails after this call, the connection is closed.
    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        let _ = (cx, end);
    }
}

/// What the callbacks of a connection have, for as long as the session has the connection: a stream
/// that the session gives away loses them.
struct Served<S: Session> {
    session: Colored<S>,
    conn: Weak<Conn>,
    /// What sending has failed with, until the session is told.
    failure: InColor<Option<io::Error>>,
}

impl<S: Session> Served<S> {
    /// Lends the session to `f`. Not if it is poisoned: then its connection is about to be reset.
    fn lend(&self, cx: &mut Cx, f: impl FnOnce(&mut S, &mut Cx)) {
        match self.session.with(cx, f) {
            Ok(()) | Err(Reason::Poisoned) => {}
            Err(refused) => unreachable!("an event of the session's color: {refused}"),
        }
    }

    /// Bytes, the end of the stream or an error have come; called by `on_data`.
    fn received(&self, cx: &mut Cx, stream: &Stream, received: io::Result<RecvBuf>) {
        let end = match received {
            Ok(data) if !data.is_empty() => {
                self.lend(cx, |session, cx| session.data(cx, data));
                // If sending has failed, the end is told when all is received: no pause holds then.
                if self
                    .failure
                    .borrow(cx)
                    .is_ok_and(|failure| failure.is_some())
                {
                    let _ = stream.resume(cx);
                }
                return;
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        // Its callbacks are events of its color.
        let failure = self.failure.borrow(cx).ok();
        let end = failure
            .and_then(|mut failure| failure.take())
            .map_or(end, Err);
        self.end(cx, stream, end);
    }

    /// Sets the connection's callbacks. Not if the session has closed it while it was opened, or
    /// given it to a pipe or a task.
    fn begin(self: Arc<Self>, cx: &mut Cx, stream: &Stream, handler: &'static Handler) {
        let is_taken = |colored: &mut ColorHalf, ()| {
            colored.phase != Phase::Open || colored.is_served() || colored.shakes_hands()
        };
        if stream.conn.colored.visit(cx, (), is_taken) != Ok(false) {
            return;
        }
        let its = Arc::clone(&self);
        // Not refused: this is an event of the connection's color.
        let _ = stream.on_drained(cx, handler, move |cx, stream, sent| {
            its.drained(cx, stream, sent);
        });
        let _ = stream.set_on_data(cx, handler, move |cx, stream, received| {
            self.received(cx, stream, received);
        });
        let begin = |colored: &mut ColorHalf, ()| {
            colored.closes_at_end = true;
            colored.paused
        };
        // Paused while it was opened, it is received from once it is resumed.
        if stream.conn.colored.visit(cx, (), begin) == Ok(false) {
            stream.receive(cx, true);
        } else if cx.stopping() {
            // A stop is told all the same.
            stream.conn.deliver_kept(cx);
        }
    }

    fn end(&self, cx: &mut Cx, stream: &Stream, end: io::Result<()>) {
        // Otherwise nobody would ever hear of this connection again.
        let may_stay = end.as_ref().map_or_else(is_canceled, |()| true);
        self.lend(cx, |session, cx| session.end(cx, end));
        if !may_stay {
            stream.close(cx);
        }
    }

    /// All is sent, or sending has failed; called by `on_drained`.
    fn drained(&self, cx: &mut Cx, stream: &Stream, sent: io::Result<()>) {
        let failed = match sent {
            Ok(()) => return self.lend(cx, Session::drained),
            Err(error) => error,
        };
        if let Ok(mut failure) = self.failure.borrow(cx) {
            *failure = Some(failed);
        }
        if stream.has_ended(cx).unwrap_or(true) {
            stream.abort(cx);
        } else {
            // What has arrived is given first; then the receive ends as well, and the end is told.
            let _ = stream.resume(cx);
        }
    }
}

impl<S: Session> OnPoison for Served<S> {
    fn poisoned(self: Arc<Self>) {
        if let Some(conn) = self.conn.upgrade() {
            Conn::reset_after_panic(&conn, self);
        }
    }
}

impl Stream {
    /// Makes a session of the connection; see [`Session`]. `open` runs as an event of the
    /// connection's color, under `handler`. It gets the stream, to be owned by the session that it
    /// returns.
    ///
    /// The returned handle can be posted to at once: those events run after `open`, under `handler`
    /// unless [`Colored::via`] names another. Before `open` has run, [`Colored::with`] is refused
    /// with [`Reason::NotOpen`](crate::Reason::NotOpen), and a post through a [`Hold`](crate::Hold)
    /// of the color panics.
    ///
    /// A stream of another session can be served anew. Bytes received before `open` runs, and the
    /// end, are delivered to the session before; the first handler stays that of `data` and `end`.
    /// If the stream has ended by then, [`Session::end`] of the new session is called with
    /// `NotConnected`, or with `ECANCELED` after a stop.
    ///
    /// If the run ends before `open`, the connection is closed. If `open` panics, the connection is
    /// reset and the session stays poisoned.
    pub fn serve<S, F>(self, handler: &'static Handler, open: F) -> Colored<S>
    where
        S: Session,
        F: FnOnce(&mut Cx, Stream, &WeakColored<S>) -> S + Send + 'static,
    {
        let poster = self.conn.poster().clone();
        let session = self.begin_session(handler, open);
        // Whoever gets the handle may post from anywhere: behind the event that opens the session.
        poster.publish();
        session
    }

    fn begin_session<S, F>(self, handler: &'static Handler, open: F) -> Colored<S>
    where
        S: Session,
        F: FnOnce(&mut Cx, Stream, &WeakColored<S>) -> S + Send + 'static,
    {
        let (color, poster) = (self.color(), self.conn.poster().clone());
        let session = Colored::unfilled(poster.clone(), color).via(handler);
        let its = session.clone();
        let event = move |cx: &mut Cx| self.open_session(cx, handler, its, open);
        // Refused once the end is decided: then the connection is closed with the event.
        let _ = poster.post_own_until(Until::End, Some(handler), color, event);
        session
    }

    /// Opens the session, in an event of the color.
    fn open_session<S, F>(
        self,
        cx: &mut Cx,
        handler: &'static Handler,
        session: Colored<S>,
        open: F,
    ) where
        S: Session,
        F: FnOnce(&mut Cx, Stream, &WeakColored<S>) -> S,
    {
        let stream = self.borrowed();
        let conn = &stream.conn;
        let served = Arc::new(Served {
            session,
            conn: Arc::downgrade(conn),
            failure: InColor::new(conn.poster().clone(), conn.color(), None),
        });
        // Of whoever was served before; their drop is a user's code.
        let mut drops = InTurn::default();
        let was_over = conn.end_serving(cx, handler, &mut drops);
        drops.run(|| {
            let hears: Weak<Served<S>> = Arc::downgrade(&served);
            let me = served.session.downgrade();
            let filled = served.session.fill(cx, hears, |cx| open(cx, self, &me));
            filled.expect("an event of the connection's color");
            if was_over {
                let error = match cx.stopping() {
                    true => ending(),
                    false => io::ErrorKind::NotConnected.into(),
                };
                served.end(cx, &stream, Err(error));
                stream.close(cx);
            } else {
                Arc::clone(&served).begin(cx, &stream, handler);
            }
        });
        drops.end();
    }
}

impl Incoming {
    /// Makes a session of the connection, in a color of its own on its home core; see
    /// [`Stream::serve`].
    pub fn serve<S, F>(self, handler: &'static Handler, open: F) -> Colored<S>
    where
        S: Session,
        F: FnOnce(&mut Cx, Stream, &WeakColored<S>) -> S + Send + 'static,
    {
        self.open_unique().serve(handler, open)
    }
}

impl Cx {
    /// Listens on `at`, as [`listen`](Self::listen), and makes a session of each connection, in a
    /// color of its own; see [`Session`]. `open` gets the stream, to be owned by the session, and a
    /// weak handle to the session. It runs in the connection's color, under `handler`, so it may
    /// run for several connections at the same time.
    ///
    /// If accepting fails (no descriptors are left, say), it is tried again a little later;
    /// connections wait in the kernel. To hear of that, or to refuse connections before they get a
    /// color, use [`listen`](Self::listen) and [`Incoming::serve`].
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use mely::net::{Acceptors, RecvBuf, Session, Stream};
    /// use mely::{Cx, Handler, Runtime};
    /// use std::io::{Read, Write};
    /// static SHOUT: Handler = Handler::new("shout");
    ///
    /// struct Shout(Stream);
    ///
    /// impl Session for Shout {
    ///     fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
    ///         if self.0.write(cx, data.to_ascii_uppercase()).is_err() {
    ///             self.0.abort(cx); // It does not read.
    ///         }
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// let (tell, addr) = std::sync::mpsc::channel();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = std::net::TcpStream::connect(addr.recv().unwrap())?;
    ///     client.write_all(b"hello")?;
    ///     client.shutdown(std::net::Shutdown::Write)?;
    ///     let mut answer = String::new();
    ///     client.read_to_string(&mut answer)?;
    ///     poster.stop();
    ///     Ok::<_, std::io::Error>(answer)
    /// });
    /// runtime.run(move |cx| {
    ///     let any = "127.0.0.1:0";
    ///     let open = |_: &mut Cx, stream, _: &_| Shout(stream);
    ///     let listener = cx.serve(any, Acceptors::PerCore, &SHOUT, open).expect("a free port");
    ///     tell.send(listener.local_addr()).unwrap();
    /// })?;
    /// assert_eq!(client.join().unwrap()?, "HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve<S, F>(
        &mut self,
        at: impl Into<Endpoint>,
        acceptors: Acceptors,
        handler: &'static Handler,
        open: F,
    ) -> io::Result<Listener>
    where
        S: Session,
        F: Fn(&mut Cx, Stream, &WeakColored<S>) -> S + Send + Sync + 'static,
    {
        let open = Arc::new(open);
        self.accept_each(at, acceptors, &ACCEPTED, move |_, incoming| {
            let open = Arc::clone(&open);
            let stream = incoming.open_unique();
            stream.begin_session(handler, move |cx, stream, me| open(cx, stream, me));
        })
    }

    /// Listens on `at`, and calls `accept` with each connection, in a color of the listener's own.
    pub(crate) fn accept_each(
        &mut self,
        at: impl Into<Endpoint>,
        acceptors: Acceptors,
        handler: &'static Handler,
        accept: impl Fn(&mut Cx, Incoming) + Send + 'static,
    ) -> io::Result<Listener> {
        let accepting = self.unique_color();
        let color = accepting.color();
        let accepted = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
            // The color is the listener's as long as there is this closure.
            let _ = &accepting;
            if let Ok(incoming) = incoming {
                accept(cx, incoming);
            }
        };
        self.listen(at, acceptors, handler.on_each(color, accepted))
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;
    use crate::Post;
    use crate::host::panics::OnPanic;
    use crate::net::tests::{Drops, Witness, listening, settle};
    use crate::net::{SimCall, SimClient};
    use crate::sim::Simulation;
    use crate::{Callback, Color, Reason, Rejected, Runtime};
    use std::io::{Read, Write};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    static SERVE: Handler = Handler::new("serve");

    /// What a session does to its stream.
    type Does = fn(&Stream, &mut Cx);

    const STAYS: Does = |_, _| ();
    const CLOSES: Does = Stream::close;
    const ABORTS: Does = Stream::abort;

    /// Does this for whatever comes.
    struct Fixed {
        stream: Stream,
        does: Does,
        _witness: Witness,
    }

    impl Session for Fixed {
        fn data(&mut self, cx: &mut Cx, _data: RecvBuf) {
            (self.does)(&self.stream, cx);
        }
    }

    /// However the connection ends, and whoever ends it.
    #[test]
    fn a_session_is_dropped_in_its_color_and_its_connection_closed() {
        type End = fn(&Simulation, &mut SimClient, &WeakColored<Fixed>);
        fn post(
            simulation: &Simulation,
            me: &WeakColored<Fixed>,
            f: impl FnOnce(&mut Fixed, &mut Cx) + Send + 'static,
        ) {
            let session = me.upgrade().unwrap();
            session.try_post(&simulation.poster(), f).unwrap();
        }
        let ends: [(Does, End); 5] = [
            (CLOSES, |_, client, _| client.write_all(b"!").unwrap()),
            (ABORTS, |_, client, _| client.write_all(b"!").unwrap()),
            (STAYS, |_, client, _| client.shutdown_write()),
            (STAYS, |simulation, _, me| {
                post(simulation, me, |session, cx| session.stream.close(cx));
            }),
            (STAYS, |simulation, _, me| {
                // With an event of the session's that is left behind its end.
                let again = me.clone();
                post(simulation, me, move |session, cx| {
                    again.post(cx, |session, cx| {
                        let refused = session.stream.write(cx, "late").unwrap_err();
                        assert_eq!(refused.reason, Reason::Closed);
                    });
                    session.stream.abort(cx);
                });
            }),
        ];
        for (does, end) in ends {
            let drops = Drops::default();
            let given = drops.clone();
            let (give, me) = channel();
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let (give, witness) = (give.clone(), given.witness(cx.poster()));
                incoming.unwrap().serve(&SERVE, move |_cx, stream, me| {
                    give.send(me.clone()).unwrap();
                    Fixed {
                        stream,
                        does,
                        _witness: witness,
                    }
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
            let net = simulation.network().clone();
            let mut client = net.connect(addr).unwrap();
            settle(&mut simulation);
            let me: WeakColored<_> = me.recv().unwrap();
            // The listener and both ends.
            assert_eq!((net.open_count(), drops.seen().len()), (3, 0));
            end(&simulation, &mut client, &me);
            settle(&mut simulation);
            assert_eq!(drops.seen(), [Some(me.color())]);
            assert_eq!(net.open_count(), 2);
            assert!(me.upgrade().is_none());
        }
    }

    /// A simulated server of one core, whose connections are each served by what `open` returns,
    /// and a client of it.
    fn serving<S, F>(builder: crate::Builder, open: F) -> (Simulation, SimClient)
    where
        S: Session,
        F: Fn(&mut Cx, Stream, &WeakColored<S>) -> S + Send + Sync + 'static,
    {
        let open = Arc::new(open);
        let accept = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
            let open = Arc::clone(&open);
            let incoming = incoming.unwrap();
            incoming.serve(&SERVE, move |cx, stream, me| open(cx, stream, me));
        };
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        let (mut simulation, addr) = listening(builder, 1, on_accept);
        let client = simulation.network().connect(addr).unwrap();
        settle(&mut simulation);
        (simulation, client)
    }

    /// Says this much when it is spoken to, and is then closed; panics when it is dropped, if it is
    /// to.
    struct Says {
        stream: Stream,
        bytes: usize,
        then: Does,
        panics: bool,
    }

    impl Session for Says {
        fn data(&mut self, cx: &mut Cx, _data: RecvBuf) {
            self.stream.write(cx, vec![7; self.bytes]).unwrap();
            (self.then)(&self.stream, cx);
        }
    }

    impl Drop for Says {
        fn drop(&mut self) {
            assert!(!self.panics, "planted");
        }
    }

    /// More than the simulated network takes for a client that does not read.
    const MUCH: usize = 1 << 20;

    /// The runtime's part is done first.
    #[test]
    fn a_session_whose_drop_panics_leaves_no_connection() {
        type End = fn(&mut SimClient, &WeakColored<Says>, &mut Simulation);
        let speak: End = |client, _, _| client.write_all(b"!").unwrap();
        let ends: [(usize, Does, End); 5] = [
            (0, CLOSES, speak),
            (0, ABORTS, speak),
            (MUCH, CLOSES, |client, _, simulation| {
                client.write_all(b"!").unwrap();
                let mut unread = MUCH;
                while unread > 0 {
                    settle(simulation);
                    unread -= client.read(&mut vec![0; MUCH]).unwrap();
                }
            }),
            (0, STAYS, |client, _, _| client.shutdown_write()),
            (0, STAYS, |_, me, simulation| {
                let abort = |says: &mut Says, cx: &mut Cx| says.stream.abort(cx);
                let session = me.upgrade().unwrap();
                session.try_post(&simulation.poster(), abort).unwrap();
            }),
        ];
        for (bytes, then, end) in ends {
            let (give, me) = channel();
            let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
            let builder = builder.panic_hook(|_| ());
            let (mut simulation, mut client) = serving(builder, move |_, stream, me| {
                give.send(me.clone()).unwrap();
                let panics = true;
                Says {
                    stream,
                    bytes,
                    then,
                    panics,
                }
            });
            end(&mut client, &me.recv().unwrap(), &mut simulation);
            settle(&mut simulation);
            let panics = simulation.stats().cores[0].panics;
            assert_eq!(panics, 1);
            // The listener and the client's end.
            assert_eq!(simulation.network().open_count(), 2);
        }
    }

    /// Panics, and again when it is dropped for that.
    struct PanicsTwice(#[expect(dead_code, reason = "owned")] Stream);

    impl Session for PanicsTwice {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {
            panic!("when called")
        }
    }

    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic!("when dropped")
        }
    }

    /// Else a peer could end the process by one message.
    #[test]
    fn a_panic_and_another_when_its_session_is_dropped_cost_one_connection() {
        let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
        let builder = builder.panic_hook(|_| ());
        let (mut simulation, mut client) = serving(builder, |_, stream, _| PanicsTwice(stream));
        client.write_all(b"!").unwrap();
        settle(&mut simulation);
        assert_eq!(simulation.stats().panics(), 2);
        let end = client.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
        // The listener and the client's end.
        assert_eq!(simulation.network().open_count(), 2);
    }

    /// Whoever has the session when it panics, nobody goes on with half a change.
    #[test]
    fn a_panic_of_an_event_that_has_the_session_resets_its_connection() {
        type Way = fn(&Colored<Stays>, &mut Cx);
        let ways: [(&str, Way); 4] = [
            ("post", |session, cx| {
                session.post(cx, |_, _| panic!("planted"))
            }),
            ("callback", |session, cx| {
                let fires = session.on(&SERVE, |_, _| panic!("planted"));
                cx.timer(Duration::from_millis(1), fires);
            }),
            ("several states", |session, cx| {
                let other = Colored::new(cx, Color::from(77), ());
                cx.with_all((session, &other), |_, _| panic!("planted"));
            }),
            ("with", |session, cx| {
                let its = session.clone();
                cx.post(session.color(), move |cx| {
                    let _ = its.with(cx, |_, _| panic!("planted"));
                });
            }),
        ];
        for (way, panics) in ways {
            let ((give, me), (tell, told)) = (channel(), channel());
            let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
            let builder = builder.panic_hook(|_| ());
            let (mut simulation, mut client) = serving(builder, move |_, stream, me| {
                give.send(me.clone()).unwrap();
                Stays::new(stream, tell.clone())
            });
            let me: WeakColored<Stays> = me.recv().unwrap();
            let session = me.upgrade().unwrap();
            let event = move |cx: &mut Cx| panics(&session, cx);
            simulation.poster().try_post(Color::from(9), event).unwrap();
            settle(&mut simulation);
            let end = client.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "{way}");
            assert_eq!(told.try_iter().collect::<Vec<_>>(), ["dropped"], "{way}");
            assert!(me.upgrade().is_none(), "{way}");
        }
    }

    /// Who has the handle may post from a thread: behind `open`, wherever that is to run.
    #[test]
    fn a_handle_can_be_posted_to_from_anywhere_at_once() {
        let (give, session) = channel();
        let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
            let (tell, _told) = channel();
            let open = |_: &mut Cx, stream, _: &_| Stays::new(stream, tell);
            let session = incoming.unwrap().serve(&SERVE, open);
            // As by a thread: what is posted here waits in the outbox.
            let (outside, give) = (cx.poster(), give.clone());
            let posts = move || session.try_post(&outside, move |stays, _| stays.tell = give);
            std::thread::scope(|scope| scope.spawn(posts).join().unwrap().unwrap());
        };
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
        let mut client = simulation.network().connect(addr).unwrap();
        settle(&mut simulation);
        client.write_all(b"!").unwrap();
        settle(&mut simulation);
        assert_eq!(session.try_recv(), Ok("serve"));
    }

    /// In the color itself: by a hold, or by the event that serves it.
    #[test]
    fn before_it_is_opened_a_session_is_refused() {
        let (tell, told) = channel();
        let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
            let stream = incoming.unwrap().open(cx.color());
            let session = stream.serve(&SERVE, |_, stream, _| Stays::new(stream, channel().0));
            tell.send(session.with(cx, |_, _| ()).unwrap_err()).unwrap();
        };
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
        let _client = simulation.network().connect(addr).unwrap();
        settle(&mut simulation);
        assert_eq!(told.try_recv(), Ok(Reason::NotOpen));
    }

    /// Gives its stream away when it is spoken to.
    struct Gives {
        stream: Option<Stream>,
        to: Sender<Stream>,
    }

    impl Session for Gives {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {
            self.to.send(self.stream.take().unwrap()).unwrap();
        }
    }

    /// It has no part in the connection any more.
    #[test]
    fn a_panic_of_a_session_that_gave_its_stream_away_resets_nothing() {
        let ((to, given), (give, gives)) = (channel(), channel());
        let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
        let builder = builder.panic_hook(|_| ());
        let (mut simulation, mut client) = serving(builder, move |_, stream, me| {
            give.send(me.upgrade().unwrap()).unwrap();
            let (stream, to) = (Some(stream), to.clone());
            Gives { stream, to }
        });
        let before: Colored<Gives> = gives.recv().unwrap();
        client.write_all(b"!").unwrap();
        settle(&mut simulation);
        let (tell, told) = channel();
        let stream: Stream = given.recv().unwrap();
        stream.serve(&SERVE, |_, stream, _| Stays::new(stream, tell));
        settle(&mut simulation);
        let panics = |_: &mut Gives, _: &mut Cx| panic!("planted");
        before.try_post(&simulation.poster(), panics).unwrap();
        settle(&mut simulation);
        client.write_all(b"!").unwrap();
        settle(&mut simulation);
        assert_eq!(told.try_recv(), Ok("serve"));
    }

    /// As by a server that turns a client away.
    #[test]
    fn a_session_that_closes_its_stream_while_it_is_opened_is_not_called() {
        let (tell, told) = channel();
        let (_simulation, mut client) = serving(Runtime::builder(), move |cx, stream, _| {
            stream.write(cx, "busy").unwrap();
            stream.close(cx);
            Stays::new(stream, tell.clone())
        });
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!((&text[..], told.try_recv()), ("busy", Ok("dropped")));
    }

    /// Counts what it is told to be sent.
    struct Sends {
        _stream: Stream,
        tell: Sender<&'static str>,
    }

    impl Session for Sends {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {}

        fn drained(&mut self, _: &mut Cx) {
            self.tell.send("drained").unwrap();
        }
    }

    #[test]
    fn what_is_written_while_it_is_opened_is_told_once() {
        for now in [true, false] {
            let (tell, told) = channel();
            let (simulation, _client) = serving(Runtime::builder(), move |cx, stream, _| {
                match now {
                    true => assert!(stream.write_now(cx, "hi").unwrap()),
                    false => stream.write(cx, "hi").unwrap(),
                }
                Sends {
                    _stream: stream,
                    tell: tell.clone(),
                }
            });
            let drained = told.try_iter().count();
            assert_eq!(drained, usize::from(!now));
            drop(simulation);
        }
    }

    /// Its peer would take half an answer for the whole.
    #[test]
    fn a_panic_that_ends_the_run_resets_its_connection() {
        let builder = Runtime::builder().on_panic(OnPanic::Stop);
        let builder = builder.panic_hook(|_| ());
        let (mut simulation, mut client) = serving(builder, |_, stream, _| Halves(stream));
        client.write_all(b"!").unwrap();
        settle(&mut simulation);
        drop(simulation);
        let end = client.read(&mut [0; 4]).map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    }

    struct Halves(Stream);

    impl Session for Halves {
        fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
            self.0.write(cx, "half").unwrap();
            panic!("planted")
        }
    }

    /// Panics when it is spoken to.
    struct Owner {
        _its: Stream,
        _owned: Stream,
    }

    impl Session for Owner {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {
            panic!("planted")
        }
    }

    /// Gives the stream to an owner that a panic of the other connection takes.
    type Owned = fn(&mut Cx, Stream, Incoming);

    /// Its peer would take half an answer for a whole one.
    #[test]
    fn a_stream_whose_owner_panics_resets_its_connection() {
        const OWNERS: Color = Color::new(7);
        const OTHER: Color = Color::new(8);
        let ways: [(&str, Owned); 8] = [
            ("session", |_, stream, other| {
                other.serve(&SERVE, move |_, its, _| Owner {
                    _its: its,
                    _owned: stream,
                });
            }),
            ("state", |cx, stream, _| {
                let state = crate::Colored::new(cx, OWNERS, stream);
                state.post(cx, |_, _| panic!("planted"));
            }),
            ("state of an owner", |cx, stream, _| {
                let state = crate::Colored::new(cx, OTHER, stream);
                cx.post(OWNERS, move |_| {
                    let _owned = state;
                    panic!("planted")
                });
            }),
            ("blocking work", |cx, stream, _| {
                let owns = move || {
                    let _owned = stream;
                    panic!("planted")
                };
                let given = cx.try_blocking::<(), _>(owns).unwrap();
                given.then(cx, Callback::anonymous_value(OWNERS, |_, _| ()));
            }),
            ("task of a task", |cx, stream, _| {
                let its = async move {
                    let _owned = stream;
                    std::future::pending::<()>().await;
                };
                let parent = async {
                    let _its =
                        crate::task::ambient::with_cx(|cx| cx.spawn(OTHER, its).cancel_on_drop());
                    crate::task::time::sleep(Duration::from_millis(1)).await;
                    panic!("planted")
                };
                cx.spawn(OWNERS, parent);
            }),
            ("what is asked", |cx, stream, _| {
                cx.post(OWNERS, |cx| {
                    let _asked = cx.ask(OTHER, move |_| drop(stream)).cancel_on_drop();
                    panic!("planted")
                });
            }),
            ("timer", |cx, stream, _| {
                cx.post(OWNERS, |cx| {
                    let fires = Callback::anonymous(OTHER, move |_| drop(stream));
                    let _guard = cx.timer(Duration::from_secs(60), fires).cancel_on_drop();
                    panic!("planted")
                });
            }),
            ("hold", |cx, stream, _| {
                cx.post(OWNERS, |cx| {
                    let _resumes = cx.hold().on(move |_| drop(stream));
                    panic!("planted")
                });
            }),
        ];
        let mut ended = Vec::new();
        for (way, give) in ways {
            let first = std::sync::Mutex::new(None);
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let incoming = incoming.unwrap();
                let mut first = first.lock().unwrap();
                match first.take() {
                    None => *first = Some(incoming.open_unique()),
                    Some(stream) => give(cx, stream, incoming),
                }
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
            let (mut simulation, addr) = listening(builder.panic_hook(|_| ()), 1, on_accept);
            let net = simulation.network().clone();
            let mut clients = [(); 2].map(|()| {
                let client = net.connect(&addr).unwrap();
                settle(&mut simulation);
                client
            });
            let _ = clients[1].write_all(b"!");
            settle(&mut simulation);
            assert_eq!(simulation.stats().panics(), 1, "{way}");
            let end = clients[0].read(&mut [0]).map_err(|error| error.kind());
            if end != Err(io::ErrorKind::ConnectionReset) {
                ended.push((way, end));
            }
        }
        assert_eq!(ended, []);
    }

    /// Also when the runtime was asked to stop.
    #[test]
    fn a_close_that_waits_for_its_peer_is_ended_by_an_abort() {
        for stops in [false, true] {
            let (give, me) = channel();
            let open = move |_: &mut Cx, stream, me: &WeakColored<Says>| {
                give.send(me.clone()).unwrap();
                let (bytes, then, panics) = (MUCH, CLOSES, false);
                Says {
                    stream,
                    bytes,
                    then,
                    panics,
                }
            };
            let (mut simulation, mut client) = serving(Runtime::builder(), open);
            let (me, poster) = (me.recv().unwrap(), simulation.poster());
            client.write_all(b"!").unwrap();
            settle(&mut simulation);
            let session = me.upgrade().unwrap();
            let strong = poster.strong().unwrap();
            if stops {
                poster.stop();
            }
            let abort = |says: &mut Says, cx: &mut Cx| says.stream.abort(cx);
            session.try_post(&strong, abort).unwrap();
            drop((session, strong));
            settle(&mut simulation);
            assert!(me.upgrade().is_none());
            // Far from the deadline of a stop.
            assert!(simulation.now() < Duration::from_secs(1));
            match stops {
                true => simulation.end().unwrap(),
                false => assert_eq!(simulation.network().open_count(), 2),
            }
        }
    }

    /// Tells of its calls, and goes on whatever comes.
    struct Stays {
        stream: Stream,
        tell: Sender<&'static str>,
    }

    impl Stays {
        fn new(stream: Stream, tell: Sender<&'static str>) -> Stays {
            Stays { stream, tell }
        }
    }

    impl Session for Stays {
        fn data(&mut self, cx: &mut Cx, _data: RecvBuf) {
            self.tell.send(cx.handler()).unwrap();
        }

        fn end(&mut self, cx: &mut Cx, _end: io::Result<()>) {
            self.stream.set_half_open(cx, true).unwrap();
            self.tell.send("end").unwrap();
        }
    }

    impl Drop for Stays {
        fn drop(&mut self) {
            let _ = self.tell.send("dropped");
        }
    }

    /// It would be there for ever: nobody hears of it again.
    #[test]
    fn a_connection_that_failed_does_not_stay_open() {
        let (tell, told) = channel();
        let builder = Runtime::builder();
        let (mut simulation, client) = serving(builder, move |_, stream, _| {
            Stays::new(stream, tell.clone())
        });
        client.reset();
        settle(&mut simulation);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["end", "dropped"]);
        assert_eq!(simulation.network().open_count(), 1);
    }

    #[test]
    fn what_is_half_open_no_more_is_closed() {
        let (give, me) = channel();
        let (mut simulation, client) = serving(Runtime::builder(), move |_, stream, me| {
            give.send(me.clone()).unwrap();
            Stays::new(stream, channel().0)
        });
        let me: WeakColored<Stays> = me.recv().unwrap();
        let (tell, told) = channel();
        let session = me.upgrade().unwrap();
        let listens = move |stays: &mut Stays, _: &mut Cx| stays.tell = tell;
        session.try_post(&simulation.poster(), listens).unwrap();
        drop(session);
        client.shutdown_write();
        settle(&mut simulation);
        assert_eq!(told.try_recv(), Ok("end"));
        let session = me.upgrade().expect("it is half-open");
        let ends = |stays: &mut Stays, cx: &mut Cx| stays.stream.set_half_open(cx, false).unwrap();
        session.try_post(&simulation.poster(), ends).unwrap();
        drop(session);
        settle(&mut simulation);
        assert_eq!(told.try_recv(), Ok("dropped"));
    }

    /// The peer would take what it has got for all.
    #[test]
    fn no_end_is_sent_when_sending_has_failed() {
        // The shutdown before the failure, and after it.
        for early in [true, false] {
            let (give, me) = channel();
            let (mut simulation, mut client) = serving(Runtime::builder(), move |_, stream, me| {
                give.send(me.clone()).unwrap();
                Stays::new(stream, channel().0)
            });
            let me: WeakColored<Stays> = me.recv().unwrap();
            let (session, poster) = (me.upgrade().unwrap(), simulation.poster());
            let net = simulation.network().clone();
            let write = move |stays: &mut Stays, cx: &mut Cx| {
                let failed = rustix::io::Errno::IO.raw_os_error();
                net.fail_next(SimCall::Send, failed);
                stays.stream.write(cx, "lost").unwrap();
                if early {
                    stays.stream.shutdown_write(cx).unwrap();
                }
            };
            session.try_post(&poster, write).unwrap();
            settle(&mut simulation);
            let late = |stays: &mut Stays, cx: &mut Cx| stays.stream.shutdown_write(cx).unwrap();
            session.try_post(&poster, late).unwrap();
            settle(&mut simulation);
            let read = client.read(&mut [0; 8]);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let close = |stays: &mut Stays, cx: &mut Cx| stays.stream.close(cx);
            session.try_post(&poster, close).unwrap();
            settle(&mut simulation);
            let read = client.read(&mut [0; 8]);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }

    /// The other runtime takes no more; through `post` that would be a panic.
    #[test]
    fn a_session_is_not_reached_by_another_runtime_after_its_end() {
        let ((give, me), (tell, _told)) = (channel(), channel());
        let (mut there, _client) = serving(Runtime::builder(), move |_, stream, me| {
            give.send(me.upgrade().unwrap()).unwrap();
            Stays::new(stream, tell.clone())
        });
        let session: Colored<Stays> = me.recv().unwrap();
        there.poster().stop();
        settle(&mut there);
        let mut here = Runtime::builder().simulate(2).unwrap();
        here.run(move |cx| {
            let never = |_: &mut Stays, _: &mut Cx| unreachable!();
            let refused = session.try_post(cx, never);
            let is_ended = |refused: &Rejected<_>| refused.reason == Reason::Ended;
            assert!(refused.as_ref().is_err_and(is_ended), "{refused:?}");
            cx.stop();
        })
        .unwrap();
    }

    /// What the session of a stream tells that was used `before`, is served after `client` has done
    /// something, and is then spoken to.
    fn served_late(before: fn(&mut Cx, &Stream), client: fn(&SimClient)) -> Vec<&'static str> {
        let (give, given): (_, Receiver<Stream>) = channel();
        let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
            let (stream, give) = (incoming.unwrap().open_unique(), give.clone());
            cx.post(stream.color(), move |cx| {
                before(cx, &stream);
                give.send(stream).unwrap();
            });
        };
        let on_accept = Callback::anonymous_each(Color::from(1), accept);
        let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
        let net = simulation.network().clone();
        let mut its = net.connect(addr).unwrap();
        settle(&mut simulation);
        client(&its);
        settle(&mut simulation);
        let stream = given.recv().unwrap();
        let (tell, told) = channel();
        stream.serve(&SERVE, |_, stream, _| Stays::new(stream, tell));
        settle(&mut simulation);
        let _ = its.write_all(b"!");
        settle(&mut simulation);
        let told: Vec<_> = told.try_iter().collect();
        // The listener, the client's end, and the connection if it is served.
        let is_over = told.contains(&"dropped");
        assert_eq!(net.open_count(), 2 + usize::from(!is_over));
        told
    }

    #[test]
    fn a_stream_can_be_served_late_and_its_session_is_told_if_its_end_has_come() {
        let nothing = |_: &SimClient| ();
        assert_eq!(served_late(|_, _| (), nothing), ["serve"]);
        assert_eq!(served_late(|_, _| (), SimClient::shutdown_write), ["end"]);
        // Closed, and broken.
        let over = ["end", "dropped"];
        assert_eq!(served_late(|cx, stream| stream.close(cx), nothing), over);
        let fails = |cx: &mut Cx, stream: &Stream| {
            let conn = &stream.conn;
            conn.owner.shutdown(conn.fd, crate::io::How::Write);
            stream.write(cx, "refused").unwrap();
        };
        assert_eq!(served_late(fails, nothing), over);
    }
}
