//! Sessions: a connection, and what is known of it, as one value.
//!
//! A *session* is the state of one connection. The state is in a cell of the connection's color
//! ([`Served`]), and the cell is held by the connection's two callbacks and by nobody else: a
//! [`Link`] holds it weakly, and the session is given its stream and owns none. So nothing leads
//! from the session back to the connection, and the state is dropped, in its color, with the
//! callbacks.

mod link;

pub use self::link::Link;
use super::conn::{ColorHalf, Phase};
use super::{Acceptors, Incoming, Listener, RecvBuf, Stream, is_canceled};
use crate::host::panics::LateDrop;
use crate::host::quiesce::Until;
use crate::in_color::InColor;
use crate::{Cx, Handler, Reason};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// What accepted connections are handed over under.
static ACCEPTED: Handler = Handler::new("mely: accepted");

/// What becomes of a connection after a call of its [`Session`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a session returns it"]
pub enum Then {
    /// The connection goes on.
    #[default]
    Continue,
    /// The connection is closed after what is queued has been sent; see [`Stream::close`].
    Close,
    /// The connection is closed at once, and what is queued is lost; see [`Stream::abort`].
    Abort,
}

/// The state of one connection, with what is done when something happens to the connection.
///
/// A session is served by [`Cx::serve`], [`Incoming::serve`] or [`Stream::serve`]. All its methods
/// are called in the connection's color and under the handler that `serve` was given: one at a
/// time, in the order in which things happened. In them no call of the stream is
/// [`Reason`](crate::Reason).
///
/// **The end.** [`end`](Self::end) is called at most once, and no [`data`](Self::data) after it.
/// When the connection is over, the session is dropped, in the color: after a method has returned
/// [`Then::Close`] and what was queued has been sent; after [`Then::Abort`]; after the stream was
/// closed by anybody. Between a close and the drop no method is called. If the peer does not read,
/// a close lasts until somebody calls [`Link::abort`], or for the stream's
/// [idle timeout](Stream::set_idle_timeout). A session that has something to do at its
/// end in any case does it in its `Drop`.
///
/// Sessions that are left when the run has ended are dropped with the runtime. No color runs then:
/// such a `Drop` is in no event, and on the thread that drops the runtime.
///
/// **Pause.** While the stream is paused ([`Stream::pause`]) neither bytes nor the end of the
/// peer's stream come, but for what was received before. A stop is told all the same. If sending
/// fails, the pause is over: what has arrived comes, and then the error.
///
/// **Panics.** If a method panics, the session is dropped and its connection is reset: its peer
/// does not take a part for the whole. Others go on, unless panics end the run
/// ([`OnPanic`](crate::runtime::OnPanic)).
///
/// ```
/// use mely::net::{RecvBuf, Session, Stream, Then};
/// use mely::Cx;
///
/// /// Counts what a client sends, and tells the client at the end.
/// struct Count(u64);
///
/// impl Session for Count {
///     fn data(&mut self, _cx: &mut Cx, _stream: &Stream, data: RecvBuf) -> Then {
///         self.0 += data.len() as u64;
///         Then::Continue
///     }
///
///     fn end(&mut self, cx: &mut Cx, stream: &Stream, end: std::io::Result<()>) -> Then {
///         if end.is_ok() {
///             let _ = stream.write(cx, self.0.to_string());
///         }
///         Then::Close // After the answer.
///     }
/// }
/// ```
pub trait Session: Send + 'static {
    /// Bytes have come: at least one, in the order in which the peer sent them. After
    /// [`Stream::pause`] at most [`AHEAD_BYTES_MAX`](super::AHEAD_BYTES_MAX) bytes still come.
    fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then;

    /// Everything that was written has left. What [`Stream::write_now`] says at once is not said
    /// again.
    fn drained(&mut self, cx: &mut Cx, stream: &Stream) -> Then {
        let _ = (cx, stream);
        Then::Continue
    }

    /// Nothing more will come.
    ///
    /// - `Ok`: the peer has sent the end of its stream. The peer may still read: with
    ///   [`Then::Continue`] the connection stays open for answers that are yet to be written, until
    ///   [`drained`](Self::drained) returns [`Then::Close`] or somebody closes the stream. Nobody
    ///   else does. With [`Then::Close`], which this method returns if it is not implemented, what
    ///   was written is sent, and then the connection is closed.
    /// - `ECANCELED`: the runtime was asked to stop. What is returned means the same. The run then
    ///   waits for the connection, up to the builder's drain deadline: with [`Then::Close`] also
    ///   for a peer that does not read.
    /// - Any other error: receiving or sending has failed, or the peer has done nothing for the
    ///   stream's [idle timeout](Stream::set_idle_timeout) (`TimedOut`). [`Then::Continue`] then
    ///   means [`Then::Close`]. If it was sending, what had arrived was given to
    ///   [`data`](Self::data) first.
    ///
    /// If sending fails after this call, the connection is closed and the session dropped.
    fn end(&mut self, cx: &mut Cx, stream: &Stream, end: io::Result<()>) -> Then {
        let _ = (cx, stream, end);
        Then::Close
    }
}

