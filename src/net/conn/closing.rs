//! The end of a connection.
//!
//! The home core frees the descriptor, and only when no operation is left on it anywhere: a close
//! waits in its color for the send under way, then goes home, cancels the receive, waits for its
//! end, and frees.
//!
//! A peer that was not sent all is told so: the connection is reset then
//! ([`ColorHalf::broken`](super::ColorHalf)), since the peer would take an end for the end of all.

use super::lent::Callbacks;
use super::{ColorHalf, Conn, Phase};
use crate::Cx;
use crate::host::inner::Ended;
use crate::host::panics::InTurn;
use crate::io::How;
use crate::net::driver::{Driver, control};
use crate::net::registry::Registry;
use crate::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

impl ColorHalf {
    /// Whether the peer was not sent all.
    fn is_cut_off(&self) -> bool {
        self.broken || self.queued_bytes > 0
    }
}

impl Conn {
    /// Closes at once, and tells the peer that this is no end: code of the application's that had
    /// the connection has panicked.
    pub(in crate::net) fn reset(self: Arc<Conn>, cx: &mut Cx) {
        {
            let mut colored = self.in_color(cx);
            (colored.broken, colored.panicked) = (true, true);
        }
        self.close(cx, true);
    }

    /// Closes when what is queued has been sent, or at once.
    pub(in crate::net) fn close(self: Arc<Conn>, cx: &mut Cx, at_once: bool) {
        if !at_once {
            self.say_end(cx);
            self.send_gathered(cx);
        }
        let (sending, broken, watched, dropped) = {
            let mut colored = self.in_color(cx);
            if colored.phase == Phase::Closed {
                return;
            }
            colored.phase = Phase::Closing;
            self.is_ending.store(true, Ordering::Relaxed);
            colored.aborted |= at_once;
            colored.broken |= at_once && colored.queued_bytes > 0;
            if at_once {
                colored.gathers = false;
                let queued: usize = colored.queue.drain(..).map(|its| its.buf.len()).sum();
                colored.queued_bytes -= queued;
            }
            let dropped = Callbacks {
                on_data: colored.on_data.take(),
                on_drained: None,
                after_received: std::mem::take(&mut colored.after_received),
                on_arrived: colored.on_arrived.take(),
                // Else they are told of what is still sent.
                marks: match at_once {
                    true => std::mem::take(&mut colored.marks),
                    false => VecDeque::new(),
                },
                handshake: colored.take_handshake(),
                after_panic: colored.panicked,
            };
            let (sending, broken) = (colored.sending, colored.broken);
            (sending, broken, colored.idle.is_some(), dropped)
        };
        // The user's closures are dropped in their color, with nothing borrowed.
        let mut drops = InTurn::default();
        if !sending {
            drops.run(|| self.go_home(cx));
        } else if at_once {
            // The send under way, on whichever ring, ends with an error; then we go home.
            if broken {
                self.owner.reset(self.fd);
            }
            self.owner.shutdown(self.fd, How::Both);
        } else if watched {
            // From now on the peer is to read.
            self.stir(cx);
        }
        dropped.drop_each(&mut drops);
        drops.end();
    }

    /// Tells the home core to close; nothing of the color's is under way any more.
    pub(super) fn go_home(self: Arc<Conn>, cx: &mut Cx) {
        let (broken, may_linger, dropped) = {
            let mut colored = self.in_color(cx);
            colored.phase = Phase::Closed;
            let may_linger = !colored.broken && !colored.aborted;
            (colored.broken, may_linger, colored.take_callbacks())
        };
        if broken {
            self.owner.reset(self.fd);
        }
        self.forget_idle(cx);
        let home = control(self.home());
        cx.post_own(home, move |cx: &mut Cx| {
            Driver::with(cx.worker(), |driver, _| {
                self.close_at_home(driver, may_linger);
            });
        });
        let mut drops = InTurn::default();
        dropped.drop_each(&mut drops);
        drops.end();
    }

    /// Closes; a connection that `may_linger` and has unread input after a stop lingers first.
    fn close_at_home(self: &Arc<Conn>, driver: &mut Driver, may_linger: bool) {
        let has_unread = may_linger && driver.is_ending() && driver.unread_bytes(self) > 0;
        let (op, lingers) = {
            let mut home = self.at_home.borrow(&mut driver.here);
            if std::mem::replace(&mut home.closing, true) {
                return;
            }
            if home.arrival.end() {
                driver.arriving -= 1;
            }
            home.lingers = has_unread;
            home.canceling |= home.recv.is_some() && !home.lingers;
            (home.recv, home.lingers)
        };
        match op {
            _ if lingers => {
                self.owner.shutdown(self.fd, How::Write);
                driver.linger(Arc::clone(self));
                if op.is_none() {
                    Arc::clone(self).start_recv(driver);
                }
            }
            Some(op) => driver.cancel(op),
            None => {
                self.closed.store(true, Ordering::Relaxed);
                driver.backend.close(self.fd);
            }
        }
    }

    /// It has lingered for long enough.
    pub(in crate::net) fn end_lingering(&self, driver: &mut Driver) {
        let op = {
            let mut home = self.at_home.borrow(&mut driver.here);
            home.lingers = false;
            home.canceling = home.recv.is_some();
            home.recv
        };
        if let Some(op) = op {
            driver.cancel(op);
        }
    }

    /// Closes the connection, whose driver's backend is gone, whatever handles are kept; and drops
    /// the callbacks, in the wrong place but in time.
    pub(in crate::net) fn end(&self, ended: &mut Ended<'_>, drops: &mut InTurn) {
        let dropped = {
            let mut colored = self.colored.borrow_after_the_end(ended);
            self.close_after_the_end(colored.is_cut_off());
            colored.take_callbacks()
        };
        // With nothing borrowed.
        dropped.drop_each(drops);
    }

    /// Closes the descriptor if the runtime ended first. No operation is left on it then.
    fn close_after_the_end(&self, is_cut_off: bool) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        if is_cut_off || self.in_doubt.load(Ordering::Relaxed) {
            self.owner.reset(self.fd);
        }
        self.owner.close(self.fd);
    }
}

impl Drop for Conn {
    /// Closes a connection of a runtime that has left a core behind in a handler: it has not seen
    /// the [`end`](Conn::end).
    fn drop(&mut self) {
        Registry::of_runtime(&self.poster().inner).remove(self.home(), self.key);
        let is_cut_off = self.colored.get_mut().is_cut_off();
        self.close_after_the_end(is_cut_off);
    }
}
