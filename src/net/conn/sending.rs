//! Sending: from the core that runs the color's event, one send of a connection at a time.
//!
//! The first write of an event leaves at once, as far as the kernel takes it: the event may go on
//! for long. Further writes of the event are *gathered*, and leave joined when the event is over,
//! or at a flush. If the event is known to be long, they leave at once as well. Bytes that the
//! kernel does not take are a send *under way* on the core's ring, until an event of the color has
//! heard what became of it. Meanwhile, writes wait in the queue. An event says that all is sent
//! only where somebody has asked for that.

use super::lent::{AfterSent, OnDrained};
use super::{ColorHalf, Conn, Phase};
use crate::host::panics::{InTurn, LateDrop};
use crate::host::source::AtEnd;
use crate::io::{How, SendBuf};
use crate::net::driver::Driver;
use crate::sched::core::Core;
use crate::{Cx, Handler};
use std::io;
use std::sync::Arc;

/// What may be queued for sending by default before `Stream::write` refuses, in bytes.
pub(super) const QUEUED_MAX: usize = 1 << 20;
/// Small queued buffers are joined up to this size, so that a burst of answers is one send.
const JOINED_MAX: usize = 64 << 10;

/// What a send's completion runs under if nobody asked to be told.
static SENT: Handler = Handler::new("mely: sent");

/// Bytes that are to be sent next, before all that is queued.
#[derive(Debug)]
pub(in crate::net) struct Next {
    buf: SendBuf,
    /// What to say so under.
    handler: &'static Handler,
    /// The connection has an idle timeout.
    watched: bool,
}

/// What is to be done when nothing is left to send.
struct Drained {
    phase: Phase,
    shutdown: bool,
    after_sent: Vec<AfterSent>,
    callback: Option<OnDrained>,
}

impl Conn {
    /// Sends. Who asked to be told when all is sent is told by an event: the application is not
    /// called back while it writes.
    pub(in crate::net) fn start_send(self: Arc<Conn>, cx: &mut Cx, next: Next) {
        if self.send_now(cx, next) {
            self.tell_sent(cx);
        }
    }

    /// Sends, and says whether nothing is left to send; if not, the outcome will be an event.
    pub(in crate::net) fn send_now(self: &Arc<Conn>, cx: &mut Cx, next: Next) -> bool {
        let len = next.buf.len();
        let sent = self.try_send(cx, next);
        if sent {
            let number = cx.worker().core.event_number();
            let mut colored = self.in_color(cx);
            colored.queued_bytes -= len;
            colored.sending = false;
            colored.sent_in = Some(number);
        }
        sent
    }

    /// Sends what is queued, as far as the kernel takes it; nothing is under way. Whether that was
    /// all.
    fn send_queued(self: &Arc<Conn>, cx: &mut Cx) -> bool {
        loop {
            let next = {
                let mut colored = self.in_color(cx);
                colored.gathers = false;
                let buf = colored.next();
                buf.map(|buf| colored.begin_send(buf))
            };
            let Some(next) = next else {
                return true;
            };
            if !self.send_now(cx, next) {
                return false;
            }
        }
    }

    /// What is written by this event from now on waits for its end.
    pub(in crate::net) fn gather(self: &Arc<Conn>, cx: &mut Cx) {
        let conn: Arc<dyn AtEnd> = self.clone();
        cx.gather(conn);
    }

    /// Sends what the event that runs has gathered, if it has.
    pub(in crate::net) fn send_gathered(self: &Arc<Conn>, cx: &mut Cx) {
        if self.in_color(cx).gathers && self.send_queued(cx) {
            self.tell_sent(cx);
        }
    }

    /// All is sent: has whoever asked told that.
    pub(in crate::net) fn tell_sent(self: &Arc<Conn>, cx: &mut Cx) {
        let handler = {
            let mut colored = self.in_color(cx);
            if colored.drained_handler.is_none() {
                colored.untold_in = colored.sent_in;
            }
            let asked = colored.drained_handler.filter(|_| !colored.telling);
            colored.telling |= asked.is_some();
            asked
        };
        if let Some(handler) = handler {
            let (this, color) = (Arc::clone(self), self.color());
            let event = move |cx: &mut Cx| this.told_sent(cx);
            cx.worker().core.post_own(Some(handler), color, event);
        }
    }

    /// Tells it, unless something was written since; an event of the color.
    fn told_sent(self: Arc<Conn>, cx: &mut Cx) {
        let drained = {
            let mut colored = self.in_color(cx);
            colored.telling = false;
            let is_idle = !colored.sending && !colored.gathers && colored.phase == Phase::Open;
            is_idle.then(|| colored.drained())
        };
        if let Some(drained) = drained {
            self.drained(cx, drained, Ok(()));
        }
    }

    /// Sends at once what the kernel takes at once, which is mostly all of it: an answer then costs
    /// no operation and no completion, and leaves before this handler's turn ends. Whether that was
    /// all; what is left is an operation.
    fn try_send(self: &Arc<Conn>, cx: &mut Cx, next: Next) -> bool {
        if next.watched {
            self.stir(cx);
        }
        let Next {
            mut buf, handler, ..
        } = next;
        let len = buf.len();
        let sent = self.owner.send_now(self.fd, &buf);
        if sent == len {
            return true;
        }
        buf.skip(sent);
        let (conn, buf) = (Arc::clone(self), buf.into_lasting());
        Driver::with(cx.worker(), |driver, _| {
            driver.send(conn, handler, buf, len)
        });
        false
    }