/// A session in the color of its connection.
struct Served<S>(InColor<Seat<S>>);

struct Seat<S> {
    /// None while it is lent, before it is opened, and after it has panicked.
    session: Option<Box<S>>,
    /// What sending has failed with, until the session is told.
    failure: Option<io::Error>,
    /// The session has been told that nothing more will come.
    ended: bool,
}

impl<S: Session> Served<S> {
    /// Lends the session to `f`, in an event of its color. If `f` panics the session is dropped by
    /// another event of the color.
    fn lend<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut S, &mut Cx) -> R) -> Option<R> {
        let session = self.0.borrow(cx).ok()?.session.take()?;
        let mut lent = Lent(&self.0, Some(session));
        let result = f(lent.1.as_mut()?, cx);
        self.0.borrow(cx).ok()?.session = lent.1.take();
        Some(result)
    }

    /// Bytes, the end of the stream or an error have come; called by `on_data`.
    fn received(&self, cx: &mut Cx, stream: &Stream, received: io::Result<RecvBuf>) {
        let end = match received {
            Ok(data) if !data.is_empty() => {
                let then = self.lend(cx, |session, cx| session.data(cx, stream, data));
                stream.follow(cx, then);
                // If sending has failed, the end is told when all is received: no pause holds then.
                if self.0.borrow(cx).is_ok_and(|seat| seat.failure.is_some()) {
                    let _ = stream.resume(cx);
                }
                return;
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let failure = match self.0.borrow(cx) {
            Ok(mut seat) => {
                seat.ended = true;
                seat.failure.take()
            }
            // Its callbacks are events of its color.
            Err(_) => return,
        };
        let end = failure.map_or(end, Err);
        // Otherwise nobody would ever hear of this connection again.
        let may_stay = end.as_ref().map_or_else(is_canceled, |()| true);
        let then = self.lend(cx, |session, cx| session.end(cx, stream, end));
        match then {
            Some(Then::Continue) if may_stay => stream.conn.stay_open(cx),
            // A detached connection is closed after this call.
            then => stream.follow(cx, then),
        }
    }

    /// All is sent, or sending has failed; called by `on_drained`.
    fn drained(&self, cx: &mut Cx, stream: &Stream, sent: io::Result<()>) {
        let failed = match sent {
            Ok(()) => {
                let then = self.lend(cx, |session, cx| session.drained(cx, stream));
                return stream.follow(cx, then);
            }
            Err(error) => error,
        };
        let ended = self.0.borrow(cx).is_ok_and(|mut seat| {
            seat.failure = Some(failed);
            seat.ended
        });
        if ended {
            stream.abort(cx);
        } else {
            // What has arrived is given first; then the receive ends as well, and the end is told.
            let _ = stream.resume(cx);
        }
    }
}

/// A session while it is lent. If it is dropped, and not given back, the call has panicked: then
/// the session is not dropped here, where a second panic would end the process.
struct Lent<'a, S: Session>(&'a InColor<Seat<S>>, Option<Box<S>>);

impl<S: Session> Drop for Lent<'_, S> {
    fn drop(&mut self) {
        if let Some(session) = self.1.take() {
            let session = LateDrop::new(session, true);
            let (poster, color) = (self.0.poster(), self.0.color());
            let event = move |_cx: &mut Cx| drop(session);
            let _ = poster.post_own_until(Until::End, None, color, event);
        }
    }
}

