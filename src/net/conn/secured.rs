//! TLS between a connection's bytes and its application.
//!
//! [`Records`] is the protocol, and belongs to the color half, as all that the application reads
//! and writes. What is received goes through it in the event that delivers it, what is written in
//! the write: so a thief that has the color does the work. The queue, its limits and its marks
//! count the sealed bytes. Everything that is served by a connection, sessions, tasks, pipes, is
//! served by a secured one without knowing.
//!
//! **The handshake** comes before the application: until it is over, the stream belongs to its
//! callback. Then received bytes are kept as they came, until the connection is served: at most
//! [`KEPT_BYTES`], and what comes before a pause takes effect.
//!
//! **The end.** A close, and the end of the stream, are preceded by close_notify. A peer that
//! leaves without one has been cut off, or is careless: that is an error of the kind
//! `UnexpectedEof`, since what was received may be a part.

use super::lent::Doubt;
use super::records::{Opened, Records};
use super::sending::Next;
use super::{AtStop, ColorHalf, Conn, Phase};
use crate::host::panics::InTurn;
use crate::io::{Addr, RecvBuf, SendBuf};
use crate::net::stream::{Begun, Written};
use crate::net::{Stream, Timer, is_canceled};
use crate::{Callback, Cx, Handler, Poster, Reason};
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What handshakes run under.
pub(super) static HANDSHAKE: Handler = Handler::new("mely: TLS handshake");

/// With so many bytes kept for an application that is yet to come, receiving pauses.
const KEPT_BYTES: usize = 32 << 10;

/// What is called when the handshake is over.
pub(super) type OnSecured = Box<dyn FnOnce(&mut Cx, io::Result<()>) + Send>;

/// What a connection under TLS has in its color half.
pub(super) type OfColor = Option<Box<Secured>>;

/// See the module text.
pub(super) struct Secured {
    records: Records,
    /// None once it is over.
    handshake: Option<Handshake>,
    /// The end, if it came before the connection was served, or with bytes before it.
    kept_end: Option<io::Result<RecvBuf>>,
    /// For errors, also once the peer is gone.
    peer: Option<Addr>,
}

struct Handshake {
    tell: OnSecured,
    /// Its limit; canceled with it.
    _timer: Timer,
}

/// What TLS has failed with, and where: a [`rustls::Error`], or a handshake by one of receiving.
#[derive(Debug)]
struct TlsError<E> {
    peer: Option<Addr>,
    error: E,
}

impl<E: Error> fmt::Display for TlsError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS{}: {}", With(&self.peer), self.error)
    }
}

impl<E: Error + 'static> Error for TlsError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// What received bytes lead to, in the event that delivers them.
enum Received {
    /// They are kept; `pauses`: more than enough is.
    Kept {
        pauses: bool,
    },
    Handshake {
        out: Vec<u8>,
        over: Option<(Handshake, io::Result<()>)>,
    },
    Opened(Opened, Option<io::Result<RecvBuf>>),
}

