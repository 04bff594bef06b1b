//! Sending: from the core that runs the color's event, one send of a connection at a time.
//!
//! The first write of an event leaves at once, as far as the kernel takes it: the event may go on
//! for long. Further writes of the event are *gathered*, and leave joined when the event is over,
//! or at a flush. If the event is known to be long, they leave at once as well. Bytes that the
//! kernel does not take are a send *under way* on the core's ring, until an event of the color has
//! heard what became of it. Meanwhile, writes wait in the queue. An event says that all is sent
//! only where somebody has asked for that.
//!
//! Buffers that were written together by `Stream::write_vectored` are sent by one call, and are not
//! joined. A *mark* in the queue is a callback that waits until all before it is sent. No send goes
//! across a mark, so the callback does not wait for what comes behind it.

use super::lent::{Doubt, OnDrained, OnSent};
use super::{ColorHalf, Conn, Phase};
use crate::host::panics::{InTurn, LateDrop};
use crate::host::source::AtEnd;
use crate::io::{Bufs, How, PARTS_MAX, SendBuf};
use crate::net::driver::Driver;
use crate::sched::core::Core;
use crate::{Cx, Handler};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What may be queued for sending by default before `Stream::write` refuses, in bytes.
pub(super) const QUEUED_MAX: usize = 1 << 20;
/// Small queued buffers are joined up to this size, so that a burst of answers is one send.
const JOINED_MAX: usize = 64 << 10;

/// What a send's completion runs under if nobody asked to be told.
static SENT: Handler = Handler::new("mely: sent");

/// A buffer that is to be sent.
pub(in crate::net) struct Queued {
    pub(in crate::net) buf: SendBuf,
    /// It is not to be joined with others.
    pub(in crate::net) is_apart: bool,
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.buf.fmt(f)
    }
}

/// What is called when all has been sent that was written before, or with an error.
pub(in crate::net) struct Mark {
    /// Bytes written before it, of all that were ever written.
    written_bytes: u64,
    handler: Option<&'static Handler>,
    pub(super) callback: OnSent,
}

/// Bytes that are to be sent next, before all that is queued.
#[derive(Debug)]
pub(in crate::net) struct Next {
    buf: Bufs,
    /// What to say so under.
    handler: &'static Handler,
    /// The connection has an idle timeout.
    watched: bool,
}

/// What is to be done when nothing is left to send.
struct Drained {
    phase: Phase,
    shutdown: bool,
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
            let has_marks = !colored.marks.is_empty();
            colored.end();
            if has_marks {
                self.tell_marks(cx, Ok(()));
            }
        }
        sent
    }

    /// Posts the callbacks of marks before which all is sent; or all of them, with the error that
    /// has ended sending.
    fn tell_marks(self: &Arc<Conn>, cx: &mut Cx, result: Result<(), SendError>) {
        loop {
            let mark = {
                let mut colored = self.in_color(cx);
                let sent_bytes = colored.sent_bytes();
                let is_due = |mark: &Mark| mark.written_bytes <= sent_bytes || result.is_err();
                match colored.marks.front() {
                    Some(mark) if is_due(mark) => colored.marks.pop_front(),
                    _ => None,
                }
            };
            let Some(mark) = mark else {
                return;
            };
            let Mark {
                handler, callback, ..
            } = mark;
            let (this, color) = (Arc::clone(self), self.color());
            let event = move |cx: &mut Cx| {
                let doubt = Doubt(&this);
                callback(cx, result.map_err(SendError::error));
                std::mem::forget(doubt);
            };
            cx.worker().core.post_own(handler, color, event);
        }
    }

    /// Posts the callbacks of all marks: the peer has not taken the bytes in time.
    pub(super) fn time_marks_out(self: &Arc<Conn>, cx: &mut Cx) {
        self.tell_marks(cx, Err(SendError::Kind(io::ErrorKind::TimedOut)));
    }

    /// Calls `callback` when all has been sent that was written before; see `Stream::on_sent`.
    pub(in crate::net) fn mark_sent(
        self: &Arc<Conn>,
        cx: &mut Cx,
        handler: Option<&'static Handler>,
        callback: OnSent,
    ) {
        let mut colored = self.in_color(cx);
        let written_bytes = colored.written_bytes;
        colored.marks.push_back(Mark {
            written_bytes,
            handler,
            callback,
        });
        colored.end();
        self.tell_marks(cx, Ok(()));
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
        let told = result.as_ref().map(|_| ()).map_err(SendError::of);
        let (each, has_marks) = {
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
            let each = tells && !colored.queue.is_empty();
            (each, !colored.marks.is_empty())
        };
        if has_marks {
            self.tell_marks(cx, told);
        }
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
            callback,
        } = drained;
        // What has failed does not end as if it were whole.
        if shutdown && result.is_ok() {
            self.owner.shutdown(self.fd, How::Write);
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
    pub(in crate::net) fn begin_send(&mut self, buf: Bufs) -> Next {
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
            callback: self.on_drained.take(),
        }
    }

    /// All bytes that were ever sent; while sending has failed, of no use.
    fn sent_bytes(&self) -> u64 {
        self.written_bytes - self.queued_bytes as u64
    }

    /// What to send next, up to the next mark: a buffer, several small ones joined, or several that
    /// are not to be joined.
    fn next(&mut self) -> Option<Bufs> {
        // Nothing is under way: all that is not sent is in the queue.
        let sent_bytes = self.sent_bytes();
        let to_mark = |mark: &Mark| (mark.written_bytes - sent_bytes) as usize;
        let most = self.marks.front().map_or(usize::MAX, to_mark);
        let Queued {
            buf: first,
            is_apart,
        } = self.queue.pop_front()?;
        if is_apart {
            return Some(self.next_apart(first, most));
        }
        let most = most.min(JOINED_MAX);
        let fits = |joined: usize, next: &Queued| !next.is_apart && joined + next.buf.len() <= most;
        if !self
            .queue
            .front()
            .is_some_and(|next| fits(first.len(), next))
        {
            return Some(first.into());
        }
        let mut joined = first.to_vec();
        while let Some(next) = self.queue.front()
            && fits(joined.len(), next)
        {
            joined.extend_from_slice(&next.buf);
            self.queue.pop_front();
        }
        Some(SendBuf::from(joined).into())
    }

    /// With `first`, the buffers behind it that are not to be joined.
    fn next_apart(&mut self, first: SendBuf, most: usize) -> Bufs {
        let mut bytes = first.len();
        let mut parts = vec![first];
        while parts.len() < PARTS_MAX
            && let Some(next) = self.queue.front()
            && next.is_apart
            && bytes + next.buf.len() <= most
        {
            bytes += next.buf.len();
            parts.extend(self.queue.pop_front().map(|next| next.buf));
        }
        Bufs::Several(parts)
    }
}

