//! The application's callbacks: where they are between calls, and while they run.
//!
//! A callback is taken out of the color half for the time of its call, so that the application can
//! do with the connection what it likes meanwhile: close it, or set another callback. It is dropped
//! after its last call, since what it holds may hold the connection.
//!
//! **A panic** of a callback, or of a session ([`crate::net::session`]), leaves the application's
//! part of the connection in doubt: the connection is reset, by the next event of its color
//! ([`Conn::reset_after_panic`]). That event also drops the callback, since a second panic while
//! the first one unwinds would end the process. A stream that is dropped while a panic unwinds, as
//! the stream of a task is, resets its connection as well: to the peer, an end would mean that it
//! has got everything.

use super::secured::OnSecured;
use super::{ColorHalf, Conn, Mark, Phase};
use crate::host::panics::{InTurn, LateDrop};
use crate::host::quiesce::Until;
use crate::io::RecvBuf;
use crate::net::Stream;
use crate::{Cx, Handler};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What is called with each result of one kind.
type OnResult<R> = Box<dyn FnMut(&mut Cx, &Stream, io::Result<R>) + Send>;
/// Where it is kept between its calls, if it may be called again.
type Field<R> = fn(&mut ColorHalf) -> Option<&mut Option<OnResult<R>>>;

pub(super) type OnData = OnResult<RecvBuf>;
pub(super) type AfterReceived = Box<dyn FnOnce(&mut Cx) + Send>;
pub(super) type OnDrained = OnResult<()>;
pub(in crate::net) type OnSent = Box<dyn FnOnce(&mut Cx, io::Result<()>) + Send>;

impl ColorHalf {
    /// Where `on_data` is kept between its calls, if it may be called again.
    pub(in crate::net) fn place_of_on_data(&mut self) -> Option<&mut Option<OnData>> {
        let is_over = self.ended || self.shakes_hands();
        (self.phase == Phase::Open && !is_over).then_some(&mut self.on_data)
    }

    /// The same of `on_drained`: its last call is the one with an error.
    pub(in crate::net) fn place_of_on_drained(&mut self) -> Option<&mut Option<OnDrained>> {
        let is_over = self.broken || self.shakes_hands();
        (self.phase == Phase::Open && !is_over).then_some(&mut self.on_drained)
    }

    /// All of them, to be dropped with nothing borrowed.
    pub(super) fn take_callbacks(&mut self) -> Callbacks {
        Callbacks {
            on_data: self.on_data.take(),
            on_drained: self.on_drained.take(),
            after_received: std::mem::take(&mut self.after_received),
            on_arrived: self.on_arrived.take(),
            marks: std::mem::take(&mut self.marks),
            handshake: self.take_handshake(),
            after_panic: self.panicked,
        }
    }
}

/// Callbacks that are not called any more. They are the user's: each is dropped also if the drop of
/// another panics, which then goes on.
pub(super) struct Callbacks {
    pub(super) on_data: Option<OnData>,
    pub(super) on_drained: Option<OnDrained>,
    pub(super) after_received: Vec<AfterReceived>,
    pub(super) on_arrived: Option<AfterReceived>,
    pub(super) marks: VecDeque<Mark>,
    pub(super) handshake: Option<OnSecured>,
    /// The connection is over since the application has panicked.
    pub(super) after_panic: bool,
}

impl Callbacks {
    pub(super) fn drop_each(self, drops: &mut InTurn) {
        let after_panic = self.after_panic;
        drops.run(|| drop(LateDrop::new(self.on_data, after_panic)));
        drops.run(|| drop(LateDrop::new(self.on_drained, after_panic)));
        for callback in self.after_received.into_iter().chain(self.on_arrived) {
            drops.run(|| drop(LateDrop::new(callback, after_panic)));
        }
        drops.run(|| drop(LateDrop::new(self.handshake, after_panic)));
        for mark in self.marks {
            drops.run(|| drop(LateDrop::new(mark.callback, after_panic)));
        }
    }
}

impl ColorHalf {
    /// Whether received bytes have a callback.
    pub(in crate::net) fn is_served(&self) -> bool {
        self.on_data.is_some()
    }
}