    /// Posts the outcome of a send; called by the driver of the core that sent.
    pub(in crate::net) fn sent(
        this: Arc<Conn>,
        handler: &'static Handler,
        len: usize,
        result: io::Result<()>,
        core: &mut Core,
    ) {
        let color = this.color();
        core.post_own(Some(handler), color, move |cx: &mut Cx| {
            if this.in_color(cx).idle.is_some() {
                this.stir(cx);
            }
            this.after_send(cx, len, result)
        });
    }

    /// Goes on after a send, with which this many bytes are not queued any more; an event of the
    /// color.
    fn after_send(self: Arc<Conn>, cx: &mut Cx, len: usize, result: io::Result<()>) {
        let each = {
            let mut colored = self.in_color(cx);
            colored.queued_bytes -= len;
            colored.sending = false;
            if result.is_err() {
                colored.broken = true;
                colored.gathers = false;
                colored.queue.clear();
                colored.queued_bytes = 0;
            }
            let tells = colored.tells_each_send && colored.phase == Phase::Open;
            tells && !colored.queue.is_empty()
        };
        if self.send_queued(cx) {
            let drained = self.in_color(cx).drained();
            return self.drained(cx, drained, result);
        }
        let callback = each.then(|| self.in_color(cx).on_drained.take()).flatten();
        if let Some(callback) = callback {
            let called = self.call(cx, callback, ColorHalf::place_of_on_drained, Ok(()));
            // With nothing borrowed.
            drop(called);
        }
    }

    /// Nothing is left to send.
    fn drained(self: Arc<Conn>, cx: &mut Cx, drained: Drained, result: io::Result<()>) {
        let Drained {
            phase,
            shutdown,
            after_sent,
            callback,
        } = drained;
        // What has failed does not end as if it were whole.
        if shutdown && result.is_ok() {
            self.owner.shutdown(self.fd, How::Write);
        }
        // None are left after a close, which drops them.
        for told in after_sent {
            told(cx, copy(&result));
        }
        if phase == Phase::Closing {
            let mut drops = InTurn::default();
            let callback = LateDrop::new(callback, self.in_color(cx).panicked);
            drops.run(|| self.go_home(cx));
            drops.run(|| drop(callback));
            return drops.end();
        }
        if let Some(callback) = callback {
            let called = self.call(cx, callback, ColorHalf::place_of_on_drained, result);
            // With nothing borrowed.
            drop(called);
        }
    }
}

/// The same result once more.
fn copy(result: &io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => error.kind().into(),
        }),
    }
}

impl AtEnd for Conn {
    fn at_end(self: Arc<Self>, cx: &mut Cx) {
        self.send_gathered(cx);
    }
}

impl ColorHalf {
    /// Whether what is written waits in the queue.
    pub(in crate::net) fn queues(&self) -> bool {
        self.sending || self.gathers
    }

    /// A send is under way: of these bytes, which are counted as queued.
    pub(in crate::net) fn begin_send(&mut self, buf: SendBuf) -> Next {
        self.sending = true;
        let handler = self.drained_handler.unwrap_or(&SENT);
        let watched = self.idle.is_some();
        Next {
            buf,
            handler,
            watched,
        }
    }

    fn drained(&mut self) -> Drained {
        Drained {
            phase: self.phase,
            // Left set, so that nothing can be written any more.
            shutdown: self.shutdown,
            after_sent: std::mem::take(&mut self.after_sent),
            callback: self.on_drained.take(),
        }
    }

    /// The next buffer to send: several small ones joined.
    fn next(&mut self) -> Option<SendBuf> {
        let first = self.queue.pop_front()?;
        let fits = |joined: usize, next: &SendBuf| joined + next.len() <= JOINED_MAX;
        if !self
            .queue
            .front()
            .is_some_and(|next| fits(first.len(), next))
        {
            return Some(first);
        }
        let mut joined = first.to_vec();
        while let Some(next) = self.queue.front()
            && fits(joined.len(), next)
        {
            joined.extend_from_slice(next);
            self.queue.pop_front();
        }
        Some(joined.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent at once, one after the other.
    fn sends(queue: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut colored = ColorHalf::new();
        colored.queue = queue.iter().map(|bytes| bytes.to_vec().into()).collect();
        std::iter::from_fn(|| Some(colored.next()?.to_vec())).collect()
    }

    #[test]
    fn small_buffers_are_joined_up_to_the_maximum() {
        assert!(sends(&[]).is_empty());
        assert_eq!(sends(&[b"one"]), [b"one"]);
        assert_eq!(sends(&[b"one", b"two", b"three"]), [b"onetwothree"]);
        let (most, rest) = (vec![1; JOINED_MAX], vec![2; JOINED_MAX - 3]);
        let joined = [&b"one"[..], &rest].concat();
        assert_eq!(sends(&[b"one", &rest, b"two"]), [&joined[..], b"two"]);
        assert_eq!(sends(&[b"four", &rest]), [&b"four"[..], &rest]);
        assert_eq!(sends(&[&most, b"two"]), [&most[..], b"two"]);
        // Larger ones are sent as they are.
        let large = vec![3; JOINED_MAX + 1];
        assert_eq!(sends(&[&large, b"a", b"b"]), [&large[..], b"ab"]);
    }
}