impl Secured {
    /// What was received, or has ended receiving. None: goes on with what was kept, or begins the
    /// handshake. `is_served`: the application is there.
    fn receive(&mut self, result: Option<io::Result<RecvBuf>>, is_served: bool) -> Received {
        let (data, ended) = match result {
            None => (RecvBuf::end(), None),
            Some(Ok(data)) if !data.is_empty() => (data, None),
            Some(Ok(end)) => (end, Some(self.cut_off())),
            Some(Err(error)) => (RecvBuf::end(), Some(error)),
        };
        if self.handshake.is_some() {
            let mut out = Vec::new();
            let over = match ended {
                // A stop, or the error made above, which names the peer.
                Some(error) if is_canceled(&error) || is_cut_off(&error) => Some(Err(error)),
                Some(error) => {
                    let peer = self.peer.clone();
                    Some(Err(io::Error::new(error.kind(), TlsError { peer, error })))
                }
                None => match self.records.shake_hands(&data, &mut out) {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(self.error(error))),
                },
            };
            let over = over.and_then(|over| Some((self.handshake.take()?, over)));
            return Received::Handshake { out, over };
        }
        if !is_served {
            self.kept_end = self.kept_end.take().or(ended.map(Err));
            let pauses = self.records.keep(&data) >= KEPT_BYTES;
            return Received::Kept { pauses };
        }
        let mut opened = self.records.open(data);
        let end = opened.end.take().map(|end| match end {
            Ok(()) => Ok(RecvBuf::end()),
            Err(error) => Err(self.error(error)),
        });
        let end = end.or_else(|| self.kept_end.take());
        let mut end = end.or(ended.map(Err));
        if opened.data.is_some() {
            // As an event of its own: the application may give the connection away before.
            self.kept_end = end.take();
        }
        Received::Opened(opened, end)
    }

    fn error(&self, error: rustls::Error) -> io::Error {
        let peer = self.peer.clone();
        io::Error::new(io::ErrorKind::InvalidData, TlsError { peer, error })
    }

    /// The peer has left without saying so.
    fn cut_off(&self) -> io::Error {
        let how = match self.handshake {
            Some(_) => "during the handshake",
            None => "without close_notify",
        };
        let text = format!("TLS{}: the peer has left {how}", With(&self.peer));
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }

    fn too_late(&self, limit: Duration) -> io::Error {
        let text = format!(
            "the TLS handshake{} took longer than {limit:?}",
            With(&self.peer)
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// Whether it was made by [`Secured::cut_off`]: no receive fails with this kind.
fn is_cut_off(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Where it failed, if that is known.
struct With<'a>(&'a Option<Addr>);

impl fmt::Display for With<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => write!(f, " with {peer}"),
            None => Ok(()),
        }
    }
}

impl ColorHalf {
    /// Whether the connection is under TLS and has bytes, or an end, that came before it was served.
    fn has_kept(&self) -> bool {
        let kept = |secured: &Secured| {
            let is_over = secured.handshake.is_none();
            is_over && (secured.records.has_unopened() || secured.kept_end.is_some())
        };
        self.secured.as_deref().is_some_and(kept)
    }

    /// Seals a write, if the connection is under TLS. `Some(None)`: nothing can be sent any more.
    pub(in crate::net) fn seal<W: Written>(&mut self, written: &W) -> Option<Option<Vec<SendBuf>>> {
        let secured = self.secured.as_mut()?;
        Some(secured.records.seal_parts(written.parts()))
    }

    /// Whether a handshake is under way: nobody is served until it is over, not even a callback
    /// that runs while it begins.
    pub(in crate::net) fn shakes_hands(&self) -> bool {
        let secured = self.secured.as_ref();
        secured.is_some_and(|secured| secured.handshake.is_some())
    }

    /// The callback of a handshake that is not over, to be dropped with nothing borrowed.
    pub(super) fn take_handshake(&mut self) -> Option<OnSecured> {
        Some(self.secured.as_mut()?.handshake.take()?.tell)
    }

    /// Bytes that are sent as they are, whatever the limit.
    fn admit_sealed(&mut self, bytes: Vec<u8>) -> Option<Next> {
        let is_open = self.phase == Phase::Open && !self.broken && !self.shutdown;
        if !is_open || bytes.is_empty() {
            return None;
        }
        match self.begin_write(SendBuf::from(bytes), true, true) {
            Begun::Sends(next) => Some(next),
            Begun::Waits | Begun::Gathers { .. } => None,
        }
    }
}

