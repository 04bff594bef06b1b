//! Receiving: on the home core, for a color that may be anywhere and far behind.
//!
//! A color may be far behind what its home core receives for it. So the color acknowledges each
//! [`ACKNOWLEDGED_BYTES`], and receiving *rests* while [`REST_BYTES`] are on their way to the
//! color: neither a pause that comes late nor a long handler lets one client take all buffers, or
//! gives a color more than [`AHEAD_BYTES_MAX`] that it did not want. The acknowledgement is an
//! event of the color behind the data, and it goes home behind any pause: so what arrives after a
//! pause was received before it.

use super::{ColorHalf, Conn, Doubt, HomeHalf, Phase};
use crate::host::panics::InTurn;
use crate::io::RecvBuf;
use crate::net::confined::Here;
use crate::net::driver::Driver;
use crate::net::{ending, is_canceled};
use crate::sched::core::Core;
use crate::sync::atomic::Ordering;
use crate::{Cx, Handler};
use std::io;
use std::sync::Arc;

/// Most bytes that are received and not yet given to the application, of one connection. What
/// [`Stream::pause`](crate::net::Stream::pause) comes too late for is at most that.
pub const AHEAD_BYTES_MAX: usize = 256 << 10;
/// With this many bytes on their way to the color, receiving rests until the color has caught up.
/// Below the maximum by more than one look at the event source brings for a connection, a few
/// buffers.
const REST_BYTES: usize = AHEAD_BYTES_MAX - (64 << 10);
/// Bytes that the color is given between two acknowledgements: few enough that a color which keeps
/// up never makes receiving rest, and enough for the acknowledgements to cost nothing.
const ACKNOWLEDGED_BYTES: usize = 64 << 10;

/// However few bytes a buffer has, it counts for this many: else a peer that sends single bytes to
/// a color that waits would take all buffers.
const CHARGED_BYTES_MIN: usize = AHEAD_BYTES_MAX / 64;

/// What tells the home core how far the color is.
static CAUGHT_UP: Handler = Handler::new("mely: caught up");

impl Conn {
    /// Posts what was received; called by the home core's driver. True if the color is now so far
    /// behind that receiving has to rest.
    pub(in crate::net) fn received(
        self: &Arc<Conn>,
        result: io::Result<RecvBuf>,
        here: &mut Here,
        core: &mut Core,
    ) -> bool {
        let (acknowledged, has_marks, is_far_ahead, is_urgent) = {
            let mut home = self.at_home.borrow(here);
            let acknowledged = match &result {
                Err(error) if home.canceling && is_canceled(error) => {
                    return false;
                }
                Ok(buf) if !buf.is_empty() => home.advance(buf.len()),
                _ => {
                    home.ended = true;
                    None
                }
            };
            (
                acknowledged,
                !home.marks.is_empty(),
                home.is_far_ahead(),
                home.urgent,
            )
        };
        let (handler, color) = (self.read_handler.get().copied(), self.color());
        let this = Arc::clone(self);
        match result {
            // Apart, because each fits into an event's node and the result would not.
            Ok(buf) => {
                core.post_home(handler, color, move |cx: &mut Cx| this.deliver(cx, Ok(buf)));
            }
            Err(error) => core.post_home(handler, color, move |cx: &mut Cx| {
                this.deliver(cx, Err(error))
            }),
        }
        if has_marks {
            self.pass_marks(here, core);
        }
        if let Some(bytes) = acknowledged {
            let this = Arc::clone(self);
            let caught_up = move |cx: &mut Cx| {
                this.call_home(cx, move |conn, driver, _| conn.acknowledged(driver, bytes));
            };
            core.post_home(Some(&CAUGHT_UP), color, caught_up);
        }
        if is_urgent {
            core.hurry(color);
        }
        is_far_ahead
    }

    /// Whether what is received from now on hurries.
    pub(in crate::net) fn set_urgent(self: Arc<Conn>, cx: &mut Cx, urgent: bool) {
        self.call_home(cx, move |conn, driver, _| {
            conn.at_home.borrow(&mut driver.here).urgent = urgent;
        });
    }

