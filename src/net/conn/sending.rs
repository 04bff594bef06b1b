//! Sending: from the core that runs the color's event, one send of a connection at a time.
//!
//! A send is *under way* (`sending`) from the moment its bytes are taken until an event of the
//! color has heard what became of it. What is written meanwhile waits in the queue.

use super::lent::OnDrained;
use super::{ColorHalf, Conn, Phase};
use crate::host::panics::InTurn;
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
    callback: Option<OnDrained>,
}

impl Conn {
    /// Sends, and posts what it came to: an event and not a call, because the application is not
    /// called back while it writes.
    pub(in crate::net) fn start_send(self: Arc<Conn>, cx: &mut Cx, next: Next) {
        let (len, handler) = (next.buf.len(), next.handler);
        if !self.try_send(cx, next) {
            return;
        }
        // The kernel has them. Until the event, what is written waits all the same.
        self.in_color(cx).queued_bytes -= len;
        let color = self.color();
        let core = &mut cx.worker().core;
        core.post_own(Some(handler), color, move |cx: &mut Cx| {
            self.after_send(cx, 0, Ok(()))
        });
    }

    /// Sends, and says whether nothing is left to send; if not, the outcome will be an event.
    pub(in crate::net) fn send_now(self: &Arc<Conn>, cx: &mut Cx, next: Next) -> bool {
        let len = next.buf.len();
        let sent = self.try_send(cx, next);
        if sent {
            let mut colored = self.in_color(cx);
            colored.queued_bytes -= len;
            colored.sending = false;
        }
        sent
    }

    /// Sends at once what the kernel takes at once, which is mostly all of it: an answer then costs
    /// no operation and no completion, and leaves before this handler's turn ends. Whether that was
    /// all; what is left is an operation.
    fn try_send(self: &Arc<Conn>, cx: &mut Cx, next: Next) -> bool {
        if next.watched {
            self.stir(cx);
        }
        let Some(driver) = Driver::of(&mut cx.worker().source) else {
            return false;
        };
        let Next {
            mut buf, handler, ..
        } = next;
        let len = buf.len();
        let sent = driver.backend.send_now(self.fd, &buf);
        if sent == len {
            return true;
        }
        buf.skip(sent);
        driver.send(Arc::clone(self), handler, buf.into_lasting(), len);
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
        let next = {
            let mut colored = self.in_color(cx);
            colored.queued_bytes -= len;
            colored.sending = false;
            if result.is_err() {
                colored.broken = true;
                colored.queue.clear();
                colored.queued_bytes = 0;
            }
            match colored.next() {
                Some(buf) => {
                    let tells = colored.tells_each_send && colored.phase == Phase::Open;
                    let callback = tells.then(|| colored.on_drained.take()).flatten();
                    Ok((colored.begin_send(buf), callback))
                }
                None => Err(colored.drained()),
            }
        };
        match next {
            Ok((next, callback)) => {
                Arc::clone(&self).start_send(cx, next);
                if let Some(callback) = callback {
                    let called = self.call(cx, callback, ColorHalf::place_of_on_drained, Ok(()));
                    // With nothing borrowed.
                    drop(called);
                }
            }
            Err(drained) => self.drained(cx, drained, result),
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
        if shutdown
            && result.is_ok()
            && let Some(driver) = Driver::of(&mut cx.worker().source)
        {
            driver.backend.shutdown(self.fd, How::Write);
        }
        if phase == Phase::Closing {
            let mut drops = InTurn::default();
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

impl ColorHalf {
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