impl Conn {
    /// Takes the callbacks of whoever was served, in an event of the color, before somebody else is
    /// under `handler`. Whether the connection is over.
    pub(in crate::net) fn end_serving(
        self: &Arc<Conn>,
        cx: &mut Cx,
        handler: &'static Handler,
        drops: &mut InTurn,
    ) -> bool {
        // What is received as soon as that is wanted has a handler.
        let _ = self.read_handler.set(handler);
        let (is_over, on_data, on_drained) = {
            let mut colored = self.in_color(cx);
            (colored.closes_at_end, colored.half_open) = (false, false);
            (
                colored.is_over(),
                colored.on_data.take(),
                colored.on_drained.take(),
            )
        };
        drops.run(|| drop(on_data));
        drops.run(|| drop(on_drained));
        is_over
    }

    /// Calls a callback that was taken out of its place, in an event of the color, and gives it
    /// back. Returns the stream that it was called with, and the callback if it is not called any
    /// more: for the caller to drop last, since that may panic.
    pub(super) fn call<R: 'static>(
        self: Arc<Conn>,
        cx: &mut Cx,
        callback: OnResult<R>,
        place: Field<R>,
        result: io::Result<R>,
    ) -> (Stream, Option<OnResult<R>>) {
        let stream = Stream {
            conn: self,
            owner: false,
        };
        let mut lent = Lent {
            conn: &stream.conn,
            callback: Some(callback),
            place,
        };
        if let Some(callback) = &mut lent.callback {
            callback(cx, &stream, result);
        }
        let over = lent.end(cx);
        (stream, over)
    }

    /// A call of the application's has panicked. Its state is in doubt: no more data for it, and
    /// the peer shall know. Drops `with` after that, in the color.
    pub(in crate::net) fn reset_after_panic(this: &Arc<Conn>, with: impl Send + 'static) {
        this.doubt();
        let (conn, poster) = (Arc::clone(this), this.poster().clone());
        let with = LateDrop::new(with, true);
        let event = move |cx: &mut Cx| {
            let mut both = InTurn::default();
            both.run(|| conn.reset(cx));
            both.run(|| drop(with));
            both.end();
        };
        // Refused if the run is over, and the connection gone.
        let _ = poster.post_own_until(Until::End, None, this.color(), event);
    }
}

/// Has the connection reset if this is dropped, and not forgotten: a call has panicked.
pub(in crate::net) struct Doubt<'a>(pub(in crate::net) &'a Arc<Conn>);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        Conn::reset_after_panic(self.0, ());
    }
}

/// A connection's callback while it runs. If it is dropped, and not ended, it has panicked.
struct Lent<'a, R: 'static> {
    conn: &'a Arc<Conn>,
    callback: Option<OnResult<R>>,
    place: Field<R>,
}

impl<R: 'static> Lent<'_, R> {
    /// The call is over: gives the callback back. Returns it if another has taken its place
    /// meanwhile, or there will be no other call.
    fn end(mut self, cx: &mut Cx) -> Option<OnResult<R>> {
        {
            let mut colored = self.conn.in_color(cx);
            if let Some(place @ None) = (self.place)(&mut colored) {
                *place = self.callback.take();
            }
        }
        let over = self.callback.take();
        std::mem::forget(self);
        over
    }
}

impl<R: 'static> Drop for Lent<'_, R> {
    fn drop(&mut self) {
        Conn::reset_after_panic(self.conn, self.callback.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_are_given_back_while_they_may_be_called_again() {
        let mut open = ColorHalf::new();
        assert!(open.place_of_on_data().is_some() && open.place_of_on_drained().is_some());
        open.ended = true;
        assert!(open.place_of_on_data().is_none() && open.place_of_on_drained().is_some());
        (open.ended, open.broken) = (false, true);
        assert!(open.place_of_on_data().is_some() && open.place_of_on_drained().is_none());
        for phase in [Phase::Closing, Phase::Closed] {
            let mut closed = ColorHalf::new();
            closed.phase = phase;
            assert!(closed.place_of_on_data().is_none());
            assert!(closed.place_of_on_drained().is_none());
        }
    }
}