    /// The runtime is ending and receives no more for this connection; says so to the application,
    /// unless it has been told the end already.
    pub(in crate::net) fn canceled(self: &Arc<Conn>, here: &mut Here, core: &mut Core) {
        let told = {
            let home = self.at_home.borrow(here);
            home.recv.is_some() || home.ended || home.closing
        };
        if !told && self.ends_at_stop() {
            self.received(Err(ending()), here, core);
        }
    }

    /// Gives what was received to the application; an event of the color.
    fn deliver(self: Arc<Conn>, cx: &mut Cx, result: io::Result<RecvBuf>) {
        let last = result.as_ref().map_or(true, |data| data.is_empty());
        let (callback, watched) = {
            let mut colored = self.in_color(cx);
            if colored.phase != Phase::Open {
                return;
            }
            // From now on none is kept: what it holds may hold the connection.
            colored.ended |= last;
            (colored.on_data.take(), colored.idle.is_some())
        };
        if watched {
            self.stir(cx);
        }
        let Some(callback) = callback else { return };
        let (stream, over) = self.call(cx, callback, ColorHalf::place_of_on_data, result);
        // With nothing borrowed.
        let mut drops = InTurn::default();
        if last && stream.conn.in_color(cx).detached {
            drops.run(|| stream.close(cx));
        }
        drops.run(|| drop(over));
        drops.end();
    }

    /// The receive is over; called by the home core's driver.
    pub(in crate::net) fn recv_over(self: &Arc<Conn>, driver: &mut Driver, core: &mut Core) {
        let again = {
            let mut home = self.at_home.borrow(&mut driver.here);
            home.recv = None;
            home.canceling = false;
            if home.closing && !self.closed.swap(true, Ordering::Relaxed) {
                driver.backend.close(self.fd);
            }
            home.should_receive()
        };
        if driver.draining && self.ends_at_stop() {
            // It was paused, or was to go on, when the end came.
            self.canceled(&mut driver.here, core);
        } else if again {
            Arc::clone(self).start_recv(driver);
        }
    }

    /// The application wants to receive, or not; on the home core. False: the runtime is ending.
    pub(in crate::net) fn receive(self: Arc<Conn>, driver: &mut Driver, wanted: bool) -> bool {
        self.at_home.borrow(&mut driver.here).wanted = wanted;
        self.adjust(driver)
    }

    /// The color was given that many bytes more; on the home core.
    fn acknowledged(self: Arc<Conn>, driver: &mut Driver, bytes: usize) {
        self.at_home.borrow(&mut driver.here).ahead_bytes -= bytes;
        // Ending: who does not receive has been told so.
        self.adjust(driver);
    }

    /// Starts or stops receiving, as it should be; on the home core. False: the runtime is ending,
    /// and starts none.
    pub(in crate::net) fn adjust(self: Arc<Conn>, driver: &mut Driver) -> bool {
        let start = {
            let mut home = self.at_home.borrow(&mut driver.here);
            let should = home.should_receive();
            match home.recv {
                // A receive that is being canceled is started again once it is over.
                Some(op) if !should && !home.canceling => {
                    home.canceling = true;
                    driver.cancel(op);
                    false
                }
                Some(_) => false,
                None => should,
            }
        };
        if start && driver.draining && self.ends_at_stop() {
            return false;
        }
        if start {
            self.start_recv(driver);
        }
        true
    }

    /// From now on a stop does not cancel its receives.
    pub(in crate::net) fn receive_through_stop(&self) {
        self.through_stop.store(true, Ordering::Release);
    }

    /// Whether a stop cancels its receives.
    pub(in crate::net) fn ends_at_stop(&self) -> bool {
        !self.through_stop.load(Ordering::Acquire)
    }

