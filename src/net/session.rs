//! Sessions: a connection, and what is known of it, as one value.
//!
//! A *session* is the state of one connection. The state is in a cell of the connection's color
//! ([`Served`]), and the cell is held by the connection's two callbacks and by nobody else: a
//! [`Link`] holds it weakly, and the session is given its stream and owns none. So nothing leads
//! from the session back to the connection, and the state is dropped, in its color, with the
//! callbacks.

use super::conn::{Conn, Phase};
use super::{Acceptors, Incoming, Listener, RecvBuf, Stream};
use crate::callback::Callback;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::in_color::InColor;
use crate::post::post_wrapped;
use crate::{Color, Cx, Handler, Post, Refused};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

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
/// [`Refused`].
///
/// **The end.** [`end`](Self::end) is called at most once, and no [`data`](Self::data) after it.
/// When the connection is over, the session is dropped, in the color: after a method has returned
/// [`Then::Close`] and what was queued has been sent; after [`Then::Abort`]; after the stream was
/// closed by anybody; with the runtime, if that ends first. Between a close and the drop no method
/// is called. A session that has something to do at its end in any case does it in its `Drop`.
///
/// **Panics.** If a method panics, with
/// [`OnPanic::DropEvent`](crate::OnPanic::DropEvent), the session is dropped and its connection is
/// closed at once. Others go on.
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
    /// - `ECANCELED`: the runtime was asked to stop. What is returned means the same.
    /// - Any other error: receiving or sending has failed. If it was sending, the connection is
    ///   closed whatever is returned, and what had arrived was given to [`data`](Self::data) first.
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
    /// Lends the session to `f`, in an event of its color. If `f` panics the session is dropped.
    fn lend<R>(&self, cx: &mut Cx, f: impl FnOnce(&mut S, &mut Cx) -> R) -> Option<R> {
        let mut session = self.0.borrow(cx).ok()?.session.take()?;
        let result = f(&mut session, cx);
        self.0.borrow(cx).ok()?.session = Some(session);
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
        let is_broken = failure.is_some();
        let end = failure.map_or(end, Err);
        let then = self.lend(cx, |session, cx| session.end(cx, stream, end));
        match then {
            Some(Then::Continue) if !is_broken => stream.conn.stay_open(cx),
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

/// A session as others see it: posts to it, and keeps neither the session nor its connection.
///
/// `Clone + Send + Sync`. A session may have its own link.
///
/// ```
/// use mely::net::{Link, RecvBuf, Session, Stream, Then};
/// use mely::{Cx, Handler};
/// use std::time::Duration;
/// static HURRY: Handler = Handler::new("hurry");
///
/// struct Slow(Link<Slow>);
///
/// impl Session for Slow {
///     fn data(&mut self, cx: &mut Cx, _stream: &Stream, _data: RecvBuf) -> Then {
///         let hurry = self.0.on(&HURRY, |_slow, cx, stream| {
///             let _ = stream.write(cx, "still there?\n");
///         });
///         cx.timer(Duration::from_secs(10), hurry);
///         Then::Continue
///     }
/// }
/// ```
pub struct Link<S> {
    served: Weak<Served<S>>,
    conn: Weak<Conn>,
    color: Color,
    handler: &'static Handler,
    poster: Poster,
}

impl<S: Session> Link<S> {
    /// The connection's color.
    pub fn color(&self) -> Color {
        self.color
    }

    /// Whether the connection is gone. If not, it may be by the time that anything is done with
    /// it.
    pub fn is_gone(&self) -> bool {
        self.served.strong_count() == 0
    }

    /// Posts `f` to the connection's color, under the session's handler: it runs with the session
    /// and the stream, in the runtime of the connection. If the connection is closed by then, `f`
    /// is dropped instead, in that color; if it is gone already, `f` is dropped at once. If `f`
    /// panics, that is as a panic of the session.
    ///
    /// Returns nothing with a [`Cx`], and with a [`Poster`] a `Result` that gives the closure back
    /// once the runtime was asked to stop, or at the builder's limit of queued events.
    ///
    /// # Panics
    /// With a [`Cx`]: at the builder's limit of queued events.
    pub fn post<P, F>(&self, by: &P, f: F) -> P::Posted<F>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut S, &mut Cx, &Stream) + Send + 'static,
    {
        if self.is_gone() {
            drop(f);
            return P::posted(Ok(()));
        }
        let handler = Some(self.handler);
        let wrap = |f| {
            let this = self.clone();
            move |cx: &mut Cx| this.lend(cx, f)
        };
        P::posted(post_wrapped(by, &self.poster, handler, self.color, f, wrap))
    }

    /// A callback that runs `f` with the session and the stream, in the connection's color and
    /// under `handler`. If the connection is closed by then, `f` is dropped instead.
    pub fn on<F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx) + Send + 'static + use<S, F>>
    where
        F: FnOnce(&mut S, &mut Cx, &Stream) + Send + 'static,
    {
        let this = self.clone();
        Callback::new(Some(handler), self.color, move |cx: &mut Cx| {
            this.lend(cx, f)
        })
    }

    /// Like [`on`](Self::on), for what delivers one result.
    pub fn on_value<V, F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx, V) + Send + 'static + use<S, V, F>>
    where
        V: 'static,
        F: FnOnce(&mut S, &mut Cx, &Stream, V) + Send + 'static,
    {
        let this = self.clone();
        Callback::new(Some(handler), self.color, move |cx: &mut Cx, value: V| {
            this.lend(cx, |session, cx, stream| f(session, cx, stream, value));
        })
    }

    /// Lends session and stream to `f`, in an event of the connection's color.
    fn lend<F>(&self, cx: &mut Cx, f: F)
    where
        F: FnOnce(&mut S, &mut Cx, &Stream),
    {
        // Not before: whoever drops the last of them is to be an event of this color.
        let (Some(conn), Some(served)) = (self.conn.upgrade(), self.served.upgrade()) else {
            return;
        };
        let phase = conn.colored.borrow(cx).map(|colored| colored.phase);
        if phase != Ok(Phase::Open) {
            return;
        }
        let stream = Stream { conn, owner: false };
        let doubt = Doubt(&stream.conn);
        served.lend(cx, |session, cx| f(session, cx, &stream));
        std::mem::forget(doubt);
    }
}