impl Stream {
    /// Does what a session has returned; nothing if there is none.
    fn follow(&self, cx: &mut Cx, then: Option<Then>) {
        match then {
            None | Some(Then::Continue) => {}
            Some(Then::Close) => self.close(cx),
            Some(Then::Abort) => self.abort(cx),
        }
    }

    /// Serves the connection by the session that `open` returns, under `handler`; see [`Session`].
    /// `open` is called now. From then on the connection lives on its own.
    ///
    /// A stream that had callbacks before loses them, and what they were given does not come again.
    /// The handler of an [`on_data`](Self::on_data) before stays the one of [`Session::data`] and
    /// [`Session::end`].
    ///
    /// A stream whose end has come is not served: if it is closed or being closed, if `on_data` has
    /// had its last call, or if sending has failed. Then `open` is dropped, and the connection
    /// closed.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, with which the connection is
    /// closed and `open` dropped.
    ///
    /// # Panics
    /// If `open` panics; then the connection is reset.
    pub fn serve<S, F>(self, cx: &mut Cx, handler: &'static Handler, open: F) -> Result<(), Reason>
    where
        S: Session,
        F: FnOnce(&mut Cx, &Stream, &Link<S>) -> S,
    {
        let is_over = |colored: &mut ColorHalf, ()| {
            colored.phase != Phase::Open || colored.ended || colored.broken
        };
        if self.conn.colored.visit(cx, (), is_over)? {
            // Dropped, the stream is closed.
            return Ok(());
        }
        let (color, poster) = (self.color(), self.conn.poster().clone());
        let seat = Seat {
            session: None,
            failure: None,
            ended: false,
        };
        let served = Arc::new(Served(InColor::new(poster.clone(), color, seat)));
        let link = Link {
            served: Arc::downgrade(&served),
            conn: Arc::downgrade(&self.conn),
            color,
            handler,
            poster,
        };
        let session = Box::new(open(cx, &self, &link));
        served.0.borrow(cx)?.session = Some(session);
        let its = Arc::clone(&served);
        self.on_drained(cx, handler, move |cx, stream, sent| {
            its.drained(cx, stream, sent);
        })?;
        self.on_data(cx, handler, move |cx, stream, received| {
            served.received(cx, stream, received);
        })?;
        self.detach(cx)
    }
}

impl Incoming {
    /// Gives the connection a color of its own, as [`open_unique`](Self::open_unique) does, and
    /// serves it there by the session that `open` returns; see [`Session`]. `open` is an event of
    /// that color, under `handler`: the first one. If the runtime ends before, `open` is dropped
    /// and the connection closed.
    ///
    /// A client is served in the same way:
    ///
    /// ```
    /// use mely::net::{Acceptors, RecvBuf, Session, Stream, Then};
    /// use mely::runtime::Finish;
    /// use mely::{Color, Cx, Handler, Runtime};
    /// use std::io;
    /// static SERVER: Handler = Handler::new("server");
    /// static CLIENT: Handler = Handler::new("client");
    ///
    /// struct Server;
    /// impl Session for Server {
    ///     fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
    ///         match stream.write(cx, data) {
    ///             Ok(()) => Then::Continue,
    ///             Err(_) => Then::Abort,
    ///         }
    ///     }
    /// }
    ///
    /// struct Client(Finish<Vec<u8>>, Vec<u8>);
    /// impl Session for Client {
    ///     fn data(&mut self, _cx: &mut Cx, _stream: &Stream, data: RecvBuf) -> Then {
    ///         self.1.extend_from_slice(&data);
    ///         Then::Continue
    ///     }
    ///     fn end(&mut self, _cx: &mut Cx, _stream: &Stream, _end: io::Result<()>) -> Then {
    ///         self.0.finish(std::mem::take(&mut self.1));
    ///         Then::Close
    ///     }
    /// }
    ///
    /// fn start(cx: &mut Cx, finish: Finish<Vec<u8>>) -> io::Result<()> {
    ///     let any = ([127, 0, 0, 1], 0).into();
    ///     let listener = cx.serve(any, Acceptors::PerCore, &SERVER, |_, _, _| Server)?;
    ///     let addr = listener.local_addr();
    ///     listener.detach();
    ///     let connected = CLIENT.on_value(Color::DEFAULT, move |_, incoming: io::Result<_>| {
    ///         let incoming: mely::net::Incoming = incoming.expect("the server listens");
    ///         incoming.serve(&CLIENT, move |cx, stream, _link| {
    ///             let _ = stream.write(cx, "hello");
    ///             let _ = stream.shutdown_write(cx);
    ///             Client(finish, Vec::new())
    ///         });
    ///     });
    ///     cx.connect(addr, connected)
    /// }
    ///
    /// let echoed = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     start(cx, finish).expect("a free port");
    /// })?;
    /// assert_eq!(echoed, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve<S, F>(self, handler: &'static Handler, open: F)
    where
        S: Session,
        F: FnOnce(&mut Cx, &Stream, &Link<S>) -> S + Send + 'static,
    {
        let stream = self.open_unique();
        let (poster, color) = (stream.conn.poster().clone(), stream.color());
        // Refused once the end is decided: then the connection is closed with the event.
        let _ = poster.post_own_until(Until::End, Some(handler), color, move |cx: &mut Cx| {
            // Not refused: this is its color.
            let _ = stream.serve(cx, handler, open);
        });
    }
}

impl Cx {
    /// Listens on `addr`, as [`listen`](Self::listen) does, and serves each connection in a color
    /// of its own by the session that `open` returns; see [`Session`]. `open` gets the stream, and
    /// the session's [`Link`]; it is an event of the connection's color, under `handler`, so that
    /// for several connections it may run at the same time.
    ///
    /// When accepting fails (no more descriptors, say), it goes on a little later, and connections
    /// wait in the kernel meanwhile. Who wants to hear of that, or to refuse connections before
    /// they get a color, calls [`listen`](Self::listen) and [`Incoming::serve`].
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use mely::net::{Acceptors, RecvBuf, Session, Stream, Then};
    /// use mely::{Cx, Handler, Runtime};
    /// use std::io::{Read, Write};
    /// static SHOUT: Handler = Handler::new("shout");
    ///
    /// struct Shout;
    ///
    /// impl Session for Shout {
    ///     fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
    ///         match stream.write(cx, data.to_ascii_uppercase()) {
    ///             Ok(()) => Then::Continue,
    ///             Err(_) => Then::Abort, // It does not read.
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
    ///     let any = ([127, 0, 0, 1], 0).into();
    ///     let listener = cx.serve(any, Acceptors::PerCore, &SHOUT, |_, _, _| Shout);
    ///     let listener = listener.expect("a free port");
    ///     tell.send(listener.local_addr()).unwrap();
    ///     listener.detach();
    /// })?;
    /// assert_eq!(client.join().unwrap()?, "HELLO");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve<S, F>(
        &mut self,
        addr: SocketAddr,
        acceptors: Acceptors,
        handler: &'static Handler,
        open: F,
    ) -> io::Result<Listener>
    where
        S: Session,
        F: Fn(&mut Cx, &Stream, &Link<S>) -> S + Send + Sync + 'static,
    {
        let (open, accepting) = (Arc::new(open), self.unique_color());
        let color = accepting.color();
        let accepted = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
            // The color is the listener's as long as there is this closure.
            let _ = &accepting;
            if let Ok(incoming) = incoming {
                let open = Arc::clone(&open);
                incoming.serve(handler, move |cx, stream, link| open(cx, stream, link));
            }
        };
        self.listen(addr, acceptors, ACCEPTED.on_each(color, accepted))
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
    use crate::{Callback, Color, Rejected, Runtime};
    use std::io::{Read, Write};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    static SERVE: Handler = Handler::new("serve");