/// Why nothing more can be sent, to be told to several.
#[derive(Clone, Copy, Debug)]
enum SendError {
    Code(i32),
    Kind(io::ErrorKind),
}

impl SendError {
    fn of(error: &io::Error) -> SendError {
        match error.raw_os_error() {
            Some(code) => SendError::Code(code),
            None => SendError::Kind(error.kind()),
        }
    }

    fn error(self) -> io::Error {
        match self {
            SendError::Code(code) => io::Error::from_raw_os_error(code),
            SendError::Kind(kind) => kind.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is queued, and of that what is not to be joined.
    fn queued(queue: &[&[u8]], is_apart: fn(&[u8]) -> bool) -> ColorHalf {
        let mut colored = ColorHalf::new();
        for &bytes in queue {
            colored.queue.push_back(Queued {
                buf: bytes.to_vec().into(),
                is_apart: is_apart(bytes),
            });
            colored.queued_bytes += bytes.len();
            colored.written_bytes += bytes.len() as u64;
        }
        colored
    }

    fn is_capital(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// What is sent at once, one after the other; joined is one.
    fn sends(colored: &mut ColorHalf) -> Vec<Vec<Vec<u8>>> {
        let next = || {
            let next = colored.next()?;
            colored.queued_bytes -= next.len();
            let sent_bytes = colored.sent_bytes();
            // As `tell_marks` does.
            colored.marks.retain(|mark| mark.written_bytes > sent_bytes);
            Some(match next {
                Bufs::One(buf) => vec![buf.to_vec()],
                Bufs::Several(bufs) => bufs.iter().map(|buf| buf.to_vec()).collect(),
            })
        };
        std::iter::from_fn(next).collect()
    }

    /// What is joined of these.
    fn joins(queue: &[&[u8]]) -> Vec<Vec<u8>> {
        let sent = sends(&mut queued(queue, |_| false));
        sent.into_iter().map(|joined| joined.concat()).collect()
    }

    #[test]
    fn what_is_apart_is_sent_together_and_not_joined() {
        let queue: [&[u8]; 8] = [b"a", b"b", b"C", b"D", b"e", b"f", b"G", b"h"];
        let sent = [&[&b"ab"[..]][..], &[b"C", b"D"], &[b"ef"], &[b"G"], &[b"h"]];
        assert_eq!(sends(&mut queued(&queue, is_capital)), sent);
        // As much as the kernel takes.
        let mut many = queued(&[&b"A"[..]; 2 * PARTS_MAX + 1], is_capital);
        let lens: Vec<_> = sends(&mut many).iter().map(Vec::len).collect();
        assert_eq!(lens, [PARTS_MAX, PARTS_MAX, 1]);
    }

    #[test]
    fn no_send_goes_across_a_mark() {
        let queue: [&[u8]; 6] = [b"a", b"b", b"c", b"D", b"E", b"F"];
        let rest: &[&[u8]] = &[b"D", b"E", b"F"];
        for (marked, sent) in [
            (1, &[&[&b"a"[..]][..], &[b"bc"], rest][..]),
            (3, &[&[b"abc"], rest]),
            (4, &[&[b"abc"], &[b"D"], &[b"E", b"F"]]),
        ] {
            let mut colored = queued(&queue, is_capital);
            colored.marks.push_back(Mark {
                written_bytes: marked,
                handler: None,
                callback: Box::new(|_, _| ()),
            });
            assert_eq!(sends(&mut colored), sent);
        }
    }

    #[test]
    fn small_buffers_are_joined_up_to_the_maximum() {
        assert!(joins(&[]).is_empty());
        assert_eq!(joins(&[b"one"]), [b"one"]);
        assert_eq!(joins(&[b"one", b"two", b"three"]), [b"onetwothree"]);
        let (most, rest) = (vec![1; JOINED_MAX], vec![2; JOINED_MAX - 3]);
        let joined = [&b"one"[..], &rest].concat();
        assert_eq!(joins(&[b"one", &rest, b"two"]), [&joined[..], b"two"]);
        assert_eq!(joins(&[b"four", &rest]), [&b"four"[..], &rest]);
        assert_eq!(joins(&[&most, b"two"]), [&most[..], b"two"]);
        // Larger ones are sent as they are.
        let large = vec![3; JOINED_MAX + 1];
        assert_eq!(joins(&[&large, b"a", b"b"]), [&large[..], b"ab"]);
    }
}