/// A call of the session from outside the connection's callbacks. If it is dropped, the call has
/// panicked.
struct Doubt<'a>(&'a Arc<Conn>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        Conn::close_after_panic(self.0);
    }
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        Link {
            served: Weak::clone(&self.served),
            conn: Weak::clone(&self.conn),
            color: self.color,
            handler: self.handler,
            poster: self.poster.clone(),
        }
    }
}

impl<S> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("color", &self.color)
            .finish_non_exhaustive()
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
    /// `open` is called now, before anything is received. From then on the connection lives on its
    /// own, and callbacks that were set before are dropped.
    ///
    /// # Errors
    /// [`Refused`] outside the connection's color, with which the connection is closed and `open`
    /// dropped.
    ///
    /// # Panics
    /// If `open` panics; then the connection is closed.
    pub fn serve<S, F>(self, cx: &mut Cx, handler: &'static Handler, open: F) -> Result<(), Refused>
    where
        S: Session,
        F: FnOnce(&mut Cx, &Stream, &Link<S>) -> S,
    {
        self.conn.colored.check(cx)?;
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
    /// use mely::{Color, Cx, Finish, Handler, Runtime};
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
    use crate::Runtime;
    use crate::net::SimClient;
    use crate::net::tests::{Drops, Witness, listening, settle};
    use crate::sim::Simulation;
    use std::io::Write;
    use std::sync::mpsc::channel;

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
                link.post(&simulation.poster(), close).unwrap();
            }),
            (Then::Continue, |simulation, _, link| {
                // With an event of the session's that is left behind its end.
                let again = link.clone();
                let end = move |_: &mut Fixed, cx: &mut Cx, stream: &Stream| {
                    again.post(cx, |_, _, _| unreachable!());
                    stream.abort(cx);
                };
                link.post(&simulation.poster(), end).unwrap();
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
}