impl Conn {
    /// Begins a handshake, in an event of the color. Whatever served the connection serves it no
    /// more. `tell` is called when it is over, in the color; also if it has taken longer than
    /// `limit`, and if the connection is over already.
    fn secure(self: &Arc<Conn>, cx: &mut Cx, records: Records, limit: Duration, tell: OnSecured) {
        let mut drops = InTurn::default();
        let timer = self.handshake_timer(cx, limit);
        let mut handshake = Some(Handshake {
            tell,
            _timer: timer.cancel_on_drop(),
        });
        let is_stopping = cx.stopping();
        let peer = self.owner.peer_addr(self.fd).ok();
        let (refused, callbacks) = {
            let mut colored = self.in_color(cx);
            (colored.closes_at_end, colored.half_open, colored.paused) = (false, false, false);
            let callbacks = (colored.on_data.take(), colored.on_drained.take());
            let refused = if colored.secured.is_some() {
                let text = "the connection is under TLS already";
                Some(io::Error::new(io::ErrorKind::InvalidInput, text))
            } else if colored.is_over() || colored.shutdown {
                Some(match is_stopping {
                    true => crate::net::ending(),
                    false => io::ErrorKind::NotConnected.into(),
                })
            } else {
                colored.secured = Some(Box::new(Secured {
                    records,
                    handshake: handshake.take(),
                    kept_end: None,
                    peer,
                }));
                None
            };
            (refused, callbacks)
        };
        drops.run(|| drop(callbacks));
        if let Some((error, handshake)) = refused.zip(handshake) {
            drops.run(|| (handshake.tell)(cx, Err(error)));
            return drops.end();
        }
        // A stop does not wait for a peer that is silent.
        if self.at_stop() == AtStop::Rests {
            self.set_at_stop(cx, AtStop::Told);
        }
        // The client speaks first.
        self.deliver_secured(cx, None);
        self.borrowed().receive(cx, true);
        drops.end();
    }

    fn handshake_timer(self: &Arc<Conn>, cx: &mut Cx, limit: Duration) -> Timer {
        let conn = Arc::downgrade(self);
        let due = move |cx: &mut Cx| {
            let Some(conn) = conn.upgrade() else { return };
            let told = {
                let mut colored = conn.in_color(cx);
                let error = colored.secured.as_ref().map(|its| its.too_late(limit));
                colored.take_handshake().zip(error)
            };
            if let Some((tell, error)) = told {
                tell(cx, Err(error));
            }
        };
        cx.timer(limit, Callback::new(Some(&HANDSHAKE), self.color(), due))
    }

    /// What was received on a connection under TLS is delivered by that; else it is returned.
    pub(super) fn unless_secured(
        self: &Arc<Conn>,
        cx: &mut Cx,
        result: io::Result<RecvBuf>,
    ) -> Option<io::Result<RecvBuf>> {
        if self.in_color(cx).secured.is_none() {
            return Some(result);
        }
        self.deliver_secured(cx, Some(result));
        None
    }

    /// Something was received on a connection under TLS, or what was kept is to be taken up; an
    /// event of the color.
    fn deliver_secured(self: &Arc<Conn>, cx: &mut Cx, result: Option<io::Result<RecvBuf>>) {
        // Posted before the application came, with a handler that is not the application's.
        let is_of_handshake = std::ptr::eq(cx.handler(), HANDSHAKE.name());
        // rustls calls the configuration's code.
        let doubt = Doubt(self);
        let received = {
            let mut colored = self.in_color(cx);
            let is_open = colored.phase == Phase::Open && !colored.ended;
            let is_served = colored.on_data.is_some() && !is_of_handshake;
            let secured = colored.secured.as_mut().filter(|_| is_open);
            secured.map(|secured| secured.receive(result, is_served))
        };
        std::mem::forget(doubt);
        let Some(received) = received else { return };
        self.stir(cx);
        match received {
            Received::Kept { pauses } if self.is_served(cx) => {
                if pauses {
                    // The event that delivers them has the home core go on.
                    Arc::clone(self).call_home(cx, |conn, driver, core| {
                        conn.receive(driver, core, false);
                    });
                }
                self.deliver_kept(cx);
            }
            Received::Kept { pauses: false } => {}
            Received::Kept { pauses: true } => self.borrowed().receive(cx, false),
            Received::Handshake { out, over } => {
                self.send_sealed(cx, out);
                if let Some((handshake, result)) = over {
                    if self.at_stop() == AtStop::Told && result.is_ok() {
                        self.set_at_stop(cx, AtStop::Rests);
                    }
                    (handshake.tell)(cx, result);
                }
            }
            Received::Opened(opened, end) => {
                self.send_sealed(cx, opened.out);
                if let Some(data) = opened.data {
                    Arc::clone(self).give(cx, Ok(data));
                    self.deliver_kept(cx);
                }
                if let Some(end) = end {
                    Arc::clone(self).call_home(cx, Conn::end_receiving);
                    Arc::clone(self).give(cx, end);
                }
            }
        }
    }