    /// Returns this for whatever comes.
    struct Fixed(Then, #[allow(dead_code, reason = "for its drop")] Witness);

    impl Session for Fixed {
        fn data(&mut self, _cx: &mut Cx, _stream: &Stream, _data: RecvBuf) -> Then {
            self.0
        }
    }

    /// However the connection ends, and whoever ends it.
    #[test]
    fn a_session_is_dropped_in_its_color_and_its_connection_closed() {
        type End = fn(&Simulation, &mut SimClient, &Link<Fixed>);
        let ends: [(Then, End); 5] = [
            (Then::Close, |_, client, _| client.write_all(b"!").unwrap()),
            (Then::Abort, |_, client, _| client.write_all(b"!").unwrap()),
            (Then::Continue, |_, client, _| client.shutdown_write()),
            (Then::Continue, |simulation, _, link| {
                let close = |_: &mut Fixed, cx: &mut Cx, stream: &Stream| stream.close(cx);
                link.try_post(&simulation.poster(), close).unwrap();
            }),
            (Then::Continue, |simulation, _, link| {
                // With an event of the session's that is left behind its end.
                let again = link.clone();
                let end = move |_: &mut Fixed, cx: &mut Cx, stream: &Stream| {
                    again.post(cx, |_, _, _| unreachable!());
                    stream.abort(cx);
                };
                link.try_post(&simulation.poster(), end).unwrap();
            }),
        ];
        for (then, end) in ends {
            let drops = Drops::default();
            let given = drops.clone();
            let (give, link) = channel();
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let (give, witness) = (give.clone(), given.witness(cx.poster()));
                incoming.unwrap().serve(&SERVE, move |_cx, _stream, link| {
                    give.send(link.clone()).unwrap();
                    Fixed(then, witness)
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let (mut simulation, addr) = listening(Runtime::builder(), 1, on_accept);
            let net = simulation.network().clone();
            let mut client = net.connect(addr).unwrap();
            settle(&mut simulation);
            let link = link.recv().unwrap();
            // The listener and both ends.
            assert_eq!((net.open_count(), drops.seen().len()), (3, 0));
            end(&simulation, &mut client, &link);
            settle(&mut simulation);
            assert_eq!(drops.seen(), [Some(link.color())]);
            assert_eq!(net.open_count(), 2);
            assert!(link.is_gone());
        }
    }

    /// A simulated server of one core, whose connections are each served by what `open` returns,
    /// and a client of it.
    fn serving<S, F>(builder: crate::Builder, open: F) -> (Simulation, SimClient)
    where
        S: Session,
        F: Fn(&mut Cx, &Stream, &Link<S>) -> S + Send + Sync + 'static,
    {
        let open = Arc::new(open);
        let accept = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
            let open = Arc::clone(&open);
            incoming
                .unwrap()
                .serve(&SERVE, move |cx, stream, link| open(cx, stream, link));
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
        bytes: usize,
        then: Then,
        panics: bool,
    }

    impl Session for Says {
        fn data(&mut self, cx: &mut Cx, stream: &Stream, _data: RecvBuf) -> Then {
            stream.write(cx, vec![7; self.bytes]).unwrap();
            self.then
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
        type End = fn(&mut SimClient, &Link<Says>, &mut Simulation);
        let speak: End = |client, _, _| client.write_all(b"!").unwrap();
        let ends: [(usize, Then, End); 5] = [
            (0, Then::Close, speak),
            (0, Then::Abort, speak),
            (MUCH, Then::Close, |client, _, simulation| {
                client.write_all(b"!").unwrap();
                let mut unread = MUCH;
                while unread > 0 {
                    settle(simulation);
                    unread -= client.read(&mut vec![0; MUCH]).unwrap();
                }
            }),
            (0, Then::Continue, |client, _, _| client.shutdown_write()),
            (0, Then::Continue, |_, link, _| link.abort()),
        ];
        for (bytes, then, end) in ends {
            let (give, link) = channel();
            let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
            let builder = builder.panic_hook(|_| ());
            let (mut simulation, mut client) = serving(builder, move |_, _, link| {
                give.send(link.clone()).unwrap();
                let panics = true;
                Says {
                    bytes,
                    then,
                    panics,
                }
            });
            end(&mut client, &link.recv().unwrap(), &mut simulation);
            settle(&mut simulation);
            let panics = simulation.stats().cores[0].panics;
            assert_eq!(panics, 1);
            // The listener and the client's end.
            assert_eq!(simulation.network().open_count(), 2);
        }
    }

    /// Panics, and again when it is dropped for that.
    struct PanicsTwice;

    impl Session for PanicsTwice {
        fn data(&mut self, _: &mut Cx, _: &Stream, _: RecvBuf) -> Then {
            panic!("when called")
        }
    }

    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic!("when dropped")
        }
    }

    /// Else a peer could end the process by one message. So it is with a callback.
    #[test]
    fn a_panic_and_another_when_its_session_is_dropped_cost_one_connection() {
        let builder = || {
            let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
            builder.panic_hook(|_| ())
        };
        let served = serving(builder(), |_, _, _| PanicsTwice);
        let called = {
            let accept = |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let stream = incoming.unwrap().open_unique();
                cx.post(stream.color(), move |cx| {
                    let mut session = PanicsTwice;
                    let read = move |cx: &mut Cx, stream: &Stream, data: io::Result<RecvBuf>| {
                        let _ = session.data(cx, stream, data.unwrap());
                    };
                    stream.on_data(cx, &SERVE, read).unwrap();
                    stream.detach(cx).unwrap();
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let (mut simulation, addr) = listening(builder(), 1, on_accept);
            let client = simulation.network().connect(addr).unwrap();
            settle(&mut simulation);
            (simulation, client)
        };
        for (mut simulation, mut client) in [served, called] {
            client.write_all(b"!").unwrap();
            settle(&mut simulation);
            assert_eq!(simulation.stats().panics(), 2);
            let end = client.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
            // The listener and the client's end.
            assert_eq!(simulation.network().open_count(), 2);
        }
    }

    /// Panics when it is spoken to.
    struct Owner(#[expect(dead_code, reason = "owned")] Stream);

    impl Session for Owner {
        fn data(&mut self, _: &mut Cx, _: &Stream, _: RecvBuf) -> Then {
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
        let ways: [(&str, Owned); 10] = [
            ("session", |_, stream, other| {
                other.serve(&SERVE, move |_, _, _| Owner(stream));
            }),
            ("callback", |cx, stream, other| {
                let other = other.open(cx.color());
                let read = move |_: &mut Cx, _: &Stream, _: io::Result<RecvBuf>| {
                    let _owned = &stream;
                    panic!("planted")
                };
                other.on_data(cx, &SERVE, read).unwrap();
                other.detach(cx).unwrap();
            }),
            ("the other callback", |cx, stream, other| {
                let other = other.open(cx.color());
                let drained = move |_: &mut Cx, _: &Stream, _: io::Result<()>| {
                    let _owned = &stream;
                };
                other.on_drained(cx, &SERVE, drained).unwrap();
                let read = |_: &mut Cx, _: &Stream, _: io::Result<RecvBuf>| panic!("planted");
                other.on_data(cx, &SERVE, read).unwrap();
                other.detach(cx).unwrap();
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
                let client = net.connect(addr).unwrap();
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

    /// Also when the runtime was asked to stop, from outside.
    #[test]
    fn a_close_that_waits_for_its_peer_is_ended_by_an_abort() {
        for stops in [false, true] {
            let (give, link) = channel();
            let open = move |_: &mut Cx, _: &Stream, link: &Link<Says>| {
                give.send(link.clone()).unwrap();
                let (bytes, then, panics) = (MUCH, Then::Close, false);
                Says {
                    bytes,
                    then,
                    panics,
                }
            };
            let (mut simulation, mut client) = serving(Runtime::builder(), open);
            let (link, poster) = (link.recv().unwrap(), simulation.poster());
            client.write_all(b"!").unwrap();
            settle(&mut simulation);
            // It is being closed: nothing else reaches it any more.
            link.try_post(&poster, |_, _, _| unreachable!()).unwrap();
            settle(&mut simulation);
            assert!(!link.is_gone());
            if stops {
                poster.stop();
            }
            link.abort();
            settle(&mut simulation);
            assert!(link.is_gone());
            // Far from the deadline of a stop.
            assert!(simulation.now() < Duration::from_secs(1));
            match stops {
                true => simulation.end().unwrap(),
                false => assert_eq!(simulation.network().open_count(), 2),
            }
        }
    }

    /// Counts its calls, and goes on whatever comes.
    struct Stays(Sender<&'static str>);

    impl Session for Stays {
        fn data(&mut self, cx: &mut Cx, _stream: &Stream, _data: RecvBuf) -> Then {
            self.0.send(cx.handler()).unwrap();
            Then::Continue
        }

        fn end(&mut self, _cx: &mut Cx, _stream: &Stream, _end: io::Result<()>) -> Then {
            self.0.send("end").unwrap();
            Then::Continue
        }
    }

    impl Drop for Stays {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    /// It would be there for ever: nobody hears of it again.
    #[test]
    fn a_connection_that_failed_does_not_stay_open() {
        let (tell, told) = channel();
        let builder = Runtime::builder();
        let (mut simulation, client) = serving(builder, move |_, _, _| Stays(tell.clone()));
        client.reset();
        settle(&mut simulation);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["end", "dropped"]);
        assert_eq!(simulation.network().open_count(), 1);
    }

    /// The peer would take what it has got for all.
    #[test]
    fn no_end_is_sent_when_sending_has_failed() {
        // The shutdown before the failure, and after it.
        for early in [true, false] {
            let (give, link) = channel();
            let (mut simulation, mut client) = serving(Runtime::builder(), move |_, _, link| {
                give.send(link.clone()).unwrap();
                Stays(channel().0)
            });
            let (link, poster) = (link.recv().unwrap(), simulation.poster());
            let net = simulation.network().clone();
            let write = move |_: &mut Stays, cx: &mut Cx, stream: &Stream| {
                let failed = rustix::io::Errno::IO.raw_os_error();
                net.fail_next(SimCall::Send, failed);
                stream.write(cx, "lost").unwrap();
                if early {
                    stream.shutdown_write(cx).unwrap();
                }
            };
            link.try_post(&poster, write).unwrap();
            settle(&mut simulation);
            let late = |_: &mut Stays, cx: &mut Cx, stream: &Stream| {
                stream.shutdown_write(cx).unwrap();
            };
            link.try_post(&poster, late).unwrap();
            settle(&mut simulation);
            let read = client.read(&mut [0; 8]);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let close = |_: &mut Stays, cx: &mut Cx, stream: &Stream| stream.close(cx);
            link.try_post(&poster, close).unwrap();
            settle(&mut simulation);
            let read = client.read(&mut [0; 8]);
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }

    /// A callback of a link may be posted anywhere.
    #[test]
    fn a_link_does_nothing_in_another_runtime() {
        let (give, link) = channel();
        let (mut there, _client) = serving(Runtime::builder(), move |_, _, link| {
            give.send(link.clone()).unwrap();
            Stays(channel().0)
        });
        let link = link.recv().unwrap();
        there.poster().stop();
        settle(&mut there);
        let mut here = Runtime::builder().simulate(2).unwrap();
        here.run(move |cx| {
            let never = |_: &mut Stays, _: &mut Cx, _: &Stream| unreachable!();
            link.on(&SERVE, never).post(cx);
            // The other runtime takes no more; through `post` that would be a panic.
            let refused = link.try_post(cx, never);
            assert!(
                matches!(
                    refused,
                    Err(Rejected {
                        reason: Reason::Ended,
                        ..
                    })
                ),
                "{refused:?}"
            );
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
        let (color, (tell, told)) = (stream.color(), channel());
        let serve = move |cx: &mut Cx| {
            stream.serve(cx, &SERVE, |_, _, _| Stays(tell)).unwrap();
        };
        simulation.poster().try_post(color, serve).unwrap();
        settle(&mut simulation);
        let _ = its.write_all(b"!");
        settle(&mut simulation);
        let told: Vec<_> = told.try_iter().collect();
        // The listener, the client's end, and the connection if it is served.
        assert_eq!(net.open_count(), 2 + usize::from(!told.is_empty()));
        told
    }

    #[test]
    fn a_stream_can_be_served_late_unless_its_end_has_come() {
        static BEFORE: Handler = Handler::new("before");
        fn on_data(cx: &mut Cx, stream: &Stream) {
            stream.on_data(cx, &BEFORE, |_, _, _| ()).unwrap();
        }
        let nothing = |_: &SimClient| ();
        assert_eq!(served_late(|_, _| (), nothing), ["serve"]);
        // The callback is replaced, and its handler stays.
        assert_eq!(served_late(on_data, nothing), ["before"]);
        assert_eq!(served_late(|_, _| (), SimClient::shutdown_write), ["end"]);
        // Told of the end before, closed, and broken.
        assert!(served_late(on_data, SimClient::shutdown_write).is_empty());
        assert!(served_late(|cx, stream| stream.close(cx), nothing).is_empty());
        let fails = |cx: &mut Cx, stream: &Stream| {
            let conn = &stream.conn;
            conn.owner.shutdown(conn.fd, crate::io::How::Write);
            stream.write(cx, "refused").unwrap();
        };
        assert!(served_late(fails, nothing).is_empty());
    }
}