    fn start_recv(self: Arc<Conn>, driver: &mut Driver) {
        let op = driver.recv(Arc::clone(&self));
        self.at_home.borrow(&mut driver.here).recv = Some(op);
    }

    /// Has an event of the color under `handler` come behind all that has arrived; on the home
    /// core.
    pub(in crate::net) fn mark(
        self: Arc<Conn>,
        handler: &'static Handler,
        driver: &mut Driver,
        core: &mut Core,
    ) {
        let unread_bytes = driver.unread_bytes(&self);
        {
            let mut home = self.at_home.borrow(&mut driver.here);
            let at = home.received_bytes + unread_bytes as u64;
            home.marks.push((at, handler));
        }
        self.pass_marks(&mut driver.here, core);
    }

    /// Posts an event for each mark that has been reached; on the home core.
    fn pass_marks(self: &Arc<Conn>, here: &mut Here, core: &mut Core) {
        let mut next = || {
            let mut home = self.at_home.borrow(here);
            let &(at, handler) = home.marks.first()?;
            let is_reached = home.ended || home.received_bytes >= at;
            is_reached.then(|| {
                home.marks.remove(0);
                handler
            })
        };
        while let Some(handler) = next() {
            let this = Arc::clone(self);
            core.post_home(Some(handler), self.color(), move |cx: &mut Cx| {
                this.pass_mark(cx);
            });
        }
    }

    /// All that had arrived when it was marked has been given to the application; an event of the
    /// color.
    fn pass_mark(self: Arc<Conn>, cx: &mut Cx) {
        let callback = {
            let mut colored = self.in_color(cx);
            // None is left once the connection is closed.
            (!colored.after_received.is_empty()).then(|| colored.after_received.remove(0))
        };
        if let Some(callback) = callback {
            let doubt = Doubt(&self);
            callback(cx);
            std::mem::forget(doubt);
        }
    }
}

impl HomeHalf {
    fn should_receive(&self) -> bool {
        self.wanted && !self.is_far_ahead() && !self.closing && !self.ended
    }

    /// Whether the color is so far behind that receiving has to rest.
    fn is_far_ahead(&self) -> bool {
        self.ahead_bytes >= REST_BYTES
    }

    /// Counts bytes that are about to go to the color. Returns how many the color is to acknowledge
    /// behind them, if any.
    fn advance(&mut self, bytes: usize) -> Option<usize> {
        let charged = bytes.max(CHARGED_BYTES_MIN);
        self.ahead_bytes += charged;
        self.unasked_bytes += charged;
        self.received_bytes += bytes as u64;
        let due = self.unasked_bytes >= ACKNOWLEDGED_BYTES;
        due.then(|| std::mem::take(&mut self.unasked_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_is_asked_how_far_it_is_and_receiving_rests_for_it() {
        let mut home = HomeHalf {
            wanted: true,
            ..HomeHalf::default()
        };
        const LEAST: usize = CHARGED_BYTES_MIN;
        assert_eq!(home.advance(ACKNOWLEDGED_BYTES - 1), None);
        // However few they are.
        assert_eq!(home.advance(1), Some(ACKNOWLEDGED_BYTES - 1 + LEAST));
        assert_eq!(home.advance(LEAST), None);
        let received = ACKNOWLEDGED_BYTES + LEAST;
        assert_eq!(home.received_bytes, received as u64);
        assert!(home.should_receive());
        home.advance(REST_BYTES - received - LEAST);
        assert!(!home.is_far_ahead() && home.should_receive());
        home.advance(LEAST);
        assert!(home.is_far_ahead() && !home.should_receive());
        home.ahead_bytes = 0;
        assert!(home.should_receive());
        for stops in [
            |home: &mut HomeHalf| home.wanted = false,
            |home: &mut HomeHalf| home.closing = true,
            |home: &mut HomeHalf| home.ended = true,
        ] {
            let mut home = HomeHalf {
                wanted: true,
                ..HomeHalf::default()
            };
            stops(&mut home);
            assert!(!home.should_receive(), "{home:?}");
        }
    }
}