    /// Has what was kept delivered, if something was, by an event behind this one; in the color.
    /// True: that event also has the home core receive, if the application still wants to.
    pub(in crate::net) fn deliver_kept(self: &Arc<Conn>, cx: &mut Cx) -> bool {
        // If it is not served, it will be.
        if !self.in_color(cx).has_kept() || !self.is_served(cx) {
            return false;
        }
        let (this, color) = (Arc::clone(self), self.color());
        let handler = self.read_handler.get().copied();
        let event = move |cx: &mut Cx| {
            this.give_kept(cx);
            let receives = {
                let colored = this.in_color(cx);
                colored.phase == Phase::Open && !colored.ended && colored.receives
            };
            if receives {
                this.call_home(cx, |conn, driver, core| conn.receive(driver, core, true));
            }
        };
        cx.worker().core.post_own(handler, color, event);
        true
    }

    /// Gives to the application what was kept, if something was; in the color.
    pub(super) fn give_kept(self: &Arc<Conn>, cx: &mut Cx) {
        if self.in_color(cx).has_kept() && self.is_served(cx) {
            self.deliver_secured(cx, None);
        }
    }

    /// Sends what is sealed already.
    fn send_sealed(self: &Arc<Conn>, cx: &mut Cx, bytes: Vec<u8>) {
        let next = self.in_color(cx).admit_sealed(bytes);
        if let Some(next) = next {
            self.send_now(cx, next);
        }
    }

    /// Tells the peer that nothing more will be sent, before the end of the stream does; an event
    /// of the color.
    pub(in crate::net) fn say_end(self: &Arc<Conn>, cx: &mut Cx) {
        let bytes = {
            let mut colored = self.in_color(cx);
            let may = colored.phase == Phase::Open && !colored.shutdown && !colored.broken;
            let secured = colored.secured.as_mut().filter(|_| may);
            secured.and_then(|secured| secured.records.close())
        };
        if let Some(bytes) = bytes {
            self.send_sealed(cx, bytes);
        }
    }

    fn is_served(&self, cx: &mut Cx) -> bool {
        self.in_color(cx).on_data.is_some()
    }
}

impl Stream {
    /// What the events of handshakes run under.
    pub(crate) fn handshake_handler() -> &'static Handler {
        &HANDSHAKE
    }

    /// Begins a handshake, in an event of the color, and calls `f` when it is over, in the color.
    /// See [`Conn::secure`].
    pub(crate) fn secure<F>(self, cx: &mut Cx, records: Records, limit: Duration, f: F)
    where
        F: FnOnce(&mut Cx, io::Result<Stream>) + Send + 'static,
    {
        let conn = Arc::clone(&self.conn);
        let tell = move |cx: &mut Cx, result: io::Result<()>| {
            match &result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => self.abort(cx),
                Err(_) => self.close(cx),
            }
            f(cx, result.map(|()| self));
        };
        conn.secure(cx, records, limit, Box::new(tell));
    }

    /// The runtime of the connection.
    pub(crate) fn poster(&self) -> &Poster {
        self.conn.poster()
    }

    /// Whether this is an event of the connection's color.
    pub(crate) fn is_here(&self, cx: &Cx) -> bool {
        self.conn.colored.check(cx).is_ok()
    }

    /// Calls `f` with what was negotiated, if the connection is under TLS; in the color.
    pub(crate) fn with_records<R, F>(&self, cx: &Cx, f: F) -> Result<Option<R>, Reason>
    where
        R: 'static,
        F: FnOnce(&Records) -> R + 'static,
    {
        self.conn.colored.visit(cx, f, |colored, f| {
            let secured = colored.secured.as_deref();
            let secured = secured.filter(|secured| secured.handshake.is_none());
            secured.map(|secured| f(&secured.records))
        })
    }
}
